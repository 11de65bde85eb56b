"""The EM iteration: one pass, one reduction of statistics, one M-step, one small agreement of all ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mixle_mpi.contract.errors import DataError, NumericalError
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.executor import Executor, Pass
from mixle_mpi.execution.grid import Grid
from mixle_mpi.execution.result import Iteration, Judge

Callback = Callable[[Iteration], None]

ABANDON = 1 << 30  # a wish to stop of so much, more than there are ranks, ends the fit without a checkpoint


class Abandoned(Exception):
    """The fit has failed on other ranks, which say why: these end with them."""


@dataclass
class State:
    """Where a fit is between two iterations: what a checkpoint holds, but for the parameters.

    `history` and `objective` of the start that runs, whose number is `start`; `ended` are the records of
    the starts before, and `best` the number of the best of them.
    """

    start: int = 0
    n_iter: int = 0
    history: list[float] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    ended: list[dict] = field(default_factory=list)
    best: int | None = None

    def before_last(self) -> State:
        """The state before the last pass: to repeat it with the same parameters is to go on from the end."""
        return State(self.start, self.n_iter, self.history[:-1], self.objective[:-1], list(self.ended), self.best)


@dataclass
class Resumed:
    """What a fit goes on from: records of the starts that ended, the number of the best of them, and its parameters in
    the layout of the executor's local tree."""

    ended: list[dict]
    best: int | None
    best_theta: np.ndarray | None


class Watch:
    """What may end or save a fit between iterations. This one never does.

    A rank says in `wishes` what it has seen; wishes travel in the header that all ranks sum, so that
    all act on the same iteration.
    """

    def wishes(self, n_iter: int) -> tuple[int, bool]:
        """Whether this rank wants the fit to stop, and whether it wants a checkpoint, after this iteration.

        `ABANDON` in place of True wants it to end at once.
        """
        return False, False

    def relay(self) -> None:
        """What a rank outside of the grid does now and then, whose wishes are in no header."""

    def save(
        self, executor: Executor, state: State, best_theta: np.ndarray | None, occasion: str = "between"
    ) -> None:
        """Write a checkpoint of the parameters of `executor` and the state. Collective.

        `occasion` is "between" two iterations, "stopped" for the last one of a fit that ends early, "ended" for
        that of one which came to its end.
        """

    def resume(self, executor: Executor, run: Callable[[], dict]) -> Resumed | None:
        """What there is to go on from; None to begin. Collective. `run` tells what this is a run of."""
        return None

    def take_up(self, executor: Executor, state: State) -> bool:
        """Go on with the start of a new state: its state, parameters and rows are those of the checkpoint.

        Whether it was begun in what was resumed. Collective.
        """
        return False


@dataclass
class Header:
    """What all ranks agree on once an iteration: one small sum over the whole grid."""

    log_likelihood: float
    log_prior: float
    impossible: int
    failures: int
    stop: int
    save: int


def agreed_header(
    executor: Executor, found: Pass, problem: NumericalError | None, wishes: tuple[int, bool]
) -> Header:
    """The header of this iteration. Collective over the whole grid; no rank ever decides alone."""
    d, m = executor.grid.coords
    values = np.zeros(6)
    if m == 0:
        values[0], values[2] = found.log_likelihood, found.impossible
    if d == 0:
        values[1] = executor.log_prior()
    values[3:] = problem is not None, *wishes
    executor.grid.world.allreduce(values)
    return Header(float(values[0]), float(values[1]), *(int(v) for v in values[2:]))


@dataclass
class Ending:
    """How one start ended. `status` as in `Result`; `impossible` rows left out."""

    status: str
    impossible: int
    message: str = ""


def iterate(
    executor: Executor,
    state: State,
    judge: Judge,
    clock: Clock,
    *,
    max_iter: int,
    impossible: str = "error",
    callback: Callback | None = None,
    watch: Watch | None = None,
    best_theta: np.ndarray | None = None,
    reduce_statistics: bool = True,
) -> Ending:
    """Iterate until the judge, `max_iter` or the watch ends it. Collective.

    The parameters of the last entry of the history are then in `executor.theta`.

    Raises
    ------
    DataError
        On all ranks, for rows of probability zero, unless `impossible` is "skip".
    Abandoned
        On all ranks, when one of them was told that the fit fails elsewhere.
    """
    watch = watch or Watch()
    grid = executor.grid
    while True:
        found = executor.e_step()
        clock.add(found)
        if reduce_statistics:
            executor.reduce_stats()
        clock.lap("data_axis")
        problem = None
        if state.n_iter < max_iter:
            if executor.search():
                clock.lap("search")
            problem = executor.maximize()
            clock.lap("m_step")
        header = agreed_header(executor, found, problem, watch.wishes(state.n_iter))
        clock.lap("wait")
        if header.stop >= ABANDON:
            raise Abandoned
        if header.impossible and impossible == "error":
            refuse_impossible(grid, found, header.impossible)
        status = judge.add(header.log_likelihood, header.log_prior)
        if callback is not None:
            per_row = header.log_likelihood / max(judge.effective, 1e-300)
            callback(Iteration(state.n_iter, header.log_likelihood, per_row, judge.change, clock.total(), state.start))
            clock.lap("output")
        if status == "failed":
            text = f"the log likelihood is {judge.history[-1]} after {state.n_iter} iterations"
            return Ending("failed", header.impossible, text)
        if status is None and header.failures:
            return Ending("failed", header.impossible, failure(grid, problem))
        if status is None and state.n_iter >= max_iter:
            status = "max_iter"
        if status is None and header.stop:
            status = "stopped"
        if status is None:
            executor.accept()
            state.n_iter += 1
            clock.lap("data_axis")
        if status == "stopped" or (status is None and header.save):
            if status == "stopped":  # go on from the M-step that was made already
                executor.accept()
                state.n_iter += 1
            watch.save(executor, state, best_theta, status or "between")
            clock.lap("checkpoint")
            if status == "stopped":
                executor.exchange()
                state.n_iter -= 1
        if status is not None:
            return Ending(status, header.impossible)


def refuse_impossible(grid: Grid, found: Pass, count: int) -> None:
    """Raise DataError on all ranks, with the first row of probability zero. Collective."""
    first = np.array([found.first_impossible], dtype=np.int64)
    grid.world.allreduce(first, "min")
    raise DataError(
        f"row {int(first[0])} (the first is 0) has probability zero under every component, as {count} "
        f"row{'s' * (count != 1)} in all; impossible=\"skip\" leaves them out"
    )


def failure(grid: Grid, problem: NumericalError | None) -> str:
    """The lowest rank's problem. Collective."""
    return next(t for t in grid.world.allgather(None if problem is None else str(problem)) if t is not None)
