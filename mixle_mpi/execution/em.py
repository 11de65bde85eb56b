"""EM on a grid of ranks: from data and an estimator to a result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import DataError, NumericalError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.data.table import on_first
from mixle_mpi.execution.asked import Asked, check_options
from mixle_mpi.execution.axis import Alone, Axis
from mixle_mpi.execution.backends import backend_of
from mixle_mpi.execution.beside import joined, on_groups, with_others
from mixle_mpi.execution.choose import Choice, choose, chosen_cut, free_of, given_resources, resources_of
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.executor import Counts, Executor
from mixle_mpi.execution.fingerprint import fingerprint
from mixle_mpi.execution.fitted import fitted, state_of
from mixle_mpi.execution.grid import Grid
from mixle_mpi.execution.load import Loaded, deal_to, load, read
from mixle_mpi.execution.loop import Callback, Watch
from mixle_mpi.execution.memory_limit import KERNEL_BYTES, resident_bytes
from mixle_mpi.execution.part import on_grid
from mixle_mpi.execution.result import Result
from mixle_mpi.execution.shard import compile_tree, layout_of
from mixle_mpi.execution.starts import Part, of_start, run_settings, run_starts
from mixle_mpi.execution.stopping import EVERY, Checkpoints
from mixle_mpi.execution.ties import count_free
from mixle_mpi.execution.tune import tune as fastest_of
from mixle_mpi.execution.warm import warm
from mixle_mpi.execution.whole import is_large
from mixle_mpi.models.mixture import Mixture
from mixle_mpi.models.sequence import Steps
from mixle_mpi.planning.model_parallel import ModelParallelEstimator
from mixle_mpi.planning.resources import Resources


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
    pipelined: bool | None = None,
    callback: Callback | None = None,
    checkpoint=None,
    checkpoint_every: float = EVERY,
    resume: bool = False,
    max_time=None,
    resources: Resources | None = None,
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
    cut : path of the nodes whose units are dealt over the model shards, as in "component_*/factor_0"; with "/**" at its
        end ("**" for the root) what can be cut inside the node's units is cut as well. By default the fastest
    tune : measure the planner's best grids, a second each, and take the fastest
    max_iter : number of M-steps at most
    tol : stop when the log likelihood changes by less than this per observation; None never stops
    starts : how many starts are made, from `seed`, `seed` + 1, ...; the best is returned. With init "auto"
        every second one is random. With backend "mpi" and grid "auto" some ranks may make some starts while others
        make others
    init : "kmeans++" on the numeric columns, "random", or "auto": the first where there are any
    seed : int; the start depends on it and on nothing else
    weights : (n,) sample weights >= 0, or the name of a column with them; weight 2 is the row twice
    sequence : name of the column that says of which sequence a row is, where data have one row a step; the rows of a
        sequence follow each other, and columns that the model reads beside sequences are constant in each
    impossible : "error" refuses rows of probability zero under every component, "skip" leaves them out
    rows : "replicated" when data in memory are the same on every rank, "local" when each brings its own
    pipelined : where the model is cut, score the next tile of rows while one waits for the other model shards; by
        default where the plan says so. The result has the same bits either way
    callback : called after each pass with an `Iteration`: on every rank, with "mp" and "spark" in this process; where
        starts run on several grids side by side, with those of the rank's own grid
    checkpoint : directory of `state.npz`; None writes none. A file STOP in it ends the fit after the iteration
    checkpoint_every : minutes between checkpoints; 0 is after each iteration
    resume : go on from the checkpoint, where there is one, to the result of the undisturbed fit
    max_time : end in time for this limit, with a checkpoint and the status "stopped"; minutes, or "HH:MM:SS"
    resources : the ranks or threads as devices, one each in rank order, by whose throughputs and memory rows and units
        are dealt; what it does not say, and all by default, is measured where there are ranks

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
         "weights": weights, "sequence": sequence, "impossible": impossible, "pipelined": pipelined,
         "resources": resources},
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
    loaded: Loaded, estimator: Node, grid: Grid, clock: Clock, *, starts: int = 1, tol: float | None = 1e-6, **options,
) -> Result:  # fmt: skip
    """`optimize` on a grid whose ranks have their rows. Collective; other options are `fit_part`'s.

    `executor` is one that is made already, for rows that are elsewhere.
    `bounds` are the borders of the units of the model shards, by default even ones; `reduce_statistics=False` is the
    tests' negative control.
    """
    part = fit_part(loaded, estimator, grid, clock, range(starts), starts=starts, tol=tol, **options)
    if part.best is None:
        raise NumericalError(part.ended[-1]["message"])
    return result_of(part, part.theta, loaded, clock, grid.world.rank == 0, grid.shape, options.get("cut"), tol)


def fit_part(
    loaded: Loaded, estimator: Node, grid: Grid, clock: Clock, numbers: Sequence[int], *, starts: int,
    tol: float | None, max_iter=100, cut: str | None = None, bounds=None, init="auto", seed=0, pipelined=True,
    executor: Executor | None = None, **options,
) -> Part:  # fmt: skip
    """Some of so many `starts`, on a grid whose ranks have their rows. Collective; other options are `run_starts`'s."""
    check_rows(loaded)
    clock.watch(grid)
    if executor is None:
        executor = Executor(loaded.model, loaded.rows, grid, cut, loaded.weights, bounds, pipelined)
    if not executor.given():  # starting values come from the rows
        check_components(loaded)
    warm(executor)
    clock.lap("compile")
    settings = run_settings(seed, init, starts, tol, max_iter)
    return run_starts(
        executor, loaded.total, loaded.effective, clock, numbers, run=lambda: fingerprint(estimator, loaded, settings),
        max_iter=max_iter, tol=tol, init=init, seed=seed, **options,
    )  # fmt: skip


def result_of(
    part: Part, theta: np.ndarray | None, loaded: Loaded, clock: Clock, first: bool, shape: tuple[int, int],
    cut: str | None, tol: float | None,
) -> Result:  # fmt: skip
    """The result of starts of which one did not fail, with the parameters `theta` of the whole model; on the `first`
    rank a warning where it needs one."""
    best = of_start(part.ended, part.best)
    if best is None or part.best is None:
        raise AssertionError("the best start has a record")
    bank = compile_tree(loaded.model, None, True)
    model: Any = None if theta is None else fitted(bank, theta)
    clock.lap("output")
    clock.settle()
    status = "stopped" if part.is_stopped else best["status"]
    if first:
        warn_of(best, tol)
    return Result(
        model, best["history"][-1], best["history"], best["n_iter"], status == "converged", status, loaded.total,
        loaded.effective, count_free(bank), shape, cut if shape[1] > 1 else None, best["impossible"], best["dead"],
        part.ended, part.best, clock.seconds(), clock.calls, part.statistics_bytes, part.counts, clock.payload(),
    )  # fmt: skip


def fit_on_ranks(
    data, estimator: Node, world: Axis, *, shape: tuple[int, int] | None = None, ready: Grid | None = None, cut=None,
    tune: bool = False, weights=None, sequence=None, local=False, watch: Watch | None = None,
    clock: Clock | None = None, told: Callable[[Choice], None] = lambda choice: None, starts: int = 1,
    tol: float | None = 1e-6, init="auto", seed=0, impossible="error", pipelined: bool | None = None,
    resources: Resources | None = None, **options,
) -> Result:  # fmt: skip
    """`optimize` on all ranks of a group, of which the grid may leave some idle; with several starts on several grids,
    where they end sooner so. The result is the same on each rank.

    Collective; the other options are those of `fit_loaded`.

    Parameters
    ----------
    shape : D and M of the grid, None to plan it
    ready : the grid, where it exists
    told : called with the choice as soon as it is made, on every rank
    resources : the ranks as devices, where they are given
    """
    clock = Clock() if clock is None else clock
    everyone = Grid(world, Alone(), Alone())
    clock.watch(everyone)
    found = read(data, estimator, world, local=local, weights=weights, sequence=sequence, warn=True)
    clock.lap("read")
    kept, rest = (watch.kept(world), watch.rest(world, starts)) if isinstance(watch, Checkpoints) else (None, None)
    clock.resident = resident_bytes()
    taken = max(world.allgather(clock.resident)) + KERNEL_BYTES
    known, note = (resources_of(world), "") if resources is None else given_resources(world, resources)
    known = free_of(known, taken)
    choice = choose(found.model, found.total, world, known, shape=shape, cut=cut, kept=kept, taken=taken, note=note)
    if tune:
        choice = fastest_of(found, world, choice, known, init, seed, impossible)
    numbers = range(starts) if rest is None else rest
    choice = with_others(choice, found.model, found.total, world, known, numbers, cut=cut, kept=kept)
    told(choice)
    clock.lap("initialise")
    loaded = deal_to(found, world, [(group.coords, group.shape[0], group.row_bounds) for group in choice.groups])
    clock.lap("read")
    if isinstance(watch, Checkpoints):
        watch.grid = choice.record()
    same = {"starts": starts, "tol": tol, "init": init, "seed": seed, "impossible": impossible, **options}
    watch = Watch() if watch is None else watch
    if choice.beside:
        result = fit_beside(loaded, estimator, world, choice, clock, watch, pipelined, same)
    else:
        found_here = on_grid(world, choice, lambda grid: fit_loaded(
            loaded, estimator, grid, clock, cut=choice.cut, bounds=choice.bounds, watch=watch,
            pipelined=choice.pipelined if pipelined is None else pipelined, **same,
        ), ready, watch.relay)  # fmt: skip
        clock.watch(everyone)
        if choice.idle:
            found_here = shared(world, found_here, loaded, clock)
        if found_here is None:
            raise AssertionError("a rank without a result is idle")
        result = found_here
    result.plan, result.groups = choice.plan, choice.groups_data()
    return result


def fit_beside(
    loaded: Loaded, estimator: Node, world: Axis, choice: Choice, clock: Clock, watch: Watch, pipelined: bool | None,
    options: dict[str, Any],
) -> Result:  # fmt: skip
    """The result of starts on several grids side by side, the same on each rank; `options` are `fit_loaded`'s.
    Collective."""
    def work(grid: Grid, own: Choice, together: Watch) -> Part:
        part = fit_part(loaded, estimator, grid, clock, own.starts, cut=own.cut, bounds=own.bounds, watch=together,
                        pipelined=own.pipelined if pipelined is None else pipelined, beside=own.active,
                        **options)  # fmt: skip
        clock.lap("output")
        clock.settle()
        return part

    part = on_groups(world, choice, work, watch)
    clock.watch(Grid(world, Alone(), Alone()))
    clock.lap("idle")
    part, theta = joined(world, choice, part, loaded.model, loaded.effective)
    return result_of(part, theta, loaded, clock, world.rank == 0, choice.shape, choice.cut, options["tol"])


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


def warn_of(record: dict, tol: float | None) -> None:
    """Warn of what a user must not overlook in the start that is returned."""
    if record["status"] == "max_iter" and tol is not None:
        warnings.warn(f"not converged after {record['n_iter']} iterations; raise max_iter or tol", stacklevel=3)
    if record["dead"]:
        warnings.warn(f"components without any weight: {', '.join(record['dead'])}", stacklevel=3)


def check_rows(loaded: Loaded) -> None:
    """Refuse data with nothing to fit."""
    if loaded.effective <= 0:
        raise DataError(f"there is nothing to fit: {loaded.total} rows, none with a weight and anything observed")


def check_components(loaded: Loaded) -> None:
    """Refuse fewer rows than components, as each of them has to start from some."""
    for node in loaded.model.walk():
        if isinstance(node, Mixture):
            n, what = loaded.total, "rows"
            leaf = next((n for n in node.walk() if isinstance(n, (Family, Steps))), None)
            if isinstance(leaf, Family) and leaf.sequence:
                n, what = leaf.encoding.observed + leaf.encoding.missing, "steps"
            if node.num_components > n:
                raise DataError(f"{node.num_components} components, but only {n} {what}")
