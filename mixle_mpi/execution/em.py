"""EM on a grid of ranks: from data and an estimator to a result."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import DataError, NumericalError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.data.table import on_first
from mixle_mpi.execution.asked import Asked, check_options
from mixle_mpi.execution.axis import Alone, Axis
from mixle_mpi.execution.backends import backend_of
from mixle_mpi.execution.choose import Choice, choose, chosen_cut, free_of, resources_of
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.executor import Counts, Executor
from mixle_mpi.execution.fingerprint import fingerprint
from mixle_mpi.execution.fitted import fitted, state_of
from mixle_mpi.execution.grid import Grid
from mixle_mpi.execution.initialise import start
from mixle_mpi.execution.load import Loaded, deal, load, read
from mixle_mpi.execution.loop import Callback, Ending, State, Watch, iterate
from mixle_mpi.execution.memory_limit import KERNEL_BYTES, resident_bytes
from mixle_mpi.execution.part import on_grid
from mixle_mpi.execution.result import Judge, Result
from mixle_mpi.execution.shard import compile_tree, layout_of
from mixle_mpi.execution.stopping import EVERY, Checkpoints
from mixle_mpi.execution.ties import count_free
from mixle_mpi.execution.tune import tune as fastest_of
from mixle_mpi.execution.warm import warm
from mixle_mpi.execution.whole import deal_rows, is_large, whole_theta
from mixle_mpi.models.mixture import Mixture, MixtureBank
from mixle_mpi.models.sequence import Steps
from mixle_mpi.planning.model_parallel import ModelParallelEstimator


def optimize(
    data,
    estimator: Node | ModelParallelEstimator,
    *,
    backend: str = "local",
    workers: int | None = None,
    grid="auto",
    cut: str | None = None,
    tune: bool = False,
    max_iter: int = 100,
    tol: float | None = 1e-6,
    starts: int = 1,
    init: str = "auto",
    seed: int = 0,
    weights=None,
    sequence: str | None = None,
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
    data : a path, a list of paths, a pattern or a directory (.csv, .csv.gz, .npy, .npz, .parquet, .jsonl, .jsonl.gz),
        an array, a list of rows (tuples or dicts), a dict of columns, a pandas or Arrow table; with backend "spark"
        also a DataFrame or RDD
    estimator : Node
        Parameters that are given are where EM starts; when all are, EM starts there exactly. A
        `ModelParallelEstimator` asks for its number of model shards: of all ranks, or of threads of this process.
    backend : "local" for this process, "mpi" for all ranks, "mp" for processes that are started on this machine,
        "spark" for the partitions of a Spark DataFrame or RDD, or of other data
    workers : how many processes "mp" starts; by default what `grid` asks for, else the CPUs of this process
    grid : "DxM" or (D, M): D data shards of M model shards each; or "auto", the fastest that the planner finds, which
        may leave ranks idle
    cut : path of the nodes whose units are dealt over the model shards, as in "component_*/factor_0"; by default
        the planner's with grid "auto", else the first node in tree order that can be cut
    tune : measure the planner's best grids, a second each, and take the fastest
    max_iter : number of M-steps at most
    tol : stop when the log likelihood changes by less than this per observation; None never stops
    starts : how many starts are made, from `seed`, `seed` + 1, ...; the best is returned. With init "auto"
        every second one is random
    init : "kmeans++" on the numeric columns, "random", or "auto": the first where there are any
    seed : int; the start depends on it and on nothing else
    weights : (n,) sample weights >= 0, or the name of a column with them; weight 2 is the row twice
    sequence : name of the column that says of which sequence a row is, where data have one row a step; the rows of a
        sequence follow each other, and columns that the model reads beside sequences are constant in each
    impossible : "error" refuses rows of probability zero under every component, "skip" leaves them out
    rows : "replicated" when data in memory are the same on every rank, "local" when each brings its own
    callback : called after each pass with an `Iteration`: on every rank, with "mp" and "spark" in this process
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
    WorkerLost
        With backend "mp", when a process dies; the message has its rank and the signal.

    Source
    ------
    Dempster, Laird, Rubin (1977), J. R. Statist. Soc. B 39, 1-38.
    """
    model_shards = estimator.num_workers if isinstance(estimator, ModelParallelEstimator) else None
    model = estimator.inner if isinstance(estimator, ModelParallelEstimator) else estimator
    check_options(model, max_iter, tol, starts, impossible, rows)
    asked = Asked(
        data, model, model_shards, grid, workers, rows == "local", callback,
        (checkpoint, checkpoint_every, resume, max_time),
        {"cut": cut, "tune": tune, "max_iter": max_iter, "tol": tol, "starts": starts, "init": init, "seed": seed,
         "weights": weights, "sequence": sequence, "impossible": impossible},
    )  # fmt: skip
    return backend_of(backend)(asked)


def fit(
    data, estimator: Node, grid: Grid, *, cut=None, weights=None, sequence=None, local=False,
    clock: Clock | None = None, **options,
) -> Result:  # fmt: skip
    """`optimize` on a grid that exists, every border even. Collective; the other options are those of `fit_loaded`."""
    clock = Clock() if clock is None else clock
    clock.watch(grid)
    cut = chosen_cut(estimator, grid.shape, cut)
    loaded = load(data, estimator, grid, local=local, weights=weights, sequence=sequence, warn=True)
    clock.lap("read")
    return fit_loaded(loaded, estimator, grid, clock, cut=cut, **options)


def fit_loaded(
    loaded: Loaded, estimator: Node, grid: Grid, clock: Clock, *, cut: str | None = None, bounds=None, max_iter=100,
    tol=1e-6, starts=1, init="auto", seed=0, impossible="error", callback: Callback | None = None,
    watch: Watch | None = None, reduce_statistics: bool = True, executor: Executor | None = None,
) -> Result:  # fmt: skip
    """`optimize` on a grid whose ranks have their rows. Collective.

    `executor` is one that is made already, for rows that are elsewhere.
    `bounds` are the borders of the units of the model shards, by default even ones; `reduce_statistics=False` is the
    tests' negative control.
    """
    watch = watch or Watch()
    check_rows(loaded)
    clock.watch(grid)
    executor = executor or Executor(loaded.model, loaded.rows, grid, cut, loaded.weights, bounds)
    warm(executor)
    clock.lap("compile")
    settings = run_settings(seed, init, starts, tol, max_iter)
    resumed = watch.resume(executor, lambda: fingerprint(estimator, loaded, settings))
    state, best_theta = State(), None
    restarts = any(node.restarts for node in loaded.model.walk())
    if resumed is not None:
        state, executor.theta[:], best_theta = resumed
        executor.publish()
        executor.start_rows()
        deal_rows(executor, watch.rows)
    ending, statistics_bytes = Ending("failed", 0), executor.stats.nbytes
    while state.start < starts:
        judge = Judge(tol, loaded.effective, state.history, state.objective, restarts)
        if resumed is None:
            start(executor, loaded.total, init, seed, state.start)
        resumed = None
        clock.lap("initialise")
        ending = iterate(
            executor, state, judge, clock, max_iter=max_iter, impossible=impossible, callback=callback, watch=watch,
            best_theta=best_theta, reduce_statistics=reduce_statistics,
        )  # fmt: skip
        last, record = state.start == starts - 1, record_of(state, ending, dead_components(executor))
        if last:  # what follows is of the size of the whole model, on the first rank
            executor.release()
        if ending.status not in ("stopped", "failed") and last:
            watch.save(executor, state.before_last(), best_theta, "ended")
            clock.lap("checkpoint")
        if is_better(record, state):
            state.best, best_theta = state.start, executor.theta if last else executor.theta.copy()
        state.ended.append(record)
        if ending.status == "stopped":
            break
        state = State(state.start + 1, ended=state.ended, best=state.best)
    if best_theta is None or state.best is None:
        raise NumericalError(state.ended[-1]["message"])
    best = state.ended[state.best]
    executor.theta[:] = best_theta
    bank = compile_tree(loaded.model, None, True)
    executor.release()
    theta = whole_theta(executor, everyone=not is_large(executor.model, executor.cut))
    model: Any = None if theta is None else fitted(bank, theta)
    clock.lap("output")
    clock.settle()
    status = "stopped" if ending.status == "stopped" else best["status"]
    if grid.world.rank == 0:
        warn_of(best, tol)
    return Result(
        model, best["history"][-1], best["history"], best["n_iter"], status == "converged", status, loaded.total,
        loaded.effective, count_free(bank), grid.shape, executor.cut, best["impossible"], best["dead"], state.ended,
        state.best, clock.seconds(), clock.calls, statistics_bytes, executor.counts, clock.payload(),
    )  # fmt: skip


def fit_on_ranks(
    data, estimator: Node, world: Axis, *, shape: tuple[int, int] | None = None, ready: Grid | None = None, cut=None,
    tune: bool = False, weights=None, sequence=None, local=False, watch: Watch | None = None,
    clock: Clock | None = None, told: Callable[[Choice], None] = lambda choice: None, init="auto", seed=0,
    impossible="error", **options,
) -> Result:  # fmt: skip
    """`optimize` on all ranks of a group, of which the grid may leave some idle; the result is the same on each.

    Collective; the other options are those of `fit_loaded`.

    Parameters
    ----------
    shape : D and M of the grid, None to plan it
    ready : the grid, where it exists
    told : called with the choice as soon as it is made, on every rank
    """
    clock = Clock() if clock is None else clock
    everyone = Grid(world, Alone(), Alone())
    clock.watch(everyone)
    found = read(data, estimator, world, local=local, weights=weights, sequence=sequence, warn=True)
    clock.lap("read")
    kept = watch.kept(world) if isinstance(watch, Checkpoints) else None
    clock.resident = resident_bytes()
    taken = max(world.allgather(clock.resident)) + KERNEL_BYTES
    resources = free_of(resources_of(world), taken)
    choice = choose(found.model, found.total, world, resources, shape=shape, cut=cut, kept=kept, taken=taken)
    if tune:
        choice = fastest_of(found, world, choice, resources, init, seed, impossible)
    told(choice)
    clock.lap("initialise")
    loaded = deal(found, world, choice.coords, choice.shape[0], choice.row_bounds)
    clock.lap("read")
    if isinstance(watch, Checkpoints):
        watch.grid = choice.record()
    result = on_grid(world, choice, lambda grid: fit_loaded(
        loaded, estimator, grid, clock, cut=choice.cut, bounds=choice.bounds, watch=watch, init=init, seed=seed,
        impossible=impossible, **options,
    ), ready, Watch().relay if watch is None else watch.relay)  # fmt: skip
    clock.watch(everyone)
    if choice.idle:
        result = shared(world, result, loaded, clock)
    if result is None:
        raise AssertionError("a rank without a result is idle")
    result.plan = choice.plan
    return result


def shared(world: Axis, result: Result | None, loaded: Loaded, clock: Clock) -> Result:
    """The result, on idle ranks as well: there with their own times, nothing counted, and without a model that is too
    large for a rank. Collective."""
    fields = on_first(world, lambda: {name: value for name, value in vars(result).items() if name != "model"})
    model: Any = None
    bank = compile_tree(loaded.model, None, True)
    if not is_large(loaded.model, fields["cut"]):
        theta = np.empty(layout_of(bank).num_params)
        if result is not None:
            state = state_of(result.model)
            if state is not None:
                theta[:] = state.theta
        world.bcast(theta)
        model = fitted(bank, theta)
    if result is not None:
        return result
    own = {"seconds": clock.seconds(), "calls": clock.calls, "counts": Counts(), "payload": clock.payload()}
    return Result(model, **(fields | own | {"statistics_bytes": 0}))


def run_settings(seed: int, init: str, starts: int, tol: float | None, max_iter: int) -> dict:
    """The settings that a resumed run must share. With several starts each has ended by `tol` and `max_iter`."""
    settings = {"seed": seed, "init": init, "starts": starts}
    return settings | ({"tol": tol, "max_iter": max_iter} if starts > 1 else {})


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
        if isinstance(node, Mixture):
            n, what = loaded.total, "rows"
            leaf = next((n for n in node.walk() if isinstance(n, (Family, Steps))), None)
            if isinstance(leaf, Family) and leaf.sequence:
                n, what = leaf.encoding.observed + leaf.encoding.missing, "steps"
            if node.num_components > n:
                raise DataError(f"{node.num_components} components, but only {n} {what}")


def dead_components(executor: Executor) -> list[str]:
    """Paths of components that the last pass gave no weight, at most 100. Collective over the whole grid."""
    stats = executor.layout.stat_views(executor.stats)
    dead = []
    for bank in executor.bank.walk():
        if isinstance(bank, MixtureBank):
            rows = executor.own_rows(f"{bank.path}#components")
            count = stats[f"{bank.path}#components"]["count"][rows]
            at = f"{bank.path}/" if bank.path else ""
            for row in rows[count == 0][:100]:
                member = f" of member {bank.members[bank.unit_member[row]]}" if bank.total_members > 1 else ""
                dead.append(f"{at}component_{bank.unit_number[row]}{member}")
    everyone = executor.grid.data.allgather(dead)
    over_shards = executor.grid.model.allgather([path for part in everyone for path in part])
    return list(dict.fromkeys(path for part in over_shards for path in part))[:100]
