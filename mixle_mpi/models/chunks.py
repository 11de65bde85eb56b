"""Long sequences of a hidden Markov model in chunks: consecutive data shards hold consecutive steps.

Each shard filters its chunk from a guess, and repairs it once it knows how the shard before ended, until the
repaired probabilities agree with the guessed ones to rounding: a filter forgets its start. Where a chunk was
repaired to its end, what comes after it changes too, and where that goes on, chunks are composed as
operators on distributions, at `states` times the work. Backward probabilities are found alike, from the other end.

Source: Maleki, Musuvathi, Mytkowicz (2014), PPoPP, 219-232.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np

from mixle_mpi.contract.decomposition import Partial, ReductionOp
from mixle_mpi.contract.tile import Chunk
from mixle_mpi.kernels import recursion

AGREE = 1e-15  # probabilities that differ by no more are equal to rounding
ROUNDS = 3  # of repairs, after which chunks are composed as operators

Steps = Generator[Partial, np.ndarray, None]


@dataclass
class Chain:
    """One member's chunk: arrays of its steps, in the order of the sequences held here."""

    initial: np.ndarray
    transition: np.ndarray
    back: np.ndarray
    density: np.ndarray
    top: np.ndarray
    alpha: np.ndarray = field(init=False)
    beta: np.ndarray = field(init=False)
    scale: np.ndarray = field(init=False)
    before: np.ndarray = field(init=False)

    def __post_init__(self):
        self.alpha, self.beta = np.zeros_like(self.density), np.zeros_like(self.density)
        self.scale, self.before = np.zeros(len(self.density)), np.zeros(len(self.initial))


class Chunks:
    """The sequences of one data shard, the first of which another shard may have begun, and the last of which
    another may go on with.

    Parameters
    ----------
    chains : one for each member
    offsets : (sequences + 1,) of the steps held here
    chunk : which shard this is, and how it hangs together with others
    end : (states,) 1 for states in which a sequence may end, else 0

    Attributes
    ----------
    repaired : steps that were worked out more than once
    """

    def __init__(self, chains: list[Chain], offsets: np.ndarray, chunk: Chunk, end: np.ndarray):
        self.chains, self.offsets, self.end = chains, offsets, end
        self.shard, self.continued, self.continues = chunk.shard, chunk.continued, chunk.continues
        filled = np.flatnonzero(np.diff(offsets))
        self.runs = [slice(int(offsets[i]), int(offsets[i + 1])) for i in filled]
        self.through = self.continued and self.continues and len(self.runs) == 1  # neither begins nor ends here
        self.repaired = 0

    # -- forward -----------------------------------------------------------------------------------

    def forward(self) -> Steps:
        """Forward probabilities and scales of all steps. Collective over the data axis."""
        for chain in self.chains:
            for number, run in enumerate(self.runs):
                guess = number == 0 and self.continued
                prior = np.full(len(chain.initial), 1.0 / len(chain.initial)) if guess else chain.initial
                self._filter(chain, run, prior, False)
        changed = self.continues
        for _ in range(ROUNDS):
            everyone = yield self._told([c.alpha[-1] if self.continues else c.before for c in self.chains], changed)
            if not everyone[:, :, -2].any():
                return
            changed = False
            if self.continued and everyone[self.shard - 1, 0, -2]:
                changed = self._repair_forward(everyone[self.shard - 1, :, :-2])
        everyone = yield self._told([c.alpha[-1] if self.continues else c.before for c in self.chains], changed)
        if not everyone[:, :, -2].any():
            return
        operators = yield from self._operators()
        if self.continued:
            known = [self._composed_forward(everyone, operators, k)
                     for k in range(len(self.chains))]  # fmt: skip
            self._repair_forward(np.array(known), exact=True)

    def _filter(self, chain: Chain, run: slice, prior: np.ndarray, known: bool) -> int:
        return recursion.filter_chunk(prior, chain.density[run], chain.transition, chain.alpha[run], chain.scale[run],
                                      known, AGREE)  # fmt: skip

    def _repair_forward(self, before: np.ndarray, exact: bool = False) -> bool:
        """Filter the first sequence again, from what came before (members, states); whether its end changed."""
        run, reached = self.runs[0], False
        for chain, own in zip(self.chains, before):
            chain.before = own.copy()
            done = self._filter(chain, run, own @ chain.transition, not exact)
            self.repaired += done
            reached |= done == run.stop - run.start
        return reached and self.through

    def _composed_forward(self, everyone, operators, k: int) -> np.ndarray:
        """How the shard before ends, by way of the operators of those that hold no beginning."""
        first = self.shard - 1
        while everyone[first, 0, -1]:
            first -= 1
        found = everyone[first, k, :-2].copy()
        for shard in range(first + 1, self.shard):
            found = found @ operators[shard, k]
            found /= max(found.sum(), 1e-300)
        return found

    # -- backward ----------------------------------------------------------------------------------

    def backward(self) -> Steps:
        """Backward probabilities of all steps, after `forward`. Collective over the data axis."""
        for chain in self.chains:
            for number, run in enumerate(self.runs):
                goes_on = self.continues and number == len(self.runs) - 1
                behind = np.ones(len(self.end)) if goes_on else self.end
                self._smooth(chain, run, self._scaled(chain, run, behind), False)
        changed = self.continued
        for _ in range(ROUNDS):
            everyone = yield self._told([self._seen(c) if self.continued else c.before for c in self.chains], changed)
            if not everyone[:, :, -2].any():
                return
            changed = False
            if self.continues and everyone[self.shard + 1, 0, -2]:
                changed = self._repair_backward(everyone[self.shard + 1, :, :-2])
        everyone = yield self._told([self._seen(c) if self.continued else c.before for c in self.chains], changed)
        if not everyone[:, :, -2].any():
            return
        operators = yield from self._operators()
        if self.continues:
            known = [self._composed_backward(everyone, operators, k)
                     for k in range(len(self.chains))]  # fmt: skip
            self._repair_backward(np.array(known), exact=True)

    def _smooth(self, chain: Chain, run: slice, behind: np.ndarray, known: bool) -> int:
        return recursion.smooth_chunk(behind, chain.density[run], chain.back, chain.scale[run], chain.beta[run], known,
                                      AGREE)  # fmt: skip

    def _scaled(self, chain: Chain, run: slice, behind: np.ndarray) -> np.ndarray:
        """Backward probabilities of the last step, so that with the forward ones they add up to 1."""
        total = chain.alpha[run.stop - 1] @ behind
        return behind / total if total > 0 else np.zeros_like(behind)

    def _seen(self, chain: Chain) -> np.ndarray:
        """Backward probabilities, up to a factor, of the step before the first."""
        at = self.runs[0].start
        share = 1.0 / chain.scale[at] if chain.scale[at] > 0 else 0.0
        return (chain.density[at] * chain.beta[at] * share) @ chain.back

    def _repair_backward(self, behind: np.ndarray, exact: bool = False) -> bool:
        """Smooth the last sequence again, from what comes behind (members, states); whether its beginning changed."""
        run, reached = self.runs[-1], False
        for chain, own in zip(self.chains, behind):
            done = self._smooth(chain, run, self._scaled(chain, run, own), not exact)
            self.repaired += done
            reached |= done == run.stop - run.start
        return reached and self.through

    def _composed_backward(self, everyone, operators, k: int) -> np.ndarray:
        """What comes behind, by way of the operators of the shards that hold no end."""
        last = self.shard + 1
        while everyone[last, 0, -1]:
            last += 1
        found = everyone[last, k, :-2].copy()
        for shard in range(last - 1, self.shard, -1):
            found = operators[shard, k] @ found
            found /= max(found.max(), 1e-300)
        return found

    # -- both --------------------------------------------------------------------------------------

    def statistics(self, weights: np.ndarray, starts: np.ndarray, expected: np.ndarray) -> None:
        """Posteriors times weights (members, sequences) in place of the backward probabilities; added up are the first
        states of sequences that begin here, starts (members, states), and expected (members, states, states)."""
        of = np.flatnonzero(np.diff(self.offsets))
        for k, chain in enumerate(self.chains):
            for number, run in enumerate(self.runs):
                begins = number > 0 or not self.continued
                before = np.zeros_like(chain.before) if begins else chain.before
                recursion.chunk_statistics(before, chain.density[run], chain.alpha[run], chain.beta[run],
                                           chain.scale[run], weights[k, of[number]], expected[k])  # fmt: skip
                if begins:
                    starts[k] += chain.beta[run.start]

    def log_densities(self) -> np.ndarray:
        """What the steps held here add to the log density of each sequence, (members, sequences)."""
        out = np.zeros((len(self.chains), len(self.offsets) - 1))
        of = np.flatnonzero(np.diff(self.offsets))
        with np.errstate(divide="ignore"):
            for own, chain in zip(out, self.chains):
                for number, run in enumerate(self.runs):
                    own[of[number]] = np.sum(np.log(chain.scale[run]) + chain.top[run])
                    if not (self.continues and number == len(self.runs) - 1):
                        own[of[number]] += np.log(chain.alpha[run.stop - 1] @ self.end)
        return out

    def _operators(self) -> Generator[Partial, np.ndarray, np.ndarray]:
        """The operators of all shards, (shards, members, states, states); zeros of those that a sequence does not
        pass through."""
        states = len(self.end)
        own = np.zeros((len(self.chains), states, states))
        if self.through:
            for chain, operator in zip(self.chains, own):
                recursion.chunk_operator(chain.density, chain.transition, operator)
            self.repaired += len(self.chains) * states * int(self.offsets[-1])
        return (yield Partial(ReductionOp.REPLICATE, own, axis="data"))

    def _told(self, values: list[np.ndarray], changed: bool) -> Partial:
        """For all shards: values (members, states), whether they changed, whether a sequence passes through here."""
        told = np.zeros((len(self.chains), len(self.end) + 2))
        for own, value in zip(told, values):
            own[:-2] = value
        told[:, -2], told[:, -1] = changed, self.through
        return Partial(ReductionOp.REPLICATE, told, axis="data")
