"""The planner's best grids measured: each runs a few iterations, and the fastest is kept."""

from __future__ import annotations

import math
import time
from functools import partial
from itertools import pairwise
from statistics import median

from mixle_mpi.data.table import on_first
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.choose import Choice, alternatives, tuned
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.grid import Grid
from mixle_mpi.execution.initialise import start
from mixle_mpi.execution.load import Loaded, Read, deal
from mixle_mpi.execution.loop import State, Watch, iterate
from mixle_mpi.execution.part import on_grid
from mixle_mpi.execution.result import Judge
from mixle_mpi.execution.warm import warm
from mixle_mpi.planning.resources import Resources

PASSES, SECONDS, ENOUGH = 2, 1.0, 10_000  # passes and seconds at least, passes at most, the first apart


class Stopwatch(Watch):
    """Notes when each pass ended, and ends the fit when it knows enough, on the rank that `leads`."""

    def __init__(self, leads: bool):
        self.leads = leads
        self.ended: list[float] = []

    def wishes(self, n_iter):
        """See `Watch.wishes`."""
        self.ended.append(time.perf_counter())
        passes = len(self.ended) - 1
        return self.leads and passes >= PASSES and self.ended[-1] - self.ended[0] >= SECONDS, False

    @property
    def seconds(self) -> float:
        """The median of the passes after the first, in which kernels warm up; infinite when there are none."""
        return median((b - a for a, b in pairwise(self.ended)) if len(self.ended) > 1 else [math.inf])


def tune(
    found: Read, world: Axis, choice: Choice, resources: Resources, init: str, seed: int, impossible: str
) -> Choice:
    """The fastest of the planner's best grids, by the seconds of an iteration on its slowest rank. Collective.

    The rows are kept, to be dealt to each grid; the fit itself starts anew.
    """
    candidates = on_first(world, lambda: alternatives(choice, found.model, found.total, resources))
    if len(candidates) == 1:
        return choice
    tried = []
    for candidate in candidates:
        loaded = deal(found, world, candidate.coords, candidate.shape[0], candidate.row_bounds, keep=True)
        own = on_grid(world, candidate, partial(
            measured, loaded=loaded, choice=candidate, init=init, seed=seed, impossible=impossible
        ))  # fmt: skip
        seconds = max(s for s in world.allgather(own) if s is not None)
        tried.append({
            "grid": list(candidate.shape), "cut": candidate.cut,
            "predicted": None if candidate.plan is None else candidate.plan.extra["seconds"]["total"],
            "measured": seconds if math.isfinite(seconds) else None,
        })  # fmt: skip
    fastest = min(range(len(tried)), key=lambda k: math.inf if tried[k]["measured"] is None else tried[k]["measured"])
    return tuned(candidates[fastest], tried)


def measured(grid: Grid, loaded: Loaded, choice: Choice, init: str, seed: int, impossible: str) -> float:
    """Seconds of an iteration, on this rank. Collective over the grid."""
    executor = Executor(loaded.model, loaded.rows, grid, choice.cut, loaded.weights, choice.bounds, choice.pipelined)
    warm(executor)
    start(executor, loaded.total, init, seed, 0)
    watch, judge = Stopwatch(grid.world.rank == 0), Judge(None, loaded.effective, restarts=True)
    iterate(executor, State(), judge, Clock(), max_iter=ENOUGH, impossible=impossible, watch=watch)
    return watch.seconds
