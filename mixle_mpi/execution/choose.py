"""Which grid a fit runs on: the one that was asked for, the one of the checkpoint, or what the planner finds."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import MemoryLimitError, ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.work import CALL_SECONDS
from mixle_mpi.data.table import on_first
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.grid import MpiAxis, check_shape, measured_resources
from mixle_mpi.execution.load import Coords
from mixle_mpi.execution.memory_limit import rank_memory
from mixle_mpi.execution.shard import check_cut, cut_paths
from mixle_mpi.models.composite import Record
from mixle_mpi.models.optional import Optional
from mixle_mpi.models.sequence import Steps
from mixle_mpi.planning.balance import BalancePlan, plan_grid, plan_on, plan_shape
from mixle_mpi.planning.machine import NETWORK, RATES
from mixle_mpi.planning.rationale import size
from mixle_mpi.planning.resources import Resources
from mixle_mpi.planning.shards import even_bounds

FIRST = 0  # the rank that looks at the clock, writes and prints is at (0, 0) of every grid, as loop and reports expect
MOST_CROWDED = 8  # ranks on a core, beyond which they are not measured
MOST_TRIED = 4  # grids that are measured
WORTH = 0.999  # share of the time of even borders below which others are taken for them
DIFFERENT = 1.2  # times as fast or slow as measured, from which on it is said that given throughputs count instead


@dataclass(frozen=True)
class Choice:
    """The grid of a fit, the same on every rank.

    Attributes
    ----------
    devices : D rows of M ranks; the others, of `ranks`, are idle
    cut, bounds, row_bounds : the nodes that are cut, and the borders of units and of rows, None for even ones
    how : "asked", "auto", "kept" (from a checkpoint) or "tuned"
    plan : what is predicted; None for a cut that the planner does not know
    tried : grid, cut, predicted and measured seconds an iteration of each grid that was measured
    note : how given throughputs differ from measured ones; empty where they do not
    starts : the numbers of the starts that this grid makes
    beside : the choices of other grids, that make other starts at the same time
    gain : how often as fast all grids are, by their plans, as the best one alone
    """

    devices: tuple[tuple[int, ...], ...]
    ranks: int
    cut: str | None
    bounds: tuple[int, ...] | None
    row_bounds: tuple[int, ...] | None
    how: str
    plan: BalancePlan | None
    tried: tuple[dict[str, Any], ...] = ()
    note: str = ""
    starts: tuple[int, ...] = ()
    beside: tuple[Choice, ...] = ()
    gain: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.devices), len(self.devices[0])

    @property
    def groups(self) -> tuple[Choice, ...]:
        """This grid and those beside it."""
        return (self, *self.beside)

    @property
    def active(self) -> list[int]:
        """The ranks of this grid."""
        return [rank for row in self.devices for rank in row]

    @property
    def idle(self) -> int:
        return self.ranks - sum(len(group.active) for group in self.groups)

    def place(self, rank: int) -> tuple[int, tuple[int, int]] | None:
        """The number of a rank's grid and its coordinates there; None for one that is idle."""
        found = ((k, at) for k, group in enumerate(self.groups) if (at := group.coords[rank]) is not None)
        return next(found, None)

    @property
    def coords(self) -> Coords:
        """Of each rank, None for one that is idle."""
        found: Coords = [None] * self.ranks
        for d, row in enumerate(self.devices):
            for m, rank in enumerate(row):
                found[rank] = d, m
        return found

    @property
    def pipelined(self) -> bool:
        """Whether two tiles are in flight where nobody asked for it, or against it."""
        return self.plan is None or self.plan.extra["pipelined"]

    def record(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        kept = ["devices", "ranks", "cut", "bounds", "row_bounds", "how"] + ["starts"] * bool(self.starts)
        found = {name: value for name, value in vars(self).items() if name in kept}
        return found | ({"beside": [other.record() for other in self.beside]} if self.beside else {})

    def groups_data(self) -> list[dict[str, Any]]:
        """Grid, cut, ranks and starts of all grids."""
        return [{"grid": list(g.shape), "cut": g.cut, "ranks": g.active, "starts": list(g.starts)} for g in self.groups]

    def as_data(self) -> dict[str, Any]:
        """What `result.json` tells of it."""
        found = {"grid": list(self.shape), "ranks": self.ranks, "idle": self.idle, "cut": self.cut, "how": self.how,
                 "pipelined": self.pipelined,
                 "bounds": self.bounds, "rows": self.row_bounds, "tried": list(self.tried),
                 "note": self.note}  # fmt: skip
        if self.beside:
            found |= {"beside": [other.as_data() | {"devices": other.devices} for other in self.beside],
                      "gain": self.gain}  # fmt: skip
        if self.plan is None:
            return found | {"rationale": None, "seconds": None, "bytes": None}
        return found | {"rationale": self.plan.rationale} | {k: self.plan.extra[k] for k in ("seconds", "bytes")}


def resources_of(world: Axis) -> Resources:
    """The ranks as devices: measured, or kept from when they were. Collective.

    A process without MPI is not measured, nor are ranks many of which share a core: that would take minutes.
    """
    node = world.node()
    here = node.size
    node.free()
    crowded = max(world.allgather(here / len(os.sched_getaffinity(0)))) > MOST_CROWDED
    if isinstance(world, MpiAxis) and not crowded:
        return measured_resources()
    return unmeasured(world.size).limited(rank_memory(here))


def given_resources(world: Axis, given: Resources) -> tuple[Resources, str]:
    """The ranks as they are given, and as measured in what is not given; what to say of throughputs that differ.

    Raises ModelError for another number of devices than ranks. Collective.
    """
    if len(given.devices) != world.size:
        raise ModelError(f"resources: one device a rank is needed; there are {len(given.devices)} of them, but "
                         f"{world.size} rank{'s' * (world.size != 1)}")  # fmt: skip
    measured = resources_of(world)
    devices = tuple(
        dataclasses.replace(known, throughput=of.throughput, memory_bytes=of.memory_bytes or known.memory_bytes,
                            node=of.node or known.node)
        for of, known in zip(given.devices, measured.devices)
    )  # fmt: skip
    told = {name: value for name in (*NETWORK, *RATES) if (value := given.__dict__[name]) is not None}
    note = differing(given, measured) if measured.flops_per_second is not None else ""
    return dataclasses.replace(measured, devices=devices, **told), note


def differing(given: Resources, measured: Resources) -> str:
    """A sentence on the rank whose throughput is furthest from what was measured, if it is far; else nothing."""
    ours, theirs = (np.array([d.throughput for d in r.devices]) for r in (given, measured))
    of, was = ours / ours[0], theirs / theirs[0]
    rank = int(np.abs(np.log(of / was)).argmax())
    if max(of[rank] / was[rank], was[rank] / of[rank]) < DIFFERENT:
        return ""
    return (f"throughputs as given, not as measured: rank {rank} is given as {of[rank]:.3g} times as fast as rank 0, "
            f"and was measured as {was[rank]:.3g} times")  # fmt: skip


def unmeasured(workers: int) -> Resources:
    """So many devices, as fast as the machine on which costs were measured."""
    return dataclasses.replace(Resources.local(workers), call_seconds=CALL_SECONDS)


def free_of(resources: Resources, taken: int) -> Resources:
    """The same devices with the memory that is left of so many bytes that a process takes by itself.

    Raises MemoryLimitError where nothing is left.
    """
    least = min((d.memory_bytes for d in resources.devices if d.memory_bytes is not None), default=None)
    if least is not None and least <= taken:
        raise MemoryLimitError(f"Does not fit: a rank's memory is {size(least)} ({least} bytes), and each process "
                               f"takes {size(taken)} by itself.")  # fmt: skip
    return resources.without(taken)


def choose(
    model: Node, total: int, world: Axis, resources: Resources, *, shape: tuple[int, int] | None = None,
    cut: str | None = None, kept: dict[str, Any] | None = None, taken: int = 0,
    note: str = "",
) -> Choice:  # fmt: skip
    """The grid for so many rows of a bound model. Collective; rank 0 plans.

    Parameters
    ----------
    shape : D and M; None leaves them, and the cut, to the planner, or to `kept`
    cut : path of the nodes to cut where M > 1
    kept : what a checkpoint has of the grid before, `Choice.record`
    taken : bytes that a process takes by itself, of which the memory of `resources` is free
    note : as of `Choice`

    Raises
    ------
    MemoryLimitError
        When what a rank would hold exceeds its memory.
    ModelError
    """
    choice = on_first(world, lambda: _chosen(model, max(total, 1), resources, shape, cut, kept, taken))
    return dataclasses.replace(choice, note=note)


def _chosen(model: Node, n: int, resources: Resources, shape, cut: str | None, kept, taken: int) -> Choice:
    ranks = len(resources.devices)
    if cut is not None:
        check_cut(model, cut)
    choice = None
    if kept is not None and kept["ranks"] == ranks:
        was_asked = kept["how"] == "asked"
        if shape is None and not was_asked and (cut is None or kept["cut"] in (None, cut)):
            choice = kept_grid(model, n, resources, kept, "kept")
        elif shape is not None and was_asked and (len(kept["devices"]), len(kept["devices"][0])) == tuple(shape):
            same = cut is None or kept["cut"] == chosen_cut(model, shape, cut)
            choice = kept_grid(model, n, resources, kept, "asked") if same else None
    if choice is None and shape is not None:
        choice = asked(model, n, resources, shape, cut)
    if choice is None:
        plan = plan_grid(model, resources, n_data=n, given=observed(model, n), cut=cut, first=FIRST)
        choice = choice_of(plan, ranks)
    if choice.plan is not None and not choice.plan.fits:
        besides = f" That is besides {size(taken)} that each process takes by itself." if taken else ""
        raise MemoryLimitError(choice.plan.rationale + besides)
    return choice


def asked(model: Node, n: int, resources: Resources, shape: tuple[int, int], cut: str | None) -> Choice:
    """The grid that was asked for, of all ranks in order: every border even, but for those of rows and units where it
    is worth while to balance them. Where no cut was asked for it is the fastest."""
    check_shape(*shape, len(resources.devices))
    devices, bounds, rows = np.arange(len(resources.devices)).reshape(shape), None, None
    given = observed(model, n)
    if shape[1] > 1 and cut is None:
        cut = plan_shape(model, resources, n_data=n, shape=shape, cut=None, given=given, devices=devices).extra["cut"]
    same: dict[str, Any] = {"n_data": n, "shape": shape, "cut": cut, "given": given}
    try:
        plan = plan_on(model, resources, **same)
        other = plan_shape(model, resources, devices=devices, **same)
        worth = other.extra["seconds"]["total"] < WORTH * plan.extra["seconds"]["total"]
        if other.fits and (worth or not plan.fits):
            plan, (bounds, rows) = other, borders_of(other)
    except ModelError:  # unlike nodes that a path with a star cuts alike can be run, but not planned
        plan = None
    return Choice(_numbers(devices), len(resources.devices), cut, bounds, rows, "asked", plan)


def kept_grid(model: Node, n: int, resources: Resources, kept: dict[str, Any], how: str = "kept") -> Choice | None:
    """The grid of a checkpoint; None where it does not suit this model and these rows."""
    devices = _numbers(kept["devices"])
    bounds, rows = (None if kept[k] is None else tuple(kept[k]) for k in ("bounds", "row_bounds"))
    try:
        plan = plan_on(model, resources, n_data=n, shape=(len(devices), len(devices[0])), cut=kept["cut"],
                       bounds=bounds, rows=rows, devices=devices, given=observed(model, n))  # fmt: skip
    except ModelError:  # it is the checkpoint of another run: where the fit goes on it is refused by name
        return None
    return Choice(devices, kept["ranks"], kept["cut"], bounds, rows, how, plan)


def _numbers(devices) -> tuple[tuple[int, ...], ...]:
    """Numbers of devices (D, M) as `Choice` has them."""
    return tuple(tuple(int(rank) for rank in row) for row in devices)


def borders_of(plan: BalancePlan) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """The borders of units and of rows of a plan, None for even ones."""
    extra, m = plan.extra, plan.model_parallel
    even = m == 1 or extra["bounds"] == even_bounds(extra["bounds"][-1], m)
    rows = None if extra["rows"] is None else tuple(int(row) for row in extra["rows"])
    return None if even else tuple(extra["bounds"]), rows


def choice_of(plan: BalancePlan, ranks: int, how: str = "auto") -> Choice:
    """The choice that a plan is."""
    cut = plan.extra["cut"] if plan.model_parallel > 1 else None
    return Choice(_numbers(plan.extra["devices"]), ranks, cut, *borders_of(plan), how, plan)


def alternatives(choice: Choice, model: Node, total: int, resources: Resources) -> list[Choice]:
    """The planner's choice, and runner-ups of other shapes that fit, one of which is the whole model on all ranks."""
    found, n = [choice], max(total, 1)
    if choice.plan is None or choice.how != "auto":
        return found
    others = [((r["data_parallel"], r["model_parallel"]), r["cut"]) for r in choice.plan.extra["runner_ups"]]
    everyone = (min(choice.ranks, n), 1), None
    for k, (shape, cut) in enumerate([*others, everyone]):
        room = MOST_TRIED - (k < len(others) and all(c.shape != everyone[0] for c in found))
        if len(found) < room and all(c.shape != shape for c in found):
            plan = plan_shape(model, resources, n_data=n, shape=shape, cut=cut, given=observed(model, n), first=FIRST)
            found += [choice_of(plan, choice.ranks)] if plan.fits else []
    return found


def observed(model: Node, n: int) -> dict[str, dict[str, float]]:
    """What `n` rows say, by the field around a node: which share of them a bound model scores below an `Optional`,
    and how many steps a sequence has.

    Leaves that may be missing are worked out in all rows.
    """
    shares: dict[str, list[float]] = {}
    lengths: dict[str, float] = {}

    def visit(node: Node, name: str) -> None:
        if isinstance(node, Optional):
            leaf = node.first_leaf()
            seen = (0, 0) if leaf is None else (leaf.encoding.observed, leaf.encoding.missing)
            share = 1.0 if isinstance(node.of, Family) or not sum(seen) else seen[0] / sum(seen)
            shares.setdefault(name, []).append(share)
        if isinstance(node, Steps):
            leaf = next(f for child in node.step_models() for f in child.walk() if isinstance(f, Family))
            lengths[name] = (leaf.encoding.observed + leaf.encoding.missing) / n
        for role, child in node.roles():
            visit(child, role if isinstance(node, Record) else name)

    visit(model, "")
    return {"observed": {name: sum(found) / len(found) for name, found in shares.items()}, "length": lengths}


def chosen_cut(model: Node, shape: tuple[int, int], cut: str | None) -> str | None:
    """The path to cut: the one that was asked for, else the first in tree order. Raises ModelError."""
    if cut is not None:
        return check_cut(model, cut)
    if shape[1] == 1:
        return None
    paths = cut_paths(model)
    if not paths:
        raise ModelError(f"grid {shape[0]} x {shape[1]}: no node of this model can be cut; use M = 1")
    return paths[0]


def tuned(choice: Choice, tried: list[dict[str, Any]]) -> Choice:
    """The choice with what was measured of it and of others."""
    return dataclasses.replace(choice, how="tuned", tried=tuple(tried))
