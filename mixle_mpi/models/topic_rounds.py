"""Inner rounds of topic models: how documents come to their mixes of topics, on one model shard or on several."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.decomposition import Partial
from mixle_mpi.kernels import topics as kernels

# A document of latent Dirichlet allocation moves on while its mix changes by more than this share of its words, and so
# many rounds at most: its bound is then within a square of that share of where it would end.
TOLERANCE, MOST_ROUNDS = 1e-5, 100
FOLDING_TOLERANCE, MOST_FOLDING = 1e-8, 2000  # the same of documents that are folded in, with no prior to hold them

Sum = Callable[[np.ndarray], Generator[Partial, np.ndarray, np.ndarray]]


@dataclass
class Tally:
    """Distinct words, and documents, times the rounds that they took."""

    token_rounds: int = 0
    document_rounds: int = 0


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


@dataclass
class Mixes:
    """The documents of a tile under one topic model, as its rounds leave them.

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

    @property
    def weights(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.a, self.topics, self.held


@dataclass
class OneModel:
    """The parameters of one topic model that are held here.

    Attributes
    ----------
    table : (words + 1, own topics), see `kernels.topics`; alpha : (topics,) of all topics
    own : which topics are held here
    prior : concentration of the words of topics, 0 without a prior
    dirichlet : whether mixes have a Dirichlet prior
    kept : whether documents come with the mixes of their last pass, of which this one makes one round
    """

    table: np.ndarray
    alpha: np.ndarray
    own: slice
    prior: float
    dirichlet: bool
    kept: bool

    @property
    def limits(self) -> tuple[float, int]:
        """Tolerance of a document's changes, and its rounds at most."""
        if self.kept:
            return np.inf, 1
        return (TOLERANCE, MOST_ROUNDS) if self.dirichlet else (FOLDING_TOLERANCE, MOST_FOLDING)

    def alone(self, documents: Documents, mixes: Mixes, tally: Tally) -> np.ndarray:
        """Log densities (documents,), where all topics are held here; `mixes` are filled."""
        logs, rounds = np.empty(len(documents.lengths)), np.empty(len(documents.lengths), np.int32)
        kernels.all_rounds(*documents.arrays, self.table, self.alpha, self.dirichlet, *self.limits, mixes.gamma,
                           mixes.a, mixes.topics, mixes.held, mixes.ratios, logs, rounds)  # fmt: skip
        tally.token_rounds += int((rounds * np.diff(documents.offsets)).sum())
        tally.document_rounds += int(rounds.sum())
        return logs + self.own_terms(mixes) + self.common_terms(mixes, documents)

    def own_terms(self, mixes: Mixes) -> np.ndarray:
        """What the topics held here add to the bounds (documents,)."""
        out = np.zeros(len(mixes.held))
        if self.dirichlet:
            alpha = self.alpha[self.own]
            kernels.document_terms(mixes.gamma, mixes.a, mixes.topics, mixes.held, alpha, out)
        return out

    def common_terms(self, mixes: Mixes, documents: Documents) -> np.ndarray:
        """What all topics of a document share of its log density (documents,)."""
        from scipy.special import digamma, gammaln

        if self.dirichlet:
            out = gammaln(self.alpha.sum()) - gammaln(mixes.totals)
            absent = np.flatnonzero(documents.words == len(self.table) - 1)
            if self.prior > 0 and len(absent):  # of words that never occurred the table leaves out a factor
                of = np.searchsorted(documents.offsets, absent, side="right") - 1
                np.add.at(out, of, documents.counts[absent] * digamma(self.prior))
            return out
        if self.kept:
            return np.zeros(len(mixes.totals))
        n = documents.lengths  # normalisers were those of mixes that add up to the words of the document
        return -n * np.log(np.where(n > 0, n, 1.0))


def itself(values: np.ndarray) -> Generator[Partial, np.ndarray, np.ndarray]:
    """The sum over one shard."""
    return values
    yield


def side_by_side(documents: Documents, models: list[OneModel], saved: list[Mixes], reduced: Sum, tally: Tally):
    """As `OneModel.alone` of several models, (models, documents), round by round: each shard works out what its own
    topics add to the normalisers of words, and the sums say on all shards alike which documents are done.

    `reduced` adds values up over the model shards that hold topics of these models; `saved` are filled.
    """
    (tolerance, most), dirichlet = models[0].limits, models[0].dirichlet
    logs = np.zeros((len(models), len(documents.lengths)))
    some = np.flatnonzero(np.diff(documents.offsets))
    active, changes = [some] * len(models), [np.zeros(len(some))] * len(models)
    made = 0
    for mixes in saved:
        mixes.topics[:] = np.arange(mixes.gamma.shape[1])
        mixes.held[:] = np.where(np.diff(documents.offsets) > 0, mixes.gamma.shape[1], 0)
    while any(len(which) for which in active):
        parts = []
        for model, mixes, which, change in zip(models, saved, active, changes):
            kernels.weigh(mixes.gamma, which, dirichlet, mixes.topics, mixes.held, mixes.a)
            own = np.empty(documents.tokens_of(which))
            kernels.normalise(documents.words, documents.offsets, which, *mixes.weights, model.table, own)
            parts += [own, change if most > 1 else change[:0]]
            tally.token_rounds += len(own)
            tally.document_rounds += len(which)
        whole = yield from reduced(np.concatenate(parts))
        sums = np.split(whole, np.cumsum([len(part) for part in parts])[:-1])
        made += 1
        for at, (model, mixes) in enumerate(zip(models, saved)):
            which, (normalisers, change) = active[at], sums[2 * at : 2 * at + 2]
            moved, alpha = np.empty(len(which)), model.alpha[model.own]
            kernels.update(*documents.arrays, which, normalisers, documents.lengths, *mixes.weights, alpha, model.table,
                           mixes.gamma, mixes.ratios, moved)  # fmt: skip
            ends = np.full(len(which), made >= most)
            if 1 < made < most:
                ends |= change < tolerance * mixes.totals[which]
            kernels.spread_logs(*documents.arrays[1:], which, ends, normalisers, logs[at])
            active[at], changes[at] = which[~ends], moved[~ends]
    if dirichlet:
        logs += yield from reduced(np.stack([model.own_terms(mixes) for model, mixes in zip(models, saved)]))
    return logs + np.stack([model.common_terms(mixes, documents) for model, mixes in zip(models, saved)])
