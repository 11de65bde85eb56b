"""EM: the loop that every backend runs, on every rank of a grid."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np

from mixle_mpi.contract.errors import DataError, ModelError, NumericalError
from mixle_mpi.contract.node import Node
from mixle_mpi.execution.executor import Executor, Pass, compile_tree
from mixle_mpi.execution.fitted import fitted
from mixle_mpi.execution.grid import Grid, check_shape, mpi_grid, mpi_world, serial_grid
from mixle_mpi.execution.initialise import start
from mixle_mpi.execution.load import Loaded, load, parse_grid
from mixle_mpi.execution.result import Iteration, Judge, Result
from mixle_mpi.execution.shard import check_cut, cut_paths
from mixle_mpi.models.mixture import Mixture, MixtureBank

BACKENDS = ("local", "mpi")
Callback = Callable[[Iteration], None]


def optimize(
    data,
    estimator: Node,
    *,
    backend: str = "local",
    grid="auto",
    cut: str | None = None,
    max_iter: int = 100,
    tol: float | None = 1e-6,
    starts: int = 1,
    init: str = "auto",
    seed: int = 0,
    weights=None,
    impossible: str = "error",
    rows: str = "replicated",
    callback: Callback | None = None,
) -> Result:
    """Fit a model by EM. Collective with backend "mpi".

    Parameters
    ----------
    data : path of a .csv or .npy file, array, list of rows, or dict of columns
    estimator : Node
        Parameters that are given are where EM starts; when all are, EM starts there exactly.
    backend : "local" for this process, "mpi" for all ranks
    grid : "auto", "DxM" or (D, M): D data shards of M model shards each
    cut : path of the nodes whose units are dealt over the model shards, as in
        "component_*/factor_0"; by default the first node in tree order that can be cut
    max_iter : number of M-steps at most
    tol : stop when the log likelihood changes by less than this per observation; None never stops
    init : "kmeans++" on the numeric columns, "random", or "auto": the first where there are any
    seed : int; the start depends on it and on nothing else
    weights : (n,) sample weights >= 0; weight 2 is the row twice
    impossible : "error" refuses rows of probability zero under every component, "skip" leaves them out
    rows : "replicated" when data in memory are the same on every rank, "local" when each brings its own
    callback : called after each pass on every rank, with an `Iteration`

    Returns
    -------
    Result

    Raises
    ------
    ValueError
        For data, options or models that cannot be used; the message names the row, column or option.
        The same on all ranks.

    Source
    ------
    Dempster, Laird, Rubin (1977), J. R. Statist. Soc. B 39, 1-38.
    """
    check_options(estimator, max_iter, tol, starts, impossible, rows)
    if backend not in BACKENDS:
        raise ModelError(f"backend = {backend!r}: choose one of {', '.join(BACKENDS)}")
    if backend == "local":
        check_shape(*parse_grid(grid, 1), 1)
        place = serial_grid()
    else:
        ranks = mpi_world().size
        shards, model_shards = parse_grid(grid, ranks)
        check_shape(shards, model_shards, ranks)
        place = mpi_grid(shards, model_shards)
    with place as ranks:
        return fit(
            data, estimator, ranks, cut=cut, max_iter=max_iter, tol=tol, init=init, seed=seed,
            weights=weights, impossible=impossible, local=rows == "local", callback=callback,
        )  # fmt: skip


def check_options(estimator, max_iter, tol, starts, impossible, rows) -> None:
    """Raise ModelError for an option that cannot be used."""
    if not isinstance(estimator, Node):
        raise ModelError(f"estimator: {estimator!r} is not a model")
    if isinstance(max_iter, bool) or not isinstance(max_iter, (int, np.integer)) or max_iter < 0:
        raise ModelError(f"max_iter = {max_iter!r} is not a number >= 0")
    if tol is not None and not (isinstance(tol, (int, float)) and tol >= 0):
        raise ModelError(f"tol = {tol!r} is not a number >= 0, nor None")
    if starts != 1:
        raise ModelError(f"starts = {starts!r}: one start is made; run with other seeds for more")
    if impossible not in ("error", "skip"):
        raise ModelError(f'impossible = {impossible!r}: choose "error" or "skip"')
    if rows not in ("replicated", "local"):
        raise ModelError(f'rows = {rows!r}: choose "replicated" or "local"')


def fit(
    data, estimator: Node, grid: Grid, *, cut=None, max_iter=100, tol=1e-6, init="auto", seed=0, weights=None,
    impossible="error", local=False, callback: Callback | None = None, reduce_statistics: bool = True,
) -> Result:  # fmt: skip
    """`optimize` on a grid that exists. Collective. `reduce_statistics=False` is the tests' negative control."""
    clock = Clock()
    if cut is not None:
        cut = check_cut(estimator, cut)
    elif grid.model.size > 1:
        paths = cut_paths(estimator)
        if not paths:
            raise ModelError(f"grid {grid.shape[0]} x {grid.shape[1]}: no node of this model can be cut; use M = 1")
        cut = paths[0]
    loaded = load(data, estimator, grid, local=local, weights=weights, warn=True)
    clock.lap("read")
    check_rows(loaded)
    executor = Executor(loaded.model, loaded.rows, grid, cut, loaded.weights)
    start(executor, loaded.total, init, seed)
    clock.lap("initialise")
    judge = Judge(tol, loaded.effective)
    n_iter, status, found = 0, None, Pass()
    while status is None:
        found = executor.e_step()
        clock.add(found.seconds)
        if reduce_statistics:
            executor.reduce_stats()
        clock.lap("data_axis")
        problem = executor.maximize() if n_iter < max_iter else None
        clock.lap("m_step")
        header = agreed_header(executor, found, problem)
        clock.lap("wait")
        if header.impossible and impossible == "error":
            refuse_impossible(grid, found, header.impossible)
        status = judge.add(header.log_likelihood, header.log_prior)
        if callback is not None:
            per_row = header.log_likelihood / max(loaded.effective, 1e-300)
            callback(Iteration(n_iter, header.log_likelihood, per_row, judge.change, clock.total()))
        if status is None and header.failures:
            raise_failure(grid, problem)
        if status is None and n_iter >= max_iter:
            status = "max_iter"
        if status is None:
            executor.agree_on_shared(executor.new)
            executor.accept()
            n_iter += 1
    if status == "failed":
        raise NumericalError(f"the log likelihood is {judge.history[-1]} after {n_iter} iterations")
    theta = executor.whole_theta()
    bank = compile_tree(loaded.model, None, True)
    model = fitted(bank, theta)
    clock.lap("output")
    return Result(
        model, judge.history[-1], judge.history, n_iter, status == "converged", status, loaded.total,
        loaded.effective, sum(b.num_free() for b in bank.walk()), grid.shape, executor.cut, header.impossible,
        dead_components(executor), clock.seconds, executor.stats.nbytes,
    )  # fmt: skip


class Clock:
    """Seconds by phase; what no phase claims is "other"."""

    def __init__(self):
        self.begun = self.last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def add(self, seconds: dict[str, float]) -> None:
        """Claim time that was measured inside, and let the rest since the last lap be "other"."""
        now = time.perf_counter()
        rest = now - self.last - sum(seconds.values())
        for phase, value in (seconds | {"other": rest}).items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + value
        self.last = now

    def lap(self, phase: str) -> None:
        """Claim the time since the last lap."""
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self.last
        self.last = now

    def total(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.begun


class Header:
    """What all ranks agree on once an iteration: one small sum over the whole grid."""

    def __init__(self, values: np.ndarray):
        self.log_likelihood, self.log_prior = float(values[0]), float(values[1])
        self.impossible, self.failures = int(values[2]), int(values[3])


def agreed_header(executor: Executor, found: Pass, problem: NumericalError | None) -> Header:
    """The header of this iteration. Collective over the whole grid; no rank ever decides alone."""
    d, m = executor.grid.coords
    values = np.zeros(4)
    if m == 0:
        values[0], values[2] = found.log_likelihood, found.impossible
    if d == 0:
        values[1] = executor.log_prior()
    values[3] = problem is not None
    executor.grid.world.allreduce(values)
    return Header(values)


def refuse_impossible(grid: Grid, found: Pass, count: int) -> None:
    """Raise DataError on all ranks, with the first row of probability zero. Collective."""
    first = np.array([found.first_impossible], dtype=np.int64)
    grid.world.allreduce(first, "min")
    raise DataError(
        f"row {int(first[0])} (the first is 0) has probability zero under every component, as {count} "
        f"row{'s' * (count != 1)} in all; impossible=\"skip\" leaves them out"
    )


def raise_failure(grid: Grid, problem: NumericalError | None) -> None:
    """Raise the lowest rank's NumericalError on all ranks. Collective."""
    texts = [t for t in grid.world.allgather(None if problem is None else str(problem)) if t is not None]
    raise NumericalError(texts[0])


def check_rows(loaded: Loaded) -> None:
    """Refuse data with nothing to fit, or fewer rows than components."""
    if loaded.effective <= 0:
        raise DataError(f"there is nothing to fit: {loaded.total} rows, none with a weight and anything observed")
    for node in loaded.model.walk():
        if isinstance(node, Mixture) and node.num_components > loaded.total:
            raise DataError(f"{node.num_components} components, but only {loaded.total} rows")


def dead_components(executor: Executor) -> list[str]:
    """Paths of components that the last pass gave no weight, at most 100. Collective over the model axis."""
    stats = executor.layout.stat_views(executor.stats)
    dead = []
    for bank in executor.bank.walk():
        if isinstance(bank, MixtureBank):
            count = stats[f"{bank.path}#components"]["count"]
            at = f"{bank.path}/" if bank.path else ""
            for row in np.flatnonzero(count == 0)[:100]:
                member = f" of member {bank.members[bank.unit_member[row]]}" if bank.total_members > 1 else ""
                dead.append(f"{at}component_{bank.unit_number[row]}{member}")
    everyone = executor.grid.model.allgather(dead)
    found = list(dict.fromkeys(path for part in everyone for path in part))[:100]
    if found and executor.grid.world.rank == 0:
        warnings.warn(f"components without any weight: {', '.join(found)}", stacklevel=3)
    return found


