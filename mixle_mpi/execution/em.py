"""EM on a grid of ranks: from data and an estimator to a result."""

from __future__ import annotations

import warnings

import numpy as np

from mixle_mpi.contract.errors import DataError, ModelError, NumericalError
from mixle_mpi.contract.node import Node
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.executor import Executor, compile_tree
from mixle_mpi.execution.fingerprint import fingerprint
from mixle_mpi.execution.fitted import fitted
from mixle_mpi.execution.grid import Grid, check_shape, mpi_grid, mpi_world, serial_grid
from mixle_mpi.execution.initialise import start
from mixle_mpi.execution.load import Loaded, load, parse_grid
from mixle_mpi.execution.loop import Callback, Ending, State, Watch, iterate
from mixle_mpi.execution.result import Judge, Result
from mixle_mpi.execution.shard import check_cut, cut_paths
from mixle_mpi.execution.stopping import EVERY, Checkpoints, seconds_of
from mixle_mpi.execution.ties import count_free
from mixle_mpi.execution.warm import warm
from mixle_mpi.models.mixture import Mixture, MixtureBank

BACKENDS = ("local", "mpi")


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
    checkpoint=None,
    checkpoint_every: float = EVERY,
    resume: bool = False,
    max_time=None,
) -> Result:
    """Fit a model by EM. Collective with backend "mpi".

    Parameters
    ----------
    data : a path, a list of paths, a pattern or a directory (.csv, .csv.gz, .npy, .npz, .parquet), an array, a list
        of rows (tuples or dicts), a dict of columns, a pandas or Arrow table
    estimator : Node
        Parameters that are given are where EM starts; when all are, EM starts there exactly.
    backend : "local" for this process, "mpi" for all ranks
    grid : "auto", "DxM" or (D, M): D data shards of M model shards each
    cut : path of the nodes whose units are dealt over the model shards, as in
        "component_*/factor_0"; by default the first node in tree order that can be cut
    max_iter : number of M-steps at most
    tol : stop when the log likelihood changes by less than this per observation; None never stops
    starts : how many starts are made, from `seed`, `seed` + 1, ...; the best is returned. With init "auto"
        every second one is random
    init : "kmeans++" on the numeric columns, "random", or "auto": the first where there are any
    seed : int; the start depends on it and on nothing else
    weights : (n,) sample weights >= 0, or the name of a column with them; weight 2 is the row twice
    impossible : "error" refuses rows of probability zero under every component, "skip" leaves them out
    rows : "replicated" when data in memory are the same on every rank, "local" when each brings its own
    callback : called after each pass on every rank, with an `Iteration`
    checkpoint : directory of `state.npz`; None writes none. A file STOP in it ends the fit after the iteration
    checkpoint_every : minutes between checkpoints; 0 is after each iteration
    resume : go on from the checkpoint, where there is one, to the result of the undisturbed fit
    max_time : end in time for this limit, with a checkpoint and the status "stopped"; minutes, or "HH:MM:SS"

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
        size = mpi_world().size
        shards, model_shards = parse_grid(grid, size)
        check_shape(shards, model_shards, size)
        place = mpi_grid(shards, model_shards)
    watch = watch_of(checkpoint, checkpoint_every, resume, max_time)
    with place as ranks:
        return fit(
            data, estimator, ranks, cut=cut, max_iter=max_iter, tol=tol, starts=starts, init=init, seed=seed,
            weights=weights, impossible=impossible, local=rows == "local", callback=callback, watch=watch,
        )  # fmt: skip


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


def watch_of(checkpoint, every, resume, max_time) -> Checkpoints | None:
    """The watch that `optimize` was asked for. Raises ModelError."""
    if checkpoint is None:
        if resume or max_time is not None:
            raise ModelError("resume and max_time need checkpoint, the directory of the checkpoints")
        return None
    if isinstance(every, bool) or not (isinstance(every, (int, float)) and every >= 0):
        raise ModelError(f"checkpoint_every = {every!r} is not a number of minutes >= 0")
    seconds = None if max_time is None else seconds_of(max_time)
    if max_time is not None and seconds is None:
        raise ModelError(f"max_time = {max_time!r} is neither minutes nor HH:MM:SS")
    return Checkpoints(checkpoint, every=every, resume=resume, seconds=seconds)


def fit(
    data, estimator: Node, grid: Grid, *, cut=None, max_iter=100, tol=1e-6, starts=1, init="auto", seed=0, weights=None,
    impossible="error", local=False, callback: Callback | None = None, watch: Watch | None = None,
    clock: Clock | None = None, reduce_statistics: bool = True,
) -> Result:  # fmt: skip
    """`optimize` on a grid that exists. Collective. `reduce_statistics=False` is the tests' negative control."""
    clock = Clock() if clock is None else clock
    clock.watch(grid)
    watch = watch or Watch()
    cut = chosen_cut(estimator, grid, cut)
    loaded = load(data, estimator, grid, local=local, weights=weights, warn=True)
    check_rows(loaded)
    clock.lap("read")
    executor = Executor(loaded.model, loaded.rows, grid, cut, loaded.weights)
    warm(executor)
    clock.lap("compile")
    settings = run_settings(seed, init, starts, tol, max_iter)
    resumed = watch.resume(executor, lambda: fingerprint(estimator, loaded, settings))
    state, best_theta = State(), None
    if resumed is not None:
        state, executor.theta[:], best_theta = resumed
    ending = Ending("failed", 0)
    while state.start < starts:
        judge = Judge(tol, loaded.effective, state.history, state.objective)
        if resumed is None:
            start(executor, loaded.total, init, seed, state.start)
        resumed = None
        clock.lap("initialise")
        ending = iterate(
            executor, state, judge, clock, max_iter=max_iter, impossible=impossible, callback=callback, watch=watch,
            best_theta=best_theta, reduce_statistics=reduce_statistics,
        )  # fmt: skip
        if ending.status not in ("stopped", "failed") and state.start == starts - 1:
            watch.save(executor, state.before_last(), best_theta, "ended")
            clock.lap("checkpoint")
        record = record_of(state, ending, dead_components(executor))
        if is_better(record, state):
            state.best, best_theta = state.start, executor.theta.copy()
        state.ended.append(record)
        if ending.status == "stopped":
            break
        state = State(state.start + 1, ended=state.ended, best=state.best)
    if best_theta is None or state.best is None:
        raise NumericalError(state.ended[-1]["message"])
    best = state.ended[state.best]
    executor.theta[:] = best_theta
    bank = compile_tree(loaded.model, None, True)
    model = fitted(bank, executor.whole_theta())
    clock.lap("output")
    clock.settle()
    status = "stopped" if ending.status == "stopped" else best["status"]
    if grid.world.rank == 0:
        warn_of(best, tol)
    return Result(
        model, best["history"][-1], best["history"], best["n_iter"], status == "converged", status, loaded.total,
        loaded.effective, count_free(bank), grid.shape, executor.cut, best["impossible"], best["dead"], state.ended,
        state.best, clock.seconds(), clock.calls, executor.stats.nbytes, executor.counts, clock.payload(),
    )  # fmt: skip


def run_settings(seed: int, init: str, starts: int, tol: float | None, max_iter: int) -> dict:
    """The settings that a resumed run must share. With several starts each has ended by `tol` and `max_iter`."""
    settings = {"seed": seed, "init": init, "starts": starts}
    return settings | ({"tol": tol, "max_iter": max_iter} if starts > 1 else {})


def chosen_cut(estimator: Node, grid: Grid, cut: str | None) -> str | None:
    """The path to cut: the one that was asked for, else the first in tree order. Raises ModelError."""
    if cut is not None:
        return check_cut(estimator, cut)
    if grid.model.size == 1:
        return None
    paths = cut_paths(estimator)
    if not paths:
        raise ModelError(f"grid {grid.shape[0]} x {grid.shape[1]}: no node of this model can be cut; use M = 1")
    return paths[0]


def record_of(state: State, ending: Ending, dead: list[str]) -> dict:
    """What is kept of a start that ended."""
    return {
        "start": state.start, "status": ending.status, "message": ending.message, "n_iter": state.n_iter,
        "history": list(state.history), "impossible": ending.impossible, "dead": dead,
    }  # fmt: skip


def is_better(record: dict, state: State) -> bool:
    """Whether a start beats the best before; one that failed never does, nor one whose likelihood fell if it can."""
    def merit(of: dict) -> tuple[bool, float]:
        return of["status"] != "decreased", of["history"][-1]

    if record["status"] == "failed":
        return False
    return state.best is None or merit(record) > merit(state.ended[state.best])


def warn_of(record: dict, tol: float | None) -> None:
    """Warn of what a user must not overlook in the start that is returned."""
    if record["status"] == "max_iter" and tol is not None:
        warnings.warn(f"not converged after {record['n_iter']} iterations; raise max_iter or tol", stacklevel=3)
    if record["dead"]:
        warnings.warn(f"components without any weight: {', '.join(record['dead'])}", stacklevel=3)


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
    return list(dict.fromkeys(path for part in everyone for path in part))[:100]


