"""The starts of a fit on one grid, one after another, and which of several is the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.executor import Counts, Executor
from mixle_mpi.execution.initialise import start
from mixle_mpi.execution.loop import Callback, Ending, Resumed, State, Watch, iterate
from mixle_mpi.execution.result import ROUNDING, Judge
from mixle_mpi.execution.whole import is_large, whole_theta
from mixle_mpi.models.mixture import MixtureBank

MOST_DEAD = 100  # components without weight that are named


@dataclass
class Part:
    """What the starts on one grid came to.

    Attributes
    ----------
    ended : a record of each start, in their order
    best : the number of the best; None where all failed, or there was none
    theta : its parameters in the layout of the uncut tree, on the grid's first rank, and on the others if asked for
    is_stopped : whether the watch ended the fit before the last start ended
    leads : whether this is the first rank of the grid
    """

    ended: list[dict]
    best: int | None
    theta: np.ndarray | None
    is_stopped: bool
    leads: bool
    statistics_bytes: int = 0
    counts: Counts = field(default_factory=Counts)


def run_starts(
    executor: Executor, total: int, effective: float, clock: Clock, numbers: Sequence[int], *,
    run: Callable[[], dict], max_iter: int, tol: float | None, init: str, seed: int, impossible: str = "error",
    callback: Callback | None = None, watch: Watch | None = None, reduce_statistics: bool = True,
    beside: Sequence[int] | None = None,
) -> Part:  # fmt: skip
    """Make starts, those that ended in what is resumed apart, and return the best. Collective.

    Parameters
    ----------
    total, effective : rows in all, and the sum of the weights of those with anything observed
    numbers : of the starts, in increasing order; random numbers are keyed by them
    run : tells what this is a run of
    beside : the ranks of this grid among all, where other starts run on other grids beside it
    """
    watch = watch or Watch()
    found = watch.resume(executor, run) or Resumed([], None, None)
    ended, best, best_theta = found.ended, found.best, found.best_theta
    over = {of["start"] for of in ended}
    rest = [number for number in numbers if number not in over]
    restarts = any(node.restarts for node in executor.model.walk())
    statistics_bytes, ending = executor.stats.nbytes, Ending("failed", 0)
    for number in rest:
        last, state = number == rest[-1], State(number, ended=ended, best=best)
        if not watch.take_up(executor, state):
            start(executor, total, init, seed, number)
        judge = Judge(tol, effective, state.history, state.objective, restarts)
        clock.lap("initialise")
        ending = iterate(
            executor, state, judge, clock, max_iter=max_iter, impossible=impossible, callback=callback, watch=watch,
            best_theta=best_theta, reduce_statistics=reduce_statistics,
        )  # fmt: skip
        record = record_of(state, ending, dead_components(executor))
        if beside is not None:
            record |= {"grid": list(executor.grid.shape), "ranks": list(beside)}
        if last:  # what follows is of the size of the whole model, on the first rank
            executor.release()
        if last and beside is None and ending.status not in ("stopped", "failed"):
            watch.save(executor, state.before_last(), best_theta, "ended")
            clock.lap("checkpoint")
        if is_better(record, of_start(ended, best), effective):
            best, best_theta = number, executor.theta if last else executor.theta.copy()
        ended.append(record)
        if ending.status == "stopped":
            break
        if last and beside is not None:  # others go on, and may be stopped: these starts need not be made again
            state.best = best
            watch.save(executor, state, best_theta, "ended")
            clock.lap("checkpoint")
    executor.release()
    theta = None
    if best_theta is not None:
        executor.theta[:] = best_theta
        alone = beside is not None or is_large(executor.model, executor.cut)
        theta = whole_theta(executor, everyone=not alone)
    leads = executor.grid.world.rank == 0
    ended.sort(key=lambda of: of["start"])
    return Part(ended, best, theta, ending.status == "stopped", leads, statistics_bytes, executor.counts)


def of_start(ended: Sequence[dict], number: int | None) -> dict | None:
    """The record of a start; None of none."""
    return next((record for record in ended if record["start"] == number), None)


def record_of(state: State, ending: Ending, dead: list[str]) -> dict:
    """What is kept of a start that ended."""
    return {
        "start": state.start, "status": ending.status, "message": ending.message, "n_iter": state.n_iter,
        "history": list(state.history), "impossible": ending.impossible, "dead": dead,
    }  # fmt: skip


def is_better(record: dict, best: dict | None, effective: float) -> bool:
    """Whether a start beats the best so far. Of starts that are equal but for rounding, as those that find the same
    maximum, the first is the best, on every grid and in whatever order they ended. One that failed never is, nor one
    whose likelihood fell if it can.

    `effective` is the sum of the weights of the rows.
    """
    if record["status"] == "failed":
        return False
    if best is None:
        return True
    fell, before = (of["status"] == "decreased" for of in (record, best))
    if fell != before:
        return before
    value, other = record["history"][-1], best["history"][-1]
    if abs(value - other) <= ROUNDING * max(abs(value), abs(other), effective):
        return record["start"] < best["start"]
    return value > other


def best_of(records: Sequence[dict], effective: float) -> dict | None:
    """The best of the records of starts, in the order of their numbers; None where all failed."""
    best: dict | None = None
    for record in sorted(records, key=lambda of: of["start"]):
        if is_better(record, best, effective):
            best = record
    return best


def run_settings(seed: int, init: str, starts: int, tol: float | None, max_iter: int) -> dict:
    """The settings that a resumed run must share. With several starts each has ended by `tol` and `max_iter`."""
    settings = {"seed": seed, "init": init, "starts": starts}
    return settings | ({"tol": tol, "max_iter": max_iter} if starts > 1 else {})


def dead_components(executor: Executor) -> list[str]:
    """Paths of components that the last pass gave no weight, at most `MOST_DEAD`. Collective over the whole grid."""
    stats = executor.layout.stat_views(executor.stats)
    dead = []
    for bank in executor.bank.walk():
        if isinstance(bank, MixtureBank):
            rows = executor.own_rows(f"{bank.path}#components")
            count = stats[f"{bank.path}#components"]["count"][rows]
            at = f"{bank.path}/" if bank.path else ""
            for row in rows[count == 0][:MOST_DEAD]:
                member = f" of member {bank.members[bank.unit_member[row]]}" if bank.total_members > 1 else ""
                dead.append(f"{at}component_{bank.unit_number[row]}{member}")
    everyone = executor.grid.data.allgather(dead)
    over_shards = executor.grid.model.allgather([path for part in everyone for path in part])
    return list(dict.fromkeys(path for part in over_shards for path in part))[:MOST_DEAD]
