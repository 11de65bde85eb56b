"""Backend "mp": D x M processes of this machine, which meet in shared memory.

Data in memory reach the processes through shared memory; files are read by each, its own rows. Callbacks are called in
this process, while the others go on; warnings are given here, and errors raised here.
"""

from __future__ import annotations

import os
from typing import Any

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.execution.asked import Asked, shape_of
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.em import fit_on_ranks
from mixle_mpi.execution.load import parse_grid
from mixle_mpi.execution.processes import run_on_processes
from mixle_mpi.execution.result import Result


def fit(asked: Asked) -> Result:
    """The fit on processes that are started for it and have ended with it. Raises ValueError, WorkerLost."""
    asked.refuse("mp", local=True)
    count = count_of(asked.workers, asked.grid, asked.model_shards)
    shape = shape_of(asked.grid, asked.model_shards, count, asked.options["tune"])
    asked.watch()  # refuses what it cannot use before anything is started
    hear = asked.callback or (lambda iteration: None)
    wants = asked.callback is not None
    job = asked.data, asked.model, shape, asked.checkpoint, asked.options, asked.begun, wants
    return run_on_processes(count, fit_here, job, hear)


def fit_here(world, job: Any, tell) -> Result:
    """The fit on one of the processes."""
    data, model, shape, checkpoint, options, begun, wants = job
    asked = Asked(data, model, None, "auto", None, False, None, checkpoint, options, begun)
    clock = Clock(begun)
    clock.lap("start")
    return fit_on_ranks(
        data, model, world, shape=shape, watch=asked.watch(), clock=clock,
        callback=tell if wants and world.rank == 0 else None, **options,
    )  # fmt: skip


def count_of(workers: int | None, grid, model_shards: int | None) -> int:
    """How many processes are started: as many as were asked for, else a grid has places, else there are CPUs.

    Those of D x M, where a `ModelParallelEstimator` asks for M. Raises ModelError.
    """
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ModelError(f"workers = {workers!r} is not a number >= 1")
    shape, m = parse_grid(grid), model_shards or 1
    if shape is not None:
        places = shape[0] * shape[1]
        if workers is not None and workers != places:
            raise ModelError(f"grid: {shape[0]} x {shape[1]} = {places} processes, but workers = {workers}")
        return max(places, 1)
    if workers is not None and workers < m:
        raise ModelError(f"workers = {workers}, but num_workers = {m} model shards are {m} processes at least")
    return max((workers or len(os.sched_getaffinity(0))) // m, 1) * m
