"""Few long sequences of a hidden Markov model with very many states, divided by states over the model shards.

Each shard works out the probabilities of its own states, from its own columns of the transition matrix forwards and
its own rows backwards; the probabilities of all states are brought together once a step.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from mixle_mpi.contract.cuts import CutGroup
from mixle_mpi.contract.decomposition import Partial, ReductionOp
from mixle_mpi.kernels import recursion_by_states as kernels
from mixle_mpi.kernels.elementary import IMPOSSIBLE
from mixle_mpi.kernels.recursion import FAINT

Steps = Generator[Partial, np.ndarray, None]


class StateColumns:
    """The sequences of a tile under the members that are cut, on one model shard.

    Parameters
    ----------
    scores : (members, own states, steps) log densities of the steps in the states for which this shard answers
    offsets : (sequences + 1,) of the steps
    group : the members and the shards, which answer for ranges of states
    initial, transition : (members, states), (members, states, states)
    end : (states,) 1 for states in which a sequence may end, else 0
    """

    def __init__(self, scores: np.ndarray, offsets: np.ndarray, group: CutGroup, initial: np.ndarray,
                 transition: np.ndarray, end: np.ndarray):  # fmt: skip
        self.scores, self.offsets, self.borders, self.end = scores, offsets, np.array(group.answered), end
        self.own, self.group = slice(*group.answered[group.place : group.place + 2]), group.number
        self.initial, self.transition = initial, transition
        self.told = np.zeros((len(scores), int(np.diff(self.borders).max())))  # values of own states, padded
        filled = np.flatnonzero(np.diff(offsets))
        self.begins, self.ends = np.zeros((2, int(offsets[-1])), bool)
        self.begins[offsets[filled]] = True
        self.ends[offsets[filled + 1] - 1] = True

    def forward(self) -> Steps:
        """Forward probabilities and scales of all steps. Collective over the model axis."""
        members, states, steps = self.scores.shape
        tops = yield self._to_all(self.scores.max(axis=1, initial=-np.inf))
        top = tops.max(axis=0)
        self.top = np.where(top > IMPOSSIBLE, top, -np.inf)  # (members, steps)
        shift = np.where(top > IMPOSSIBLE, top, np.inf)
        self.density = np.ascontiguousarray(np.exp(self.scores - shift[:, None]).transpose(2, 0, 1))
        self.alpha, self.scale = np.empty((steps, members, len(self.end))), np.empty((steps, members))
        columns, prior = np.ascontiguousarray(self.transition[:, :, self.own]), np.empty((members, states))
        for t in range(steps):
            if self.begins[t]:
                prior[:] = self.initial[:, self.own]
            else:
                kernels.prior_of(self.alpha[t - 1], columns, prior)
            kernels.weigh(prior, self.density[t], self.told)
            everyone = yield self._to_all(self.told)
            if kernels.settle(everyone, self.borders, self.alpha[t], self.scale[t]):  # as all shards know
                yield from self._anew(t, prior, self.scale[t] < FAINT)
                kernels.weigh(prior, self.density[t], self.told)
                everyone = yield self._to_all(self.told)
                kernels.settle(everyone, self.borders, self.alpha[t], self.scale[t])

    def _anew(self, t: int, prior: np.ndarray, faint: np.ndarray) -> Steps:
        """Densities of a step again under `faint` members, relative to the best of the states that can be, see
        `recursion.anew`."""
        possible = np.where(prior > 0, self.scores[:, :, t], -np.inf)
        tops = yield self._to_all(possible.max(axis=1, initial=-np.inf, keepdims=True))
        top = tops.max(axis=0)[:, 0]
        shift = np.where(top > IMPOSSIBLE, top, np.inf)
        self.density[t, faint] = np.exp(possible - shift[:, None])[faint]
        self.top[faint, t] = np.where(top > IMPOSSIBLE, top, -np.inf)[faint]

    def _to_all(self, values: np.ndarray) -> Partial:
        return Partial(ReductionOp.REPLICATE, values, group=self.group)

    def log_densities(self) -> np.ndarray:
        """Log density (members, sequences) of each sequence, after `forward`."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.scale).T + self.top
            logs[:, self.ends] += np.log(self.alpha[self.ends] @ self.end).T
        sequence = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        return np.array([np.bincount(sequence, own, len(self.offsets) - 1) for own in logs])

    def backward(self, weights: np.ndarray, starts: np.ndarray, expected: np.ndarray):
        """Posteriors times weights (members, own states, steps), after `forward`. Collective over the model axis.

        weights (members, sequences). Added up are the first states of sequences, starts (members, states), and expected
        (members, states, states), over transition probabilities: of own states, the latter of transitions to them.
        """
        members, states, steps = self.scores.shape
        each = np.repeat(weights, np.diff(self.offsets), axis=1)
        of_step = np.ascontiguousarray(each.T)
        rows, beta = np.ascontiguousarray(self.transition[:, self.own].swapaxes(1, 2)), np.empty((members, states))
        passed, posteriors = np.empty((2, steps, members, states))
        everyone = np.empty(0)
        for t in range(steps - 1, -1, -1):
            if self.ends[t]:
                total = self.alpha[t] @ self.end
                beta[:] = self.end[self.own] * np.divide(1.0, total, out=np.zeros(members), where=total > 0)[:, None]
            else:
                kernels.behind_of(everyone, self.borders, rows, beta)
            kernels.smooth(self.alpha[t][:, self.own], self.density[t], self.scale[t], of_step[t], beta, passed[t],
                             posteriors[t], self.told)  # fmt: skip
            if not self.begins[t]:
                everyone = yield self._to_all(self.told)
        later = np.flatnonzero(~self.begins)
        posteriors = np.ascontiguousarray(posteriors.transpose(1, 2, 0))
        for m in range(members):
            starts[m, self.own] += posteriors[m][:, self.begins].sum(axis=1)
            expected[m][:, self.own] += (self.alpha[later - 1, m] * each[m, later, None]).T @ passed[later, m]
        return posteriors
