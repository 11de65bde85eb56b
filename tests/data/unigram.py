"""The smallest model of a bag of words, for tests of its data: each token is drawn from one distribution."""

from __future__ import annotations

import copy

import numpy as np

from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Matrix
from mixle_mpi.kernels.elementary import LOG_ZERO
from mixle_mpi.models.bag import Bag
from mixle_mpi.models.sequence import StepsBank, sums_of_sequences


class Unigram(Bag):
    """log p(document) = sum over its words of count * log p[word]."""

    def __init__(self, vocabulary=None):
        super().__init__(vocabulary)
        self.p = None

    def signature(self):
        return (type(self), self.sequence, self.words.signature())

    def options(self):
        given = self.words.vocabulary
        return {} if given is None else {"vocabulary": list(given) if isinstance(given, tuple) else given}

    def compile(self, nodes, path, members, total, holders, cuts):
        return UnigramBank(nodes, path, members, total, holders, None)


class UnigramBank(StepsBank):
    """Probabilities (words,) of the words that occur, for all members."""

    def step_banks(self):
        return ()

    def matrices(self):
        shape = (len(self.node.words.encoding.words),)
        return [Matrix(self.path, self.members, self.total_members, self.holders, {"p": shape},
                       {"counts": (Combine.SUM, shape)})]  # fmt: skip

    def prepare(self, theta, packed):
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(theta[self.path]["p"]), LOG_ZERO)
        self._logs = np.concatenate([logs, np.full((self.size, 1), LOG_ZERO)], axis=1)

    def begin(self, stats):
        self._counts = stats[self.path]["counts"]

    def score(self, tile):
        steps = self.steps(tile)
        codes, counts = steps.known(self.node.words.slot_key), steps.known(self.node.counts_key)
        return sums_of_sequences(counts * self._logs[:, codes], steps.offsets)
        yield

    def accumulate(self, tile, weights):
        steps = self.steps(tile)
        codes, counts = steps.known(self.node.words.slot_key), steps.known(self.node.counts_key)
        own = counts * np.repeat(weights, np.diff(steps.offsets), axis=1)
        for member, values in zip(self._counts, own):
            member += np.bincount(codes, values, len(member) + 1)[:-1]
        return
        yield

    def maximize(self, theta, stats, new, own):
        rows = own[self.path]
        counts = stats[self.path]["counts"][rows] + 1e-3
        new[self.path]["p"][rows] = counts / counts.sum(axis=1, keepdims=True)

    def start(self, new, stats, own):
        self.maximize(None, stats, new, own)

    def given(self, theta):
        return None

    def restore(self, member, theta):
        changed = copy.copy(self.node)
        changed.p = theta[self.path]["p"][member].copy()
        return changed
