"""One rank's part of an EM iteration: the local tree, its buffers, and the pass over the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from mixle_mpi.contract.errors import NumericalError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.tile import Source, Tile
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.grid import Grid
from mixle_mpi.execution.owners import Owners, shared_slices
from mixle_mpi.execution.pipeline import Job, Pipeline, Steps, Times
from mixle_mpi.execution.searching import advance
from mixle_mpi.execution.shard import compile_tree, cuts_of, layout_of
from mixle_mpi.execution.ties import Ties
from mixle_mpi.execution.tiles import TILES_IN_FLIGHT, tile_borders, tile_widths
from mixle_mpi.kernels.compiling import working_time
from mixle_mpi.kernels.elementary import IMPOSSIBLE
from mixle_mpi.models.topic_bank import TopicBank

Labels = dict[str, dict[int, np.ndarray]]


@dataclass
class Pass(Times):
    """What one pass over the local rows found, before any reduction: `log_likelihood` of the rows that are possible,
    and the number of the others with the first of them (global row, or a huge number)."""

    log_likelihood: float = 0.0
    impossible: int = 0
    first_impossible: int = np.iinfo(np.int64).max


@dataclass
class Counts:
    """What the kernels of one rank have seen in passes over the rows.

    `tiles` of at most `tile_rows` rows; `unit_rows` the densities of a leaf that were evaluated: rows times
    the parameter sets held here, added up over the leaves; `maximized` the parameter sets of leaves that were
    maximised here, added up over M-steps; `repaired` the steps of sequences divided in time that were worked out
    again, after so many messages of what shards told each other (`told`) and of operators (`composed`); `state_steps`
    the steps times hidden states whose recursions were run; `token_rounds` and `document_rounds` the distinct words,
    and the documents, of topic models times the inner rounds that they took, after `round_messages` of tiles;
    `searches` the evaluations of expected log likelihoods in numeric M-steps, of `searched` parameter sets.
    """

    passes: int = 0
    rows: int = 0
    tiles: int = 0
    tile_rows: int = 0
    unit_rows: int = 0
    maximized: int = 0
    repaired: int = 0
    told: int = 0
    composed: int = 0
    state_steps: int = 0
    token_rounds: int = 0
    document_rounds: int = 0
    round_messages: int = 0
    searches: int = 0
    searched: int = 0


class Executor:
    """The local tree of one rank of a grid, with its parameters and statistics.

    `theta` and `new` are the two parameter buffers: `maximize` writes this data shard's part of `new`, and
    `accept` makes it the current one, once all ranks have agreed. Parameters that kernels read in a packed
    form are known to their owners only, until `execution.whole` asks for them.

    Parameters
    ----------
    cut : what is cut over the model shards, see `execution.shard.cuts_of`; None for the whole model on each
    weights : (n,) sample weights of the source's rows
    bounds : borders of the units of each model shard, by default even ones
    pipelined : whether the next tile is scored while one waits for the other model shards
    """

    def __init__(
        self, model: Node, source: Source, grid: Grid, cut: str | None, weights: np.ndarray | None = None,
        bounds: tuple[int, ...] | None = None, pipelined: bool = True,
    ):  # fmt: skip
        self.model, self.source, self.grid, self.weights = model, source, grid, weights
        shards = grid.model.size
        self.cut = cut if shards > 1 else None
        self.cuts = cuts_of(model, self.cut, grid.model.rank, shards, bounds)
        self.bank = compile_tree(model, self.cuts, shards == 1)
        self.layout = layout_of(self.bank)
        self.theta = np.zeros(self.layout.num_params)
        self.new = np.zeros_like(self.theta)
        self.packed = np.zeros(self.layout.num_packed)
        self.stats = self.layout.empty_stats()
        self._groups = self._parts(0)
        self._ties = Ties(self.bank, self.layout, grid.model if self.cut is not None else None)
        self._owners = Owners(self.layout, self._ties.names(), grid.data)
        self._copies = shared_slices(self.layout, self._groups)
        self._borders = tile_borders(source, *tile_widths(self.bank, grid.model))
        self._ones = np.ones((1, max(np.diff(self._borders), default=0)))
        copies = TILES_IN_FLIGHT if self.cut is not None and pipelined and grid.model.overlaps else 1
        self._tiles = [Tile(source) for _ in range(copies)]
        self._pipeline = Pipeline([self._parts(copy) for copy in range(copies)], grid.data)
        self.labels: dict[str, dict[int, np.ndarray]] = {}
        self.counts = Counts()
        leaves = [b for b in self.bank.walk() if isinstance(b.node, Family)]
        self._leaf_units: dict[str, int] = {}
        for b in leaves:
            self._leaf_units[b.node.sequence] = self._leaf_units.get(b.node.sequence, 0) + b.size
        self._leaf_members = sum(len(self._owners.own[b.path]) for b in leaves if not b.node.fixed)

    def _parts(self, copy: int) -> dict[int, Axis]:
        """The groups of model shards with which this one shares what it holds, by number, in an order that is the same
        on all of them. Collective over the model axis."""
        if self.cut is None:
            return {}
        ranks, colours = self.cuts.groups.ranks, self.cuts.colours()
        numbers = sorted(range(len(ranks)), key=lambda number: ranks[number])
        return {number: self.grid.model.part(ranks[number], copy, colours[ranks[number]]) for number in numbers}

    # -- the pass ----------------------------------------------------------------------------------

    def tiles(self) -> Iterator[Tile]:
        """Tiles in row order, to be done with when as many others were taken as are in flight."""
        own = self.labels.get("", {})
        for at, (start, stop) in enumerate(pairwise(self._borders)):
            tile = self._tiles[at % len(self._tiles)]
            tile.move(start, stop)
            tile.labels = {owner: labels[start:stop] for owner, labels in own.items()}
            tile.step_labels = self.labels
            yield tile

    def scores(self, tile: Tile) -> np.ndarray:
        """Log densities (members, n) of a tile under the root. Collective over the model axis."""
        return self.finished(self.bank.score(tile))

    def finished(self, steps: Steps) -> np.ndarray:
        """As `drive`, of a generator that returns an array. Collective over the model axis."""
        found = self.drive(steps)
        if found is None:
            raise AssertionError("there are no scores")
        return found

    def drive(self, steps: Steps) -> np.ndarray | None:
        """What a generator of a bank returns, its partials reduced one by one. Collective over the model axis."""
        return self._pipeline.drive(steps)

    def row_weights(self, tile: Tile) -> np.ndarray:
        """Sample weights (1, n) of a tile, ones without a weight column; a fresh array."""
        if self.weights is None:
            return np.ones((1, tile.n))
        return self.weights[None, tile.start : tile.stop].copy()

    def prepare(self) -> None:
        """Set up kernels for the current parameters, which were published or accepted."""
        self.bank.prepare(self.layout.param_views(self.theta), self.layout.packed_views(self.packed))

    def e_step(self) -> Pass:
        """Score and accumulate all rows; the statistics of the local rows are then in `stats`.

        Collective over the model axis.
        """
        self.labels = {}
        found = Pass()
        started = working_time()
        self.prepare()
        self._begin()
        found.seconds["score"] = working_time() - started
        self._pass(found)
        started = working_time()
        self.bank.finish()
        self.counts.repaired = sum(bank.repaired for bank in self.bank.walk())
        self.counts.told, self.counts.composed = map(int, sum(bank.settling for bank in self.bank.walk()))
        self.counts.state_steps = sum(bank.state_steps for bank in self.bank.walk())
        topics = [bank for bank in self.bank.walk() if isinstance(bank, TopicBank)]
        self.counts.token_rounds = sum(bank.rounds.token_rounds for bank in topics)
        self.counts.document_rounds = sum(bank.rounds.document_rounds for bank in topics)
        self.counts.round_messages = sum(bank.round_messages for bank in topics)
        found.seconds["accumulate"] += working_time() - started
        return found

    def _pass(self, found: Pass) -> None:
        """Score all rows, and accumulate them by their posterior weights."""
        def accumulated(tile: Tile, score: np.ndarray | None) -> Steps:
            if score is None:
                raise AssertionError("there are no scores")
            yield from self.bank.accumulate(tile, self._weigh(tile, score[0], found))
            return None

        def jobs() -> Iterator[Job]:
            for tile in self.tiles():
                self._count(tile)
                yield Job(self.bank.score(tile), partial(accumulated, tile))

        self.counts.passes += 1
        self._pipeline.run(jobs(), found)

    def _count(self, tile: Tile) -> None:
        self.counts.tiles += 1
        self.counts.rows += tile.n
        self.counts.tile_rows = max(self.counts.tile_rows, tile.n)
        for sequence, units in self._leaf_units.items():
            self.counts.unit_rows += units * (tile.steps(sequence).n if sequence else tile.n)

    def _weigh(self, tile: Tile, score: np.ndarray, found: Pass) -> np.ndarray:
        """The weights (1, n) that go down; impossible rows are counted and get none."""
        if self.weights is None and score.min() >= IMPOSSIBLE:
            found.log_likelihood += float(np.sum(score))
            return self._ones[:, : tile.n]
        weights = self.row_weights(tile)
        impossible = (score < IMPOSSIBLE) & (weights[0] > 0)
        if impossible.any():
            found.impossible += int(impossible.sum())
            found.first_impossible = min(found.first_impossible, int(tile.global_rows[np.argmax(impossible)]))
            weights[0, impossible] = 0.0
        used = weights[0] > 0
        found.log_likelihood += float(np.sum(score * weights[0] if used.all() else score[used] * weights[0, used]))
        return weights

    def accumulate_labels(self, labels: Labels | Callable[[Executor], Labels]) -> None:
        """Statistics of hard starting labels: of rows under "", of the steps of a sequence under its name, for each
        bank's id (n,) int32 unit numbers, -1 for none; or of those that a function finds for an executor."""
        self.labels = labels(self) if callable(labels) else labels
        self._begin()
        for tile in self.tiles():
            self.drive(self.bank.accumulate(tile, self.row_weights(tile)))
        self.bank.finish()
        self.labels = {}

    def _begin(self) -> None:
        self.layout.clear(self.stats)
        self.bank.begin(self.layout.stat_views(self.stats))

    def search(self) -> int:
        """Passes at the same parameters until every family has what its M-step needs; how many. Collective.

        Only models with such a family pay for it: one flag over the whole grid, agreed, before each pass.
        """
        if not any(isinstance(n, Family) and n.searches for n in self.model.walk()):
            return 0
        theta, stats = self.layout.param_views(self.theta), self.layout.stat_views(self.stats)
        searching = [(b, s) for b in self.bank.walk() if (s := b.begin_search(theta, stats)) is not None]
        passes = 0
        while True:
            wanted = np.array([int(any(s.wanted for _, s in searching))])
            self.grid.world.allreduce(wanted, "max")
            if not wanted[0]:
                break
            passes += 1
            self.search_pass(searching)
            advance(searching, stats, self._ties, self.grid.data)
        for bank, _ in searching:
            bank.end_search()
        return passes

    def search_pass(self, searching: list) -> None:
        """Add the local rows to the sums of searches, banks with what they search."""
        self.bank.begin(self.layout.stat_views(self.layout.empty_stats()))
        self._pass(Pass())

    # -- the M-step --------------------------------------------------------------------------------

    def reduce_stats(self) -> None:
        """Sum the statistics over the data axis, those of this shard's own rows and what all need. Collective."""
        self._owners.reduce(self.stats)
        self._ties.apply(self.stats, divided=False)
        self._pool()
        self._ties.apply(self.stats, divided=True)

    def _pool(self) -> None:
        """Sum what members estimate together over the members, of all data shards and model shards."""
        stats = self.layout.stat_views(self.stats)
        for bank in self.bank.walk():
            bank.pool(stats, self._owners.counted)
        pooled = [(m, self.layout.stat_rows(self.stats, m.name, Combine.SUM)) for m in self.layout.matrices if m.pooled]
        _sum_rows(self.grid.data, [(view, np.arange(len(view))) for _, view in pooled])
        for number, group in self._groups.items():
            _sum_rows(group, [(view, np.flatnonzero(m.holders.numbers == number)) for m, view in pooled])

    def maximize(self) -> NumericalError | None:
        """Write the maximising parameters of own rows to `new`, and to their packed form; the error, if there is
        no maximum here."""
        views, own = self.layout.param_views, self._owners.own
        stats = self.layout.stat_views(self.stats)
        self.counts.maximized += self._leaf_members
        try:
            for bank in self.bank.walk():
                bank.maximize(views(self.theta), stats, views(self.new), own)
            self.counts.searches = sum(bank.searches for bank in self.bank.walk())
            self.counts.searched = sum(bank.searched for bank in self.bank.walk())
            self._derive(self.new)
        except NumericalError as error:
            return error
        return None

    def own_rows(self, name: str) -> np.ndarray:
        """The local rows of a matrix whose statistics this data shard has in full, and which it maximises."""
        return self._owners.own[name]

    def _derive(self, theta: np.ndarray) -> None:
        views, packed = self.layout.param_views(theta), self.layout.packed_views(self.packed)
        for bank in self.bank.walk():
            bank.derive(views, packed, self._owners.own)

    def start_from_stats(self) -> None:
        """Parameters to start from, out of the reduced statistics of starting labels."""
        stats = self.layout.stat_views(self.stats)
        for bank in self.bank.walk():
            bank.start(self.layout.param_views(self.theta), stats, self._owners.own)

    def prepare_start(self) -> None:
        """Prepare for `accumulate_labels`, before there are parameters: any valid ones will do. Collective."""
        empty = self.layout.stat_views(self.layout.empty_stats())
        theta = self.layout.param_views(self.theta)
        for bank in self.bank.walk():
            bank.start(theta, empty, self._owners.own)
        self.publish()
        self.prepare()

    def given(self) -> bool:
        """Write the parameters that the user gave to `theta`; whether they are all of them."""
        asked = self.new  # which no M-step has written yet
        asked[:] = np.nan
        for bank in self.bank.walk():
            bank.given(self.layout.param_views(asked))
        self._ties.share_given(asked)
        known = ~np.isnan(asked)
        np.copyto(self.theta, asked, where=known)
        asked[:] = 0.0
        return bool(known.all())

    def publish(self) -> None:
        """Tell all ranks of the current parameters, of which each has its own rows. Collective over both axes."""
        self._derive(self.theta)
        self._share(self.theta)

    def accept(self) -> None:
        """Make the parameters that `maximize` wrote the current ones. Collective over both axes."""
        self._share(self.new)
        self.exchange()

    def exchange(self) -> None:
        """Exchange the current parameters, and what is kept of rows, with those before or after."""
        self.theta, self.new = self.new, self.theta
        for bank in self.bank.walk():
            bank.accept_rows()

    def start_rows(self) -> None:
        """Begin a fit: what is kept of rows from pass to pass starts anew."""
        for bank in self.bank.walk():
            bank.start_rows(self.source.n)

    def _share(self, theta: np.ndarray) -> None:
        """Give data shards what owners found, and all model shards the same bytes for what several of them hold."""
        self._owners.gather(theta, self.packed)
        for group, (params, packed) in zip(self._groups.values(), self._copies):
            shared = [(theta, s) for s in params] + [(self.packed, s) for s in packed]
            flat = np.concatenate([v[s] for v, s in shared]) if shared else np.empty(0)
            group.bcast(flat)
            for (v, s), part in zip(shared, np.split(flat, np.cumsum([s.stop - s.start for _, s in shared])[:-1])):
                v[s] = part

    def log_prior(self) -> float:
        """Log prior density of what this rank answers for, at the current parameters; of tied nodes it counts once."""
        theta, copies = self.layout.param_views(self.theta), self._ties.copies()
        return sum(bank.log_prior(theta) / copies.get(bank.path, 1) for bank in self.bank.walk())

    def complete(self, theta: np.ndarray) -> None:
        """Give all data shards the parameters that only their owners have. Collective over the data axis."""
        self._owners.complete(theta)

    def release(self) -> None:
        """Give back what only iterations need, statistics and what kernels read: the fit has ended."""
        self.new, self.stats, self.packed = np.empty(0), np.empty(0), np.empty(0)
        for bank in self.bank.walk():
            bank.release()


def _sum_rows(group: Axis, views: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Sum some rows of several matrices over a group of ranks, in one message. Collective over the group."""
    parts = [view[rows] for view, rows in views if view[rows].size]
    if not parts:
        return
    flat = np.concatenate([part.ravel() for part in parts])
    group.allreduce(flat)
    at = 0
    for view, rows in views:
        part = view[rows]
        view[rows] = flat[at : at + part.size].reshape(part.shape)
        at += part.size
