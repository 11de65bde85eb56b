"""The bank of topic models: the inner rounds of documents, and what words count for topics."""

from __future__ import annotations

from functools import partial

import numpy as np

from mixle_mpi.contract.cuts import Held
from mixle_mpi.contract.decomposition import Partial, ReductionOp
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Matrix
from mixle_mpi.contract.random import keyed_uniform
from mixle_mpi.contract.tile import Tile
from mixle_mpi.kernels import topic_tables as tables
from mixle_mpi.kernels import topics as kernels
from mixle_mpi.models.dirichlet import asymmetric, symmetric
from mixle_mpi.models.sequence import StepsBank, sums_of_sequences
from mixle_mpi.models.topic_model import TopicModel
from mixle_mpi.models.topic_rounds import Documents, Mixes, OneModel, Tally, itself, side_by_side

FLOOR = 0.05  # share of a topic at the start that is spread evenly over all words, so that none has probability 0


class TopicBank(StepsBank):
    """Topic models of all members; the topics `low` to `high` of each are held here.

    Rounds of members that are `cut` go on side by side on all model shards: each works out what its own topics add to
    the normalisers of tokens, and the sums decide for all of them which documents are done.

    Attributes
    ----------
    rounds : distinct words, and documents, times the rounds that they took, over all passes
    round_messages : rounds and other reductions of tiles over the model axis, over all passes
    """

    node: TopicModel
    round_messages: int = 0

    def __init__(self, nodes, path, members, total, holders, held: Held):
        super().__init__(nodes, path, members, total, holders, None)
        self.held, self.low, self.high = held, held.low, held.high
        self.first_unit = np.concatenate([[0], np.cumsum(self.high - self.low)])
        per_member, k = self.high - self.low, self.node.num_topics
        self.unit_member = np.repeat(np.arange(self.size), per_member)
        self.unit_number = np.arange(per_member.sum()) - self.first_unit[self.unit_member] + self.low[self.unit_member]
        self.units = self.members[self.unit_member] * k + self.unit_number
        self.is_cut = np.zeros(self.size, bool)
        self.is_cut[held.cut_members] = True
        self.unit_holders = held.holders(self.unit_member, self.unit_number)
        if self.node.words.encoding is None:
            raise ValueError(f"{str(path) or 'the model'} is not bound to data")
        self.words = self.node.words.encoding.words
        self._topics, self._documents = f"{path}#topics", f"{path}#documents"
        self._learns = self.node.learns_alpha
        self._seeding = False
        self._tables: list[np.ndarray] = []
        self._sums: list[np.ndarray] = []
        self.rounds = Tally()

    def step_banks(self):
        return ()

    def matrices(self):
        k, one = self.node.num_topics, (Combine.SUM, ())
        found = [Matrix(self._topics, self.units, self.total_members * k, self.unit_holders,
                        {"words": (len(self.words),)}, {"counts": (Combine.SUM, (len(self.words),))})]  # fmt: skip
        if self.node.dirichlet:
            stats = {"log_mix": (Combine.SUM, (k,)), "weight": one} if self._learns else {}
            divided = self._learns and self.held.anywhere
            found.append(Matrix(self._documents, self.members, self.total_members, self.holders, {"alpha": (k,)},
                                stats, pooled=divided, divided=divided))  # fmt: skip
        return found

    def _units(self, member: int) -> slice:
        return slice(int(self.first_unit[member]), int(self.first_unit[member + 1]))

    def _absent(self) -> int:
        """Words of the vocabulary that do not occur, and have no parameters."""
        return self.node.words.num_words - len(self.words)

    def _totals(self, values: np.ndarray) -> np.ndarray:
        """Sums (rows,) of the concentrations of topics (rows, words), of the words that do not occur too."""
        return values.sum(axis=1) + self._absent() * self.node.prior

    # -- a pass ------------------------------------------------------------------------------------

    def prepare(self, theta, packed):
        values = self._values = theta[self._topics]["words"]
        if not self._tables:
            self._tables = [np.empty((len(self.words) + 1, int(n))) for n in self.high - self.low]
        for m, table in enumerate(self._tables):
            own = np.ascontiguousarray(values[self._units(m)])
            if self.node.prior > 0:
                tables.fill_expected(own, self._totals(own), self.node.prior, table)
            else:
                tables.turn(own, table)
        k = self.node.num_topics
        self._alpha = np.array(theta[self._documents]["alpha"]) if self.node.dirichlet else np.zeros((self.size, k))

    def begin(self, stats):
        self._stats = stats
        self._seeding = False
        if not self._sums:
            self._sums = [np.empty_like(table) for table in self._tables]
        for sums in self._sums:
            sums[:] = 0.0

    def release(self):
        self._tables, self._sums = [], []

    def _read(self, steps: Tile) -> Documents:
        words, counts = steps.known(self.node.words.slot_key), steps.known(self.node.counts_key)
        return Documents(words, counts, steps.offsets, sums_of_sequences(counts[None], steps.offsets)[0])

    def score(self, tile: Tile):
        documents, everyone = self._read(self.steps(tile)), range(self.size)
        models, out = [self._member(m) for m in everyone], np.zeros((self.size, tile.n))
        saved = [self._empty(tile, documents, m) for m in everyone]
        for m in np.flatnonzero(~self.is_cut).tolist():
            if self.kept_rows is None:
                out[m] = models[m].alone(documents, saved[m], self.rounds)
            else:
                out[m] = (yield from side_by_side(documents, [models[m]], [saved[m]], itself, self.rounds))[0]
        for group in self.held.cut:
            cut = group.members.tolist()
            out[cut] = yield from side_by_side(
                documents, [models[m] for m in cut], [saved[m] for m in cut], partial(self._reduced, group.number),
                self.rounds,
            )  # fmt: skip
        tile.saved[id(self)] = saved
        return out

    def _reduced(self, group: int, values: np.ndarray):
        self.round_messages += 1
        return (yield Partial(ReductionOp.SUM, values, group=group))

    def _empty(self, tile: Tile, documents: Documents, m: int) -> Mixes:
        """Where the documents of a tile start under a member."""
        n, k = tile.n, int(self.high[m] - self.low[m])
        made = Mixes(tile.array(self, f"gamma_{m}", n, k), tile.array(self, f"a_{m}", n, k),
                     tile.array(self, f"topics_{m}", n, k, dtype=np.int32), np.empty(n, np.int32),
                     tile.array(self, f"ratios_{m}", len(documents.words)),
                     documents.lengths + self._alpha[m].sum())  # fmt: skip
        if self.kept_rows is None:
            made.gamma[:] = self._alpha[m, self.low[m] : self.high[m]]
            made.gamma += (documents.lengths / self.node.num_topics)[:, None]
        else:
            made.gamma[:] = self.kept_rows[self._rows(tile), self._units(m)]
        return made

    def _rows(self, tile: Tile) -> np.ndarray | slice:
        """The rows of a tile among those of the shard."""
        rows = slice(tile.start, tile.stop)
        return rows if tile.index is None else tile.start + tile.index

    def _member(self, m: int) -> OneModel:
        own = slice(int(self.low[m]), int(self.high[m]))
        kept = self.kept_rows is not None
        return OneModel(self._tables[m], self._alpha[m], own, self.node.prior, self.node.dirichlet, kept)

    def accumulate(self, tile: Tile, weights):
        steps = self.steps(tile)
        documents, labels = self._read(steps), tile.labels.get(id(self))
        if labels is not None and not self._seeding:
            self._seeding, self._even = True, np.zeros((self.size, len(self.words) + 1))
        for m in range(self.size):
            own = np.ascontiguousarray(weights[m])
            if labels is not None:
                self._seed(tile, documents, labels, m, own)
                continue
            mixes: Mixes = tile.saved[id(self)][m]
            kernels.add_words(documents.words, documents.offsets, mixes.ratios, *mixes.weights, own, self._sums[m])
            if self._learns:
                self._stats[self._documents]["weight"][m] += own.sum()
                log_mix = self._stats[self._documents]["log_mix"][m, self.low[m] : self.high[m]]
                kernels.add_log_mixes(mixes.gamma, mixes.totals, own, log_mix)
            if self.kept_rows is not None:
                self._keep(tile, documents, m, mixes)
        if labels is None and id(self) in tile.captured:
            tile.captured[id(self)] = tile.index, [self._expected(mixes) for mixes in tile.saved[id(self)]]
        return
        yield  # statistics are added up here alone

    def _seed(self, tile: Tile, documents: Documents, labels: np.ndarray, m: int, weights: np.ndarray) -> None:
        """Count the words of documents for the topics that they start in: those of all documents for each alike, and
        those of the few with a label for its topic, each with as much weight as a topic has of all of them."""
        k = self.node.num_topics
        lengths = np.diff(documents.offsets)
        self._even[m] += np.bincount(documents.words, documents.counts * np.repeat(weights, lengths) / k,
                                     len(self.words) + 1)  # fmt: skip
        heavier = weights * (self.node.words.encoding.observed / k / np.maximum(lengths, 1))
        tables.place_seeds(*documents.arrays, labels, int(self.low[m]), heavier, self._sums[m])

    def finish(self):
        super().finish()
        for m in range(self.size):
            out = self._stats[self._topics]["counts"][self._units(m)]
            if self._seeding:
                out += self._sums[m][:-1].T
                out += self._even[m, :-1]
            else:
                tables.turn_back(self._sums[m], self._tables[m], out)

    # -- mixes that are kept with the rows ---------------------------------------------------------

    def start_rows(self, n):
        if not self.node.dirichlet:
            self.kept_rows = np.full((n, len(self.units)), 1.0 / self.node.num_topics)
            self.kept_columns, self.kept_width = self.units, self.total_members * self.node.num_topics
            self._next = self.kept_rows.copy()

    def accept_rows(self):
        if self.kept_rows is not None:
            self.kept_rows, self._next = self._next, self.kept_rows

    def _keep(self, tile: Tile, documents: Documents, m: int, mixes: Mixes) -> None:
        """Write the next mixes of documents; one without words keeps its own."""
        n = np.where(documents.lengths > 0, documents.lengths, 1.0)[:, None]
        self._next[self._rows(tile), self._units(m)] = mixes.gamma / n

    # -- the M-step --------------------------------------------------------------------------------

    def pool(self, stats, own):
        """What several shards have of members that are not cut counts once, as does the weight of documents."""
        if self._learns and self.held.anywhere:
            others = ~self.holders.answers
            stats[self._documents]["weight"][others] = 0.0
            stats[self._documents]["log_mix"][~self.is_cut & others] = 0.0

    def maximize(self, theta, stats, new, own):
        rows = own[self._topics]
        old, counts = theta[self._topics]["words"], stats[self._topics]["counts"]
        values = new[self._topics]["words"]
        for row in rows:  # a topic at a time: nothing of the size of all of them is made
            total = counts[row].sum()
            if self.node.fixed or (total <= 0 and not self.node.prior):
                values[row] = old[row]
            else:
                values[row] = counts[row] + self.node.prior if self.node.prior else counts[row] / total
        if not self.node.dirichlet:
            return
        for row in own[self._documents]:
            alpha = theta[self._documents]["alpha"][row]
            weight = float(stats[self._documents]["weight"][row]) if self._learns else 0.0
            if weight > 0:
                how = symmetric if self.node.learn_alpha == "symmetric" else asymmetric
                alpha = how(alpha, weight, stats[self._documents]["log_mix"][row])
            new[self._documents]["alpha"][row] = alpha

    def start(self, new, stats, own):
        n = max(len(self.words), 1)
        for row in own[self._topics]:
            counts = stats[self._topics]["counts"][row]
            total = counts.sum()
            if not total > 0:  # no document, so that topics must differ by themselves
                counts = keyed_uniform(0, "topic words", self.words, int(self.units[row]))
            p = (1.0 - FLOOR) * counts / max(counts.sum(), np.finfo(float).tiny) + FLOOR / n
            new[self._topics]["words"][row] = self.node.prior + 0.5 * total * p if self.node.prior else p
        if self.node.dirichlet:
            new[self._documents]["alpha"][own[self._documents]] = 1.0 / self.node.num_topics

    def given(self, theta):
        for m, member in enumerate(self.members):
            node = self.nodes[member]
            if node.given_topics is not None:
                theta[self._topics]["words"][self._units(m)] = node.given_topics[self.low[m] : self.high[m]]
            if self.node.dirichlet:
                theta[self._documents]["alpha"][m] = (
                    1.0 / self.node.num_topics if node.alpha is None else node.alpha)

    def log_prior(self, theta):
        """Expected log density of the topics under their prior, less that under their posterior."""
        from scipy.special import gammaln

        prior, rows = self.node.prior, np.flatnonzero(self.unit_holders.answers)
        if not prior or not len(rows):
            return 0.0
        values = theta[self._topics]["words"]
        found = 0.0
        for row in rows:
            own = values[row : row + 1]
            total = self._totals(own)
            found += tables.topic_terms(own, total, prior) - gammaln(total[0])
        return float(found + len(rows) * gammaln(prior * self.node.words.num_words))

    def restore(self, member, theta):
        changed = self.node.with_topics(theta[self._topics]["words"][self._units(member)], self.words)
        if self.node.dirichlet:
            changed.alpha = np.array(theta[self._documents]["alpha"][member])
        return changed

    def num_free(self, copies=1):
        if self.node.fixed:
            return 0
        alphas = {"symmetric": 1, "asymmetric": self.node.num_topics}.get(self.node.learn_alpha, 0)
        each = self.node.num_topics * max(len(self.words) - (0 if self.node.prior else 1), 0) + alphas
        return self.total_members // copies * each

    def expected(self, tile: Tile, member: int) -> np.ndarray:
        """Expected mixes (documents, own topics) of a tile that was scored."""
        return self._expected(tile.saved[id(self)][member])

    def probabilities(self, member: int) -> np.ndarray:
        """Expected probabilities (words + 1, topics) of words in topics, the last row of one that does not occur."""
        own = self._values[self._units(member)]
        total = self._totals(own)
        table = np.empty((own.shape[1] + 1, own.shape[0]))
        tables.turn(own / total[:, None], table)
        table[-1] = self.node.prior / total
        return table

    def densities(self, steps: Tile, mixes: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        """Probabilities (steps,) of the words of documents with these mixes (documents, topics)."""
        codes, (documents, k) = steps.known(self.node.words.slot_key), mixes.shape
        out, everything = np.empty(len(codes)), np.broadcast_to(np.arange(k, dtype=np.int32), (documents, k)).copy()
        which, held = np.arange(documents), np.full(documents, k, np.int32)
        kernels.normalise(codes, steps.offsets, which, mixes, everything, held, probabilities, out)
        return out

    def top_codes(self, member: int, n: int) -> np.ndarray:
        """Codes (topics, n) of the likeliest words of each topic, the likeliest first."""
        return np.argsort(-self._tables[member][:-1].T, axis=1, kind="stable")[:, :n]

    def _expected(self, mixes: Mixes) -> np.ndarray:
        """Expected mixes (documents, own topics); of a document without words without a prior the even one."""
        whole = mixes.totals[:, None] if self.kept_rows is None else 1.0
        even = 1.0 / self.node.num_topics
        return np.where(whole > 0, mixes.gamma / np.where(whole > 0, whole, 1.0), even)

    def tile_width(self):
        return int(2.5 * len(self.units)) + 4 * self.size

    def step_width(self) -> int:
        """Float64 values of scratch for each step, this bank alone."""
        return 3 * self.size

