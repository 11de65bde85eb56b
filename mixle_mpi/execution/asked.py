"""What a user asks of a fit: the options of `optimize`, checked, and as every backend gets them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.execution.grid import check_shape
from mixle_mpi.execution.load import parse_grid
from mixle_mpi.execution.loop import Callback
from mixle_mpi.execution.stopping import Checkpoints, seconds_of


@dataclass
class Asked:
    """A fit that was asked for.

    Attributes
    ----------
    model_shards : the M that a `ModelParallelEstimator` asks for, None without one
    grid, workers, local : `grid` and `workers` of `optimize`, and whether `rows` is "local"
    checkpoint : arguments of `watch_of`
    options : the other keywords of `execution.em.fit_on_ranks`, by name
    """

    data: Any
    model: Node
    model_shards: int | None
    grid: Any
    workers: int | None
    local: bool
    callback: Callback | None
    checkpoint: tuple[Any, float, bool, Any]
    options: dict[str, Any]
    begun: float = field(default_factory=time.perf_counter)

    def shape(self, ranks: int) -> tuple[int, int] | None:
        """D and M on so many ranks, None to plan them. Raises ModelError."""
        return shape_of(self.grid, self.model_shards, ranks, self.options["tune"])

    def watch(self) -> Checkpoints | None:
        """A new watch, for one rank: time that has passed since the fit was asked for counts."""
        return watch_of(*self.checkpoint, spent=time.perf_counter() - self.begun)

    def refuse(self, backend: str, *, workers: bool = False, local: bool = False) -> None:
        """Raise ModelError for options that a backend has no use for."""
        if workers and self.workers is not None:
            raise ModelError(f'workers = {self.workers!r} is how many processes backend "mp" starts; '
                             f'backend "{backend}" has none to start')  # fmt: skip
        if local and self.local:
            raise ModelError(f'rows = "local" is for ranks that bring rows of their own, with backend "mpi"; data of '
                             f'backend "{backend}" are all of them')  # fmt: skip


def shape_of(grid, model_shards: int | None, ranks: int, tune: bool = False) -> tuple[int, int] | None:
    """D and M of the option `grid` on so many ranks, None to leave them to the planner. Raises ModelError.

    `model_shards` is the M that a `ModelParallelEstimator` asks for.
    """
    shape = parse_grid(grid)
    if model_shards is not None:
        if ranks % model_shards:
            raise ModelError(f"num_workers = {model_shards} model shards do not divide {ranks} ranks evenly")
        wanted = ranks // model_shards, model_shards
        if shape is not None and shape != wanted:
            raise ModelError(f"grid = {grid!r}, but num_workers = {model_shards} asks for {wanted[0]} x {wanted[1]}")
        shape = wanted
    if shape is not None:
        check_shape(*shape, ranks)
        if tune:
            raise ModelError(f"tune chooses among grids, but the grid is given as {shape[0]} x {shape[1]}")
    return shape


def check_options(estimator, max_iter, tol, starts, impossible, rows) -> None:
    """Raise ModelError for an option that cannot be used."""
    if not isinstance(estimator, Node):
        raise ModelError(f"estimator: {estimator!r} is not a model")
    if isinstance(max_iter, bool) or not isinstance(max_iter, (int, np.integer)) or max_iter < 0:
        raise ModelError(f"max_iter = {max_iter!r} is not a number >= 0")
    if tol is not None and not (isinstance(tol, (int, float)) and tol >= 0):
        raise ModelError(f"tol = {tol!r} is not a number >= 0, nor None")
    if isinstance(starts, bool) or not isinstance(starts, (int, np.integer)) or starts < 1:
        raise ModelError(f"starts = {starts!r} is not a number >= 1")
    if impossible not in ("error", "skip"):
        raise ModelError(f'impossible = {impossible!r}: choose "error" or "skip"')
    if rows not in ("replicated", "local"):
        raise ModelError(f'rows = {rows!r}: choose "replicated" or "local"')


def watch_of(checkpoint, every, resume, max_time, spent: float = 0.0) -> Checkpoints | None:
    """The watch that `optimize` was asked for, so many seconds ago. Raises ModelError."""
    if checkpoint is None:
        if resume or max_time is not None:
            raise ModelError("resume and max_time need checkpoint, the directory of the checkpoints")
        return None
    if isinstance(every, bool) or not (isinstance(every, (int, float)) and every >= 0):
        raise ModelError(f"checkpoint_every = {every!r} is not a number of minutes >= 0")
    seconds = None if max_time is None else seconds_of(max_time)
    if max_time is not None and seconds is None:
        raise ModelError(f"max_time = {max_time!r} is neither minutes nor HH:MM:SS")
    return Checkpoints(checkpoint, every=every, resume=resume, seconds=None if seconds is None else seconds - spent)
