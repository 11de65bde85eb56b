"""Rows that are elsewhere, in partitions, each with a task of its own in every pass: what Spark is given to do.

A task has no memory: it gets what it needs, parameters among it, and returns one flat buffer, which is reduced with
those of the other partitions. Where tasks have to agree on something, as readers do, a collective ends the task, which
says what it would have sent; once all have, they begin again with the answers that are known by then.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Layout
from mixle_mpi.contract.node import Node
from mixle_mpi.data.encode import EncodedRows, EncodedSteps, encode, observed_rows
from mixle_mpi.data.slots import WEIGHT
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.exchanged import ExchangedAxis
from mixle_mpi.execution.executor import Counts, Executor, Labels, Pass
from mixle_mpi.execution.grid import Grid, serial_grid
from mixle_mpi.execution.load import Loaded, checked_weights, mass_of, read
from mixle_mpi.execution.searching import advance
from mixle_mpi.execution.warm import ROWS
from mixle_mpi.kernels.compiling import working_time
from mixle_mpi.models.probabilistic_latent_semantic_indexing import ProbabilisticLatentSemanticIndexing

COUNTED = tuple(f.name for f in fields(Counts) if f.name not in ("passes", "tile_rows", "maximized", "searches",
                                                                  "searched"))  # fmt: skip
TIMED = ("score", "accumulate")  # phases of a task, whose longest counts


class Asking(BaseException):
    """A task has come to a collective of which the answer is not known yet: what it would send."""


class ReplayedAxis(ExchangedAxis):
    """A group of tasks that are repeated: collectives have the answers of before, in order; the next one ends the task.

    `answers` are pickled, as whoever gets one may change it.
    """

    def __init__(self, rank: int, size: int, answers: list[bytes]):
        super().__init__()
        self.rank, self.size = rank, size
        self._answers, self._calls = answers, 0

    def _exchange(self, value):
        self._calls += 1
        if self._calls > len(self._answers):
            raise Asking(value)
        return ForkingPickler.loads(self._answers[self._calls - 1])

    def troubles(self, error):
        """Those of the others are taken for none: the driver hears of any, and raises that of the lowest rank."""
        return [error if rank == self.rank else None for rank in range(self.size)]


@dataclass
class Outcome:
    """What tasks came to: what they ask, by rank; a flat buffer; or the error of the lowest rank that had one."""

    asked: dict[int, Any] = field(default_factory=dict)
    found: Any = None
    error: Exception | None = None
    rank: int = 0


def outcome_of(rank: int, size: int, answers: list[bytes], work: Callable[[ReplayedAxis], Any]) -> Outcome:
    """What one task comes to."""
    try:
        return Outcome(found=work(ReplayedAxis(rank, size, answers)), rank=rank)
    except Asking as asking:
        return Outcome(asked={rank: asking.args[0]}, rank=rank)
    except Exception as error:  # to be raised where the fit was asked for
        return Outcome(error=error, rank=rank)


def combined(a: Outcome, b: Outcome, borders: tuple[int, int]) -> Outcome:
    """What two sets of tasks came to. Of buffers the values before the first border are added, those before the
    second are minima, the others maxima."""
    if a.error is not None or b.error is not None:
        return min((o for o in (a, b) if o.error is not None), key=lambda o: o.rank)
    if a.asked or b.asked:
        return Outcome(asked=a.asked | b.asked, rank=min(a.rank, b.rank))
    found = np.empty_like(a.found)
    for ufunc, part in zip((np.add, np.minimum, np.maximum), parts_of(borders)):
        ufunc(a.found[part], b.found[part], out=found[part])
    return Outcome(found=found, rank=min(a.rank, b.rank))


def gathered(outcomes: list[Outcome]) -> Outcome:
    """What tasks came to that find anything but buffers: a list of it, in rank order."""
    error = next((outcome for outcome in outcomes if outcome.error is not None), None)
    asked = {rank: value for outcome in outcomes for rank, value in outcome.asked.items()}
    return error or Outcome(asked, [outcome.found for outcome in outcomes])


def parts_of(borders: tuple[int, int]) -> tuple[slice, slice, slice]:
    """The parts of a buffer that combine by sum, minimum and maximum."""
    return slice(0, borders[0]), slice(*borders), slice(borders[1], None)


def answered(size: int, run: Callable[[list[bytes]], Outcome]) -> tuple[Any, list[bytes]]:
    """What tasks find once all that they ask is answered, and the answers. Raises the error of the lowest rank."""
    answers: list[bytes] = []
    while True:
        outcome = run(answers)
        if outcome.error is not None:
            raise outcome.error
        if not outcome.asked:
            return outcome.found, answers
        values = [outcome.asked[rank] for rank in range(size)]
        answers = [*answers, bytes(ForkingPickler.dumps(values))]


# -- rows ------------------------------------------------------------------------------------------


@dataclass
class Shard:
    """The encoded rows of a partition, with their weights (n,) or None."""

    rows: EncodedRows
    weights: np.ndarray | None


@dataclass
class About:
    """What the driver knows of a partition: the model as bound there, the rows of all, the mass of its own, the first
    few of them, and warnings (text, category)."""

    model: Node
    total: int
    effective: float
    head: EncodedRows
    warned: list[tuple[str, type[Warning]]]


@dataclass(frozen=True)
class Reading:
    """What tasks read: for a model, with sample weights (n,) of all rows or of a column, and a column of sequences."""

    model: Node
    weights: Any
    sequence: str | None


def read_partition(axis: ReplayedAxis, data, reading: Reading) -> tuple[Shard, About]:
    """Encode the rows of a partition; those of all partitions are numbered one after another."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        named = isinstance(reading.weights, str)
        found = read(data, reading.model, axis, local=True, weights=reading.weights if named else None,
                     sequence=reading.sequence, warn=True)  # fmt: skip
        start, stop = found.own
        rows = encode(found.slots, found.bindings, found.model, found.table, start, stop)
    weights = rows.arrays.pop(WEIGHT, None)
    if reading.weights is not None and not named:
        weights = checked_weights(reading.weights, found.total, False, stop - start, start)
    effective = mass_of(rows.n, observed_rows(found.bindings, rows), weights)
    told = [(str(w.message), w.category) for w in warned] if axis.rank == 0 else []
    return Shard(rows, weights), About(found.model, found.total, effective, part_of(rows, 0, min(rows.n, ROWS)), told)


def loaded_of(abouts: list[About]) -> Loaded:
    """What is known of all partitions together; its rows are a few of the first that has any."""
    for text, category in abouts[0].warned:
        warnings.warn(text, category, stacklevel=2)
    head = next((about.head for about in abouts if about.head.n), abouts[0].head)
    effective = float(np.sum([about.effective for about in abouts]))
    return Loaded(abouts[0].model, head, abouts[0].total, effective, None)


def part_of(rows: EncodedRows, start: int, stop: int) -> EncodedRows:
    """The rows `start` to `stop`, counted in the shard, with copies of their arrays."""
    arrays = {key: np.ascontiguousarray(values[..., start:stop]) for key, values in rows.arrays.items()}
    sequences = {}
    for name, steps in rows.sequences.items():
        first, last = steps.offsets[start], steps.offsets[stop]
        own = {key: np.ascontiguousarray(values[..., first:last]) for key, values in steps.arrays.items()}
        sequences[name] = EncodedSteps(steps.offsets[start : stop + 1] - first, own, steps.single)
    return EncodedRows(rows.first + start, stop - start, arrays, rows.single, sequences)


# -- passes ----------------------------------------------------------------------------------------


@dataclass
class Task:
    """What each partition is to do in a pass: `theta` and `packed` are the parameters.

    Either an E-step; or, with `labels`, the statistics of starting labels; or, with `stats`, a pass of searches that
    began with these statistics and have had these `sums` since.
    """

    theta: np.ndarray
    packed: np.ndarray
    labels: Callable[[Executor], Labels] | None = None
    stats: np.ndarray | None = None
    sums: list[np.ndarray] = field(default_factory=list)


def do(task: Task, model: Node, shard: Shard, axis: ReplayedAxis) -> np.ndarray:
    """The buffer of one partition."""
    executor = Executor(model, shard.rows, serial_grid(), None, shard.weights)
    executor.theta[:], executor.packed[:] = task.theta, task.packed
    if task.stats is not None:
        return searched(executor, task.stats, task.sums)
    found = Pass()
    if task.labels is None:
        found = executor.e_step()
    else:
        executor.prepare()
        executor.grid = Grid(axis, axis, Alone())  # for the sample; nothing else of the start needs the others
        labels = task.labels(executor)
        executor.grid = serial_grid()
        executor.accumulate_labels(labels)
    return buffer_of(executor.layout, executor.stats, found, executor.counts)


def searched(executor: Executor, stats: np.ndarray, sums: list[np.ndarray]) -> np.ndarray:
    """The sums of the next pass of all searches, flat: they take the steps again that their sums of before led to."""
    executor.stats[:] = stats
    theta, views = executor.layout.param_views(executor.theta), executor.layout.stat_views(executor.stats)
    executor.prepare()
    searching = [(b, s) for b in executor.bank.walk() if (s := b.begin_search(theta, views)) is not None]
    for flat in sums:
        unflatten(flat, searching)
        advance(searching, views, executor._ties, executor.grid.data)
    executor.search_pass(searching)
    return np.concatenate([*(search.sums.ravel() for _, search in searching), counted(executor.counts)])


def unflatten(flat: np.ndarray, searching: list) -> None:
    """Write the sums of all searches."""
    borders = np.cumsum([search.sums.size for _, search in searching])[:-1]
    for (_, search), part in zip(searching, np.split(flat, borders)):
        search.sums[:] = part.reshape(search.sums.shape)


def counted(counts: Counts) -> list[int]:
    """Those of the counts that are added over partitions."""
    return [vars(counts)[name] for name in COUNTED]


def borders_of(layout: Layout) -> tuple[int, int]:
    """Borders of the parts of `buffer_of`."""
    sums, low = (layout.segments[how] for how in (Combine.SUM, Combine.MIN))
    first = sums.stop - sums.start + 2 + len(COUNTED)
    return first, first + low.stop - low.start + 1


def buffer_of(layout: Layout, stats: np.ndarray, found: Pass, counts: Counts) -> np.ndarray:
    """Statistics, log likelihood, impossible rows and counts as one vector: sums, then minima, then maxima."""
    none = found.first_impossible == np.iinfo(np.int64).max
    return np.concatenate([
        stats[layout.segments[Combine.SUM]],
        [found.log_likelihood, found.impossible], counted(counts),
        stats[layout.segments[Combine.MIN]], [np.inf if none else found.first_impossible],
        stats[layout.segments[Combine.MAX]], [counts.tile_rows], [found.seconds[phase] for phase in TIMED],
    ])  # fmt: skip


class PartitionedExecutor(Executor):
    """The executor of the driver: it has parameters and statistics, and `run` has the partitions do what a pass is.

    `head` are a few rows, on which kernels are rehearsed; `run(task, borders)` returns the reduced buffer.
    """

    def __init__(self, model: Node, head: EncodedRows, run: Callable[[Task, tuple[int, int]], np.ndarray]):
        check_model(model)
        super().__init__(model, head, serial_grid(), None)
        self._run = run
        self._borders_of_buffer = borders_of(self.layout)
        self._before: np.ndarray = np.empty(0)
        self._sums: list[np.ndarray] = []

    def e_step(self) -> Pass:
        """See `Executor.e_step`. Seconds are those of the slowest partition, and what comes on top is `data_axis`."""
        began = working_time()
        self.prepare()  # the M-step asks banks in which form they were
        self._begin()
        found = self._take(self._run(Task(self.theta, self.packed), self._borders_of_buffer))
        self.counts.passes += 1
        found.seconds["data_axis"] = max(working_time() - began - sum(found.seconds.values()), 0.0)
        return found

    def accumulate_labels(self, labels) -> None:
        """See `Executor.accumulate_labels`; `labels` is a function that can be pickled."""
        self._begin()
        self._take(self._run(Task(self.theta, self.packed, labels), self._borders_of_buffer))

    def _take(self, buffer: np.ndarray) -> Pass:
        """Write the statistics of a buffer; what else is in it."""
        sums, low, high = (buffer[part] for part in parts_of(self._borders_of_buffer))
        segments, found = self.layout.segments, Pass()
        n, most = len(sums) - 2 - len(COUNTED), len(high) - 1 - len(TIMED)
        self.stats[segments[Combine.SUM]] = sums[:n]
        self.stats[segments[Combine.MIN]], self.stats[segments[Combine.MAX]] = low[:-1], high[:most]
        found.log_likelihood, found.impossible = float(sums[n]), int(sums[n + 1])
        if np.isfinite(low[-1]):
            found.first_impossible = int(low[-1])
        self._count_all(sums[n + 2 :])
        self.counts.tile_rows = max(self.counts.tile_rows, int(high[most]))
        found.seconds |= zip(TIMED, high[most + 1 :].tolist())
        return found

    def _count_all(self, values: np.ndarray) -> None:
        for name, count in zip(COUNTED, values):
            vars(self.counts)[name] += int(count)

    def search(self) -> int:
        """See `Executor.search`."""
        self._before, self._sums = self.stats.copy(), []
        return super().search()

    def search_pass(self, searching) -> None:
        """See `Executor.search_pass`: the sums are those of all partitions."""
        size = sum(search.sums.size for _, search in searching)
        task = Task(self.theta, self.packed, None, self._before, self._sums)
        found = self._run(task, (size + len(COUNTED),) * 2)
        self._sums = [*self._sums, found[:size]]
        self._count_all(found[size:])
        self.counts.passes += 1
        unflatten(found[:size], searching)


def check_model(model: Node) -> None:
    """Raise ModelError for a node that keeps something of its rows from pass to pass."""
    for node in model.walk():
        if isinstance(node, ProbabilisticLatentSemanticIndexing):
            raise ModelError(f'{node.type_name()} keeps a mix of topics for each document from pass to pass, which '
                             'backend "spark" cannot: use "local", "mp" or "mpi"')  # fmt: skip
