"""The bank of topic models: the inner rounds of documents, and what words count for topics."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.decomposition import Partial, ReductionOp
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Matrix
from mixle_mpi.contract.random import keyed_uniform
from mixle_mpi.contract.tile import Tile
from mixle_mpi.kernels import topics as kernels
from mixle_mpi.models.dirichlet import asymmetric, symmetric
from mixle_mpi.models.latent_dirichlet_allocation import LatentDirichletAllocation
from mixle_mpi.models.sequence import StepsBank, sums_of_sequences
from mixle_mpi.models.topic_model import TopicModel

# A document of latent Dirichlet allocation moves on while its mix changes by more than this share of its words, and so
# many rounds at most: its bound is then within a square of that share of where it would end.
TOLERANCE, MOST_ROUNDS = 1e-5, 100
FOLDING_TOLERANCE, MOST_FOLDING = 1e-8, 2000  # the same of documents that are folded in, with no prior to hold them
FLOOR = 0.05  # share of a topic at the start that is spread evenly over all words, so that none has probability 0


@dataclass
class Mixes:
    """The documents of a tile under one member, as `score` leaves them for `accumulate`.

    Attributes
    ----------
    gamma : (documents, own topics) what documents have of each topic, after the last round
    a, topics, held : weights of the last round, see `kernels.topics.all_rounds`
    ratios : (steps,) counts over normalisers
    totals : (documents,) words of each document and the sum of alpha
    """

    gamma: np.ndarray
    a: np.ndarray
    topics: np.ndarray
    held: np.ndarray
    ratios: np.ndarray
    totals: np.ndarray


@dataclass
class Documents:
    """What kernels read of a tile: the words of its documents, their counts, where documents begin, and how many words
    each has."""

    words: np.ndarray
    counts: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.words, self.counts, self.offsets

    def tokens_of(self, which: np.ndarray) -> int:
        """Steps of some of the documents."""
        return int((self.offsets[which + 1] - self.offsets[which]).sum())


class TopicBank(StepsBank):
    """Topic models of all members; the topics `low` to `high` of each are held here.

    Rounds of members that are `cut` go on side by side on all model shards: each works out what its own topics add to
    the normalisers of tokens, and the sums decide for all of them which documents are done.

    Attributes
    ----------
    token_rounds, document_rounds : distinct words, and documents, times the rounds that they took, over all passes
    round_messages : rounds and other reductions of tiles over the model axis, over all passes
    """

    node: TopicModel
    token_rounds: int = 0
    document_rounds: int = 0
    round_messages: int = 0

    def __init__(self, nodes, path, members, total, exclusive, low, high, cut):
        super().__init__(nodes, path, members, total, exclusive, None)
        self.low, self.high, self.cut = low, high, cut
        self.first_unit = np.concatenate([[0], np.cumsum(high - low)])
        per_member, k = high - low, self.node.num_topics
        self.unit_member = np.repeat(np.arange(self.size), per_member)
        self.unit_number = np.arange(per_member.sum()) - self.first_unit[self.unit_member] + low[self.unit_member]
        self.units = self.members[self.unit_member] * k + self.unit_number
        self.is_cut = np.zeros(self.size, bool)
        self.is_cut[cut] = True
        self.unit_exclusive = (exclusive | self.is_cut)[self.unit_member]
        self.words = self.node.words.encoding.words
        self._topics, self._documents = f"{path}#topics", f"{path}#documents"
        self._learns = isinstance(self.node, LatentDirichletAllocation) and self.node.learns_alpha
        self._seeding = False
        self._tables: list[np.ndarray] = []
        self._sums: list[np.ndarray] = []

    def step_banks(self):
        return ()

    def matrices(self):
        k, one = self.node.num_topics, (Combine.SUM, ())
        found = [Matrix(self._topics, self.units, self.total_members * k, self.unit_exclusive,
                        {"words": (len(self.words),)}, {"counts": (Combine.SUM, (len(self.words),))})]  # fmt: skip
        if self.node.dirichlet:
            stats = {"log_mix": (Combine.SUM, (k,)), "weight": one} if self._learns else {}
            found.append(Matrix(self._documents, self.members, self.total_members, self.exclusive, {"alpha": (k,)},
                                stats, pooled=self._learns and len(self.cut) > 0))  # fmt: skip
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
        values = theta[self._topics]["words"]
        if not self._tables:
            self._tables = [np.empty((len(self.words) + 1, int(n))) for n in self.high - self.low]
        for m, table in enumerate(self._tables):
            own = np.ascontiguousarray(values[self._units(m)])
            if self.node.prior > 0:
                kernels.fill_expected(own, self._totals(own), self.node.prior, table)
            else:
                kernels.turn(own, table)
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
        documents = self._read(self.steps(tile))
        out, saved = np.zeros((self.size, tile.n)), [self._empty(tile, documents, m) for m in range(self.size)]
        for m in np.flatnonzero(~self.is_cut):
            if self.kept_rows is None:
                out[m] = self._alone(documents, m, saved[m])
            else:
                out[m] = yield from self._rounds(documents, [m], saved, _itself)
        if len(self.cut):
            cut = self.cut.tolist()
            out[cut] = yield from self._rounds(documents, cut, saved, self._reduced)
        tile.saved[id(self)] = saved
        return out

    def _reduced(self, values: np.ndarray):
        self.round_messages += 1
        return (yield Partial(ReductionOp.SUM, values))

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

    @property
    def _limits(self) -> tuple[float, int]:
        """Tolerance of a document's changes, and its rounds at most."""
        if self.kept_rows is not None:
            return np.inf, 1
        return (TOLERANCE, MOST_ROUNDS) if self.node.dirichlet else (FOLDING_TOLERANCE, MOST_FOLDING)

    def _alone(self, documents: Documents, m: int, mixes: Mixes) -> np.ndarray:
        """Log densities (documents,) of a member all of whose topics are held here; `mixes` are filled."""
        logs, rounds = np.empty(len(documents.lengths)), np.empty(len(documents.lengths), np.int32)
        kernels.all_rounds(*documents.arrays, self._tables[m], self._alpha[m], self.node.dirichlet, *self._limits,
                           mixes.gamma, mixes.a, mixes.topics, mixes.held, mixes.ratios, logs, rounds)  # fmt: skip
        self.token_rounds += int((rounds * np.diff(documents.offsets)).sum())
        self.document_rounds += int(rounds.sum())
        return logs + self._own_terms(m, mixes) + self._common_terms(m, mixes, documents)

    def _rounds(self, documents: Documents, members: list[int], saved: list[Mixes], reduced):
        """As `_alone` of several members, (members, documents), round by round; `reduced` adds values up over the model
        shards that hold topics of these members."""
        tolerance, most = self._limits
        tables, alphas = self._tables, [self._alpha[m, self.low[m] : self.high[m]] for m in range(self.size)]
        logs = np.zeros((len(members), len(documents.lengths)))
        some = np.flatnonzero(np.diff(documents.offsets))
        active, changes = [some] * len(members), [np.zeros(len(some))] * len(members)
        made = 0
        for m in members:
            mixes = saved[m]
            mixes.topics[:] = np.arange(mixes.gamma.shape[1])
            mixes.held[:] = np.where(np.diff(documents.offsets) > 0, mixes.gamma.shape[1], 0)
        while any(len(which) for which in active):
            parts = []
            for m, which, change in zip(members, active, changes):
                mixes = saved[m]
                if self.node.dirichlet:
                    kernels.weigh(mixes.gamma, which, mixes.a)
                else:
                    mixes.a[which] = mixes.gamma[which]
                own = np.empty(documents.tokens_of(which))
                kernels.normalise(documents.words, documents.offsets, which, mixes.a, tables[m], own)
                parts += [own, change if most > 1 else change[:0]]
                self.token_rounds += len(own)
                self.document_rounds += len(which)
            whole = yield from reduced(np.concatenate(parts))
            sums = np.split(whole, np.cumsum([len(part) for part in parts])[:-1])
            made += 1
            for at, m in enumerate(members):
                which, mixes, (normalisers, change) = active[at], saved[m], sums[2 * at : 2 * at + 2]
                moved = np.empty(len(which))
                kernels.update(*documents.arrays, which, normalisers, mixes.a, alphas[m], tables[m], mixes.gamma,
                               mixes.ratios, moved)  # fmt: skip
                ends = np.full(len(which), made >= most)
                if 1 < made < most:
                    ends |= change < tolerance * mixes.totals[which]
                kernels.spread_logs(*documents.arrays[1:], which, ends, normalisers, logs[at])
                active[at], changes[at] = which[~ends], moved[~ends]
        if self.node.dirichlet:
            logs += yield from reduced(np.stack([self._own_terms(m, saved[m]) for m in members]))
        return logs + np.stack([self._common_terms(m, saved[m], documents) for m in members])

    def _own_terms(self, m: int, mixes: Mixes) -> np.ndarray:
        """What the topics held here add to the bounds (documents,)."""
        out = np.zeros(len(mixes.held))
        if self.node.dirichlet:
            kernels.document_terms(mixes.gamma, mixes.a, mixes.topics, mixes.held,
                                   self._alpha[m, self.low[m] : self.high[m]], out)  # fmt: skip
        return out

    def _common_terms(self, m: int, mixes: Mixes, documents: Documents) -> np.ndarray:
        """What all topics of a document share of its log density (documents,)."""
        from scipy.special import gammaln

        if self.node.dirichlet:
            return gammaln(self._alpha[m].sum()) - gammaln(mixes.totals)
        if self.kept_rows is not None:
            return np.zeros(len(mixes.totals))
        n = documents.lengths  # normalisers were those of mixes that add up to the words of the document
        return -n * np.log(np.where(n > 0, n, 1.0))

    def accumulate(self, tile: Tile, weights):
        steps = self.steps(tile)
        documents, labels = self._read(steps), tile.labels.get(id(self))
        if labels is not None:
            self._seeding = True
        for m in range(self.size):
            own = np.ascontiguousarray(weights[m])
            if labels is not None:
                self._seed(tile, documents, labels, m, own)
                continue
            mixes: Mixes = tile.saved[id(self)][m]
            kernels.add_words(documents.words, documents.offsets, mixes.ratios, mixes.a, mixes.topics, mixes.held, own,
                              self._sums[m])  # fmt: skip
            if self._learns:
                self._stats[self._documents]["weight"][m] += own.sum()
                kernels.add_log_mixes(mixes.gamma, mixes.totals, own,
                                      self._stats[self._documents]["log_mix"][m, self.low[m] : self.high[m]])  # fmt: skip
            if self.kept_rows is not None:
                self._keep(tile, documents, m, mixes)
        if labels is None and id(self) in tile.captured:
            tile.captured[id(self)] = tile.index, [self._expected(mixes) for mixes in tile.saved[id(self)]]
        return
        yield  # statistics are added up here alone

    def _seed(self, tile: Tile, documents: Documents, labels: np.ndarray, m: int, weights: np.ndarray) -> None:
        """Count the words of documents for the topics that they start in: each document for one of all topics, at
        random, and those with a label, the seeds, for that with as much weight as all others together."""
        k = self.node.num_topics
        at_random = (keyed_uniform(0, "topic", tile.global_rows) * k).astype(np.int32)
        kernels.place_seeds(*documents.arrays, at_random, int(self.low[m]), weights, self._sums[m])
        words = np.maximum(np.diff(documents.offsets), 1)
        heavier = weights * (self.node.words.encoding.observed / k / words)
        kernels.place_seeds(*documents.arrays, labels, int(self.low[m]), heavier, self._sums[m])

    def finish(self):
        super().finish()
        for m in range(self.size):
            out = self._stats[self._topics]["counts"][self._units(m)]
            if self._seeding:
                out += self._sums[m][:-1].T
            else:
                kernels.turn_back(self._sums[m], self._tables[m], out)

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
        """Write the next mixes of documents; one without words, or of probability zero, keeps its own."""
        n = documents.lengths[:, None]
        self._next[self._rows(tile), self._units(m)] = np.where(n > 0, mixes.gamma / np.where(n > 0, n, 1.0), mixes.gamma)

    # -- the M-step --------------------------------------------------------------------------------

    def pool(self, stats, first, own):
        """What all model shards have of members that are not cut counts once; the weight of documents they all have."""
        if self._learns and len(self.cut) and not first:
            stats[self._documents]["weight"][:] = 0.0
            stats[self._documents]["log_mix"][~self.is_cut & ~self.exclusive] = 0.0

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
                how = symmetric if vars(self.node)["learn_alpha"] == "symmetric" else asymmetric
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

    def log_prior(self, theta, first):
        """Expected log density of the topics under their prior, less that under their posterior."""
        from scipy.special import gammaln

        prior, rows = self.node.prior, np.flatnonzero(self.unit_exclusive | first)
        if not prior or not len(rows):
            return 0.0
        values = theta[self._topics]["words"]
        found = 0.0
        for row in rows:
            own = values[row : row + 1]
            total = self._totals(own)
            found += kernels.topic_terms(own, total, prior) - gammaln(total[0])
        return float(found + len(rows) * gammaln(prior * self.node.words.num_words))

    def restore(self, member, theta):
        changed = self.node.with_topics(theta[self._topics]["words"][self._units(member)], self.words)
        if self.node.dirichlet:
            vars(changed)["alpha"] = np.array(theta[self._documents]["alpha"][member])
        return changed

    def num_free(self, copies=1):
        if self.node.fixed:
            return 0
        alphas = {"symmetric": 1, "asymmetric": self.node.num_topics}.get(vars(self.node).get("learn_alpha", ""), 0)
        each = self.node.num_topics * max(len(self.words) - (0 if self.node.prior else 1), 0) + alphas
        return self.total_members // copies * each

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


def _itself(values: np.ndarray) -> Generator[Partial, np.ndarray, np.ndarray]:
    """What a sum over one shard is."""
    return values
    yield
