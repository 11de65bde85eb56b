"""Several starts on grids side by side, each of some of the ranks: how they are chosen, run, stopped and brought
together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import DataError, ModelError, NumericalError
from mixle_mpi.contract.node import Node
from mixle_mpi.data.table import on_first, with_origin
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.choose import FIRST, Choice, choice_of, kept_grid, observed
from mixle_mpi.execution.grid import Grid, MpiAxis, all_arrive, part_grids
from mixle_mpi.execution.loop import ABANDON, Abandoned, Watch
from mixle_mpi.execution.part import MEETING
from mixle_mpi.execution.shard import compile_tree, layout_of
from mixle_mpi.execution.starts import Part, best_of
from mixle_mpi.execution.stopping import Checkpoints
from mixle_mpi.execution.whole import is_large
from mixle_mpi.planning.resources import Resources
from mixle_mpi.planning.side_by_side import last_end, seconds_of, side_by_side

FAILED, STOP, SAVE = 1, 2, 3  # what first ranks tell each other


def with_others(
    choice: Choice, model: Node, total: int, world: Axis, resources: Resources, starts: Sequence[int], *,
    cut: str | None = None, kept: dict[str, Any] | None = None,
) -> Choice:  # fmt: skip
    """The choice with the starts that its grid makes, and with grids beside it where they end sooner. Collective; rank
    0 plans.

    A grid that was asked for or measured stays alone; one that is kept from a checkpoint keeps those beside it.

    Parameters
    ----------
    starts : numbers of the starts that have not ended
    cut, kept : see `choose.choose`
    """
    if not isinstance(world, MpiAxis) or world.size == 1:
        return dataclasses.replace(choice, starts=tuple(starts))
    return on_first(world, lambda: grids_beside(choice, model, max(total, 1), resources, starts, cut, kept))


def grids_beside(
    choice: Choice, model: Node, n: int, resources: Resources, starts: Sequence[int], cut: str | None,
    kept: dict[str, Any] | None,
) -> Choice:  # fmt: skip
    """What `with_others` finds for n rows."""
    alone = dataclasses.replace(choice, starts=tuple(starts))
    if choice.how not in ("auto", "kept") or choice.plan is None:
        return alone
    if choice.how == "kept" and kept is not None:
        others = [kept_grid(model, n, resources, record) for record in kept.get("beside", ())]
        found = [(c, tuple(k for k in starts if k in record.get("starts", starts)))
                 for c, record in zip((choice, *others), (kept, *kept.get("beside", ())))]  # fmt: skip
        fits = all(c is not None and (c.plan is None or c.plan.fits) for c in others)
        if fits and sorted(k for _, own in found for k in own) == sorted(starts):
            beside = tuple(dataclasses.replace(c, starts=own) for c, own in found[1:] if c is not None and own)
            return dataclasses.replace(choice, starts=found[0][1], beside=beside)
    given = observed(model, n)
    sides = side_by_side(model, resources, starts, choice.plan, n_data=n, given=given, cut=cut, first=FIRST)
    if len(sides) == 1:
        return alone
    own, *rest = (dataclasses.replace(choice_of(s.plan, choice.ranks), starts=s.starts) for s in sides)
    gain = len(starts) * seconds_of(choice.plan) / last_end(sides)
    return dataclasses.replace(own, beside=tuple(rest), gain=gain)


class Leaders:
    """Numbers that the first ranks of grids tell each other, for which nobody waits; the other ranks hear nothing.

    Parameters
    ----------
    world : all ranks
    ranks : the first ranks
    """

    def __init__(self, world: MpiAxis, ranks: Sequence[int]):
        self._world, self._leads = world, world.rank in ranks
        self._others = [rank for rank in ranks if rank != world.rank] if self._leads else []
        self._told = self._heard = 0

    def tell(self, number: int) -> None:
        """Send a number to the others."""
        self._world.post(number, self._others)
        self._told += self._leads

    def heard(self) -> list[int]:
        """The numbers that have come since the last call."""
        found = []
        while self._leads and (number := self._world.posted()) is not None:
            found.append(number)
        self._heard += len(found)
        return found

    def close(self) -> None:
        """Take what is still on its way, so that no later fit does. Collective."""
        coming = sum(self._world.allgather(self._told)) - self._told - self._heard
        for _ in range(coming if self._leads else 0):
            self._world.posted(wait=True)
        self._world.posts_came()


class Together(Watch):
    """The watch of one of several grids: when a fit stops on one of them it stops on all, within an iteration of each.

    The first ranks tell each other, and hear before they agree with their own grid on what comes after an iteration.
    """

    def __init__(self, inner: Watch, leaders: Leaders):
        self.inner, self.leaders = inner, leaders
        self._heard: set[int] = set()
        self._is_stopped = False

    def wishes(self, n_iter):
        """See `Watch.wishes`."""
        stop, save = self.inner.wishes(n_iter)
        if isinstance(self.inner, Checkpoints) and self.inner.is_asked_to_save:
            self.leaders.tell(SAVE)
        self._heard |= set(self.leaders.heard())
        save = save or SAVE in self._heard
        self._heard.discard(SAVE)
        if FAILED in self._heard and STOP not in self._heard:
            return ABANDON, False
        return bool(stop or self._heard), save

    def relay(self):
        """See `Watch.relay`. Where this grid was stopped the others know it."""
        if not self._is_stopped:
            self.inner.relay()

    def save(self, executor, state, best_theta, occasion="between"):
        """See `Watch.save`."""
        self._is_stopped = occasion == "stopped"
        if self._is_stopped and STOP not in self._heard:
            self.leaders.tell(STOP)
        self.inner.save(executor, state, best_theta, occasion)

    def resume(self, executor, run):
        """See `Watch.resume`."""
        return self.inner.resume(executor, run)

    def take_up(self, executor, state):
        """See `Watch.take_up`."""
        return self.inner.take_up(executor, state)


def on_groups(
    world: Axis, choice: Choice, work: Callable[[Grid, Choice, Watch], Part], watch: Watch,
) -> Part | None:  # fmt: skip
    """What `work` returns on this rank's grid of a choice; None on an idle rank. Collective.

    Raises
    ------
    ValueError, OSError
        What the ranks of a grid agree on ends the others after their iteration, and is raised on all ranks. Any other
        error, and one that others of its grid do not come to meet, is raised where it is: the command ends the others.
    """
    if not isinstance(world, MpiAxis):
        raise TypeError("only MPI ranks can be on several grids")
    place = choice.place(world.rank)
    number = None if place is None else place[0]
    leaders = Leaders(world, [group.active[0] for group in choice.groups])
    if isinstance(watch, Checkpoints):
        watch.join(world, [group.active[0] for group in choice.groups], number, choice.groups[number or 0].starts)
    together = Together(watch, leaders)
    grid = part_grids(world, [group.devices for group in choice.groups])
    part, error = None, None
    try:
        if grid is not None and number is not None:
            part = work(grid, choice.groups[number], together)
    except Abandoned:
        pass
    except (ModelError, DataError, NumericalError, OSError) as problem:
        if grid is None or not grid.world.arrive(MEETING):
            raise
        leaders.tell(FAILED)
        error = with_origin(problem, world)
    all_arrive(None, meanwhile=together.relay)
    leaders.close()
    agreed = next((e for e in world.allgather(error) if e is not None), None)
    if agreed is not None:
        raise agreed
    if grid is not None:
        grid.close()
    if isinstance(watch, Checkpoints):
        watch.leave(world, part is not None and part.is_stopped)
    return part


def joined(
    world: Axis, choice: Choice, part: Part | None, model: Node, effective: float
) -> tuple[Part, np.ndarray | None]:
    """The starts of all grids, the same on every rank but for what it counted, and the parameters of the best of them.

    Collective. Parameters are the whole model's, None on other ranks than the first where they are too large.

    Raises
    ------
    NumericalError
        When every start failed: the message of the last one.
    """
    told = world.allgather((part.ended, part.best, part.is_stopped) if part is not None and part.leads else None)
    parts = [found for found in told if found is not None]
    ended = sorted((record for records, _, _ in parts for record in records), key=lambda record: record["start"])
    winners = [record for records, best, _ in parts for record in records if record["start"] == best]
    best = best_of(winners, effective)
    if best is None:
        raise NumericalError(ended[-1]["message"])
    root = next(rank for rank, found in enumerate(told) if found is not None and found[1] == best["start"])
    is_stopped = any(stopped for _, _, stopped in parts)
    own = Part([], None, None, False, False) if part is None else part
    theta, own.theta = own.theta if world.rank == root else None, None
    if any(is_large(model, group.cut) for group in choice.groups):
        theta = _to_first(world, theta, root)
    else:
        if theta is None:
            theta = np.empty(layout_of(compile_tree(model, None, True)).num_params)
        world.bcast(theta, root)
    whole = dataclasses.replace(own, ended=ended, best=best["start"], is_stopped=is_stopped)
    return whole, theta


def _to_first(world: Axis, theta: np.ndarray | None, root: int) -> np.ndarray | None:
    """Parameters that one rank has, on the first rank alone. Collective."""
    if root == 0:
        return theta
    sent = np.empty(0) if theta is None else theta
    came = world.alltoall([sent if rank == 0 else sent[:0] for rank in range(world.size)])
    return came[root] if world.rank == 0 else None
