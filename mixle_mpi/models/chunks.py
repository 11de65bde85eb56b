"""Long sequences of a hidden Markov model in chunks: consecutive data shards hold consecutive steps.

Each shard filters its chunk from a guess, and repairs it once it knows how the shard before ended, until the
repaired probabilities agree with the guessed ones to rounding: a filter forgets its start. Where a chunk was
repaired to its end, what comes after it changes too, and where that goes on, chunks are composed as
operators on distributions, at `states` times the work. Backward probabilities are found alike, from the other end.

Source: Maleki, Musuvathi, Mytkowicz (2014), PPoPP, 219-232.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import numpy as np

from mixle_mpi.contract.decomposition import Partial, ReductionOp
from mixle_mpi.contract.tile import Chunk
from mixle_mpi.families.logs import safe_log
from mixle_mpi.kernels import recursion
from mixle_mpi.kernels.elementary import IMPOSSIBLE

AGREE = 4e-15  # of themselves: probabilities that differ by no more are equal to rounding
ROUNDS = 3  # of repairs, after which chunks are composed as operators
BEFORE, BEHIND = -1, 1  # the sides of a shard
CHANGED, THROUGH = -2, -1  # what stands after the values that shards tell

Steps = Generator[Partial, np.ndarray, None]


@dataclass
class Chain:
    """One member's chain, log densities `scores` (states, steps) of the steps held here, and arrays (steps, states) or
    (steps,) of these; `before` (states,) is how the shard before ended."""

    initial: np.ndarray
    transition: np.ndarray
    back: np.ndarray
    scores: np.ndarray
    density: np.ndarray
    top: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    scale: np.ndarray
    before: np.ndarray = field(init=False)

    def __post_init__(self):
        self.before = np.zeros_like(self.initial)


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
    settling : messages, (2,) int64: of what shards tell their neighbours, and of operators
    """

    def __init__(self, chains: list[Chain], offsets: np.ndarray, chunk: Chunk, end: np.ndarray):
        self.chains, self.offsets, self.end = chains, offsets, end
        self.shard, self.continued, self.continues = chunk.shard, chunk.continued, chunk.continues
        filled = np.flatnonzero(np.diff(offsets))
        self.runs = [slice(int(offsets[i]), int(offsets[i + 1])) for i in filled]
        self.through = self.continued and self.continues and len(self.runs) == 1  # neither begins nor ends here
        self.repaired = 0
        self.settling = np.zeros(2, np.int64)

    # -- forward -----------------------------------------------------------------------------------

    def forward(self) -> Steps:
        """Forward probabilities and scales of all steps. Collective over the data axis."""
        for chain in self.chains:
            for number, run in enumerate(self.runs):
                guess = number == 0 and self.continued
                prior = np.full_like(chain.initial, 1.0 / len(chain.initial)) if guess else chain.initial
                self._filter(chain, run, prior, False)
        yield from self._settle(BEFORE, self._ends, self._repair_forward)

    def _filter(self, chain: Chain, run: slice, prior: np.ndarray, known: bool) -> int:
        return recursion.filter_chunk(prior, chain.density[run], chain.transition, chain.alpha[run], chain.scale[run],
                                      chain.scores[:, run], chain.top[run], known, AGREE)  # fmt: skip

    def _ends(self) -> list[np.ndarray]:
        """How each chain ends here, for the shard that goes on with it."""
        return [chain.alpha[-1] if self.continues else chain.before for chain in self.chains]

    def _repair_forward(self, before: np.ndarray, known: bool) -> bool:
        """Filter the first sequence again, from how the shard before ended (members, states); whether to the end."""
        run, reached = self.runs[0], False
        for chain, own in zip(self.chains, before):
            chain.before = own.copy()
            done = self._filter(chain, run, own @ chain.transition, known)
            self.repaired += done
            reached |= done == run.stop - run.start
        return reached

    # -- backward ----------------------------------------------------------------------------------

    def backward(self) -> Steps:
        """Backward probabilities of all steps, after `forward`. Collective over the data axis."""
        for chain in self.chains:
            for number, run in enumerate(self.runs):
                guess = self.continues and number == len(self.runs) - 1
                behind = np.ones_like(self.end) if guess else self.end
                self._smooth(chain, run, behind, False)
        yield from self._settle(BEHIND, self._begins, self._repair_backward)

    def _smooth(self, chain: Chain, run: slice, behind: np.ndarray, known: bool) -> int:
        """Backward probabilities of a run from those of its last step, up to a factor: with the forward ones they add
        up to 1."""
        total = chain.alpha[run.stop - 1] @ behind
        with np.errstate(over="ignore"):  # then a state was lost that is likely: the M-step refuses what follows
            scaled = behind / total if total > 0 else np.zeros_like(behind)
        return recursion.smooth_chunk(scaled, chain.density[run], chain.back, chain.scale[run], chain.alpha[run],
                                      chain.beta[run], known, AGREE)  # fmt: skip

    def _begins(self) -> list[np.ndarray]:
        """Backward probabilities, up to a factor, of the step before the first, for the shard that has it."""
        if not self.continued:
            return [chain.before for chain in self.chains]
        share = [1.0 / chain.scale[0] if chain.scale[0] > 0 else 0.0 for chain in self.chains]
        return [(c.density[0] * c.beta[0] * share) @ c.back for c, share in zip(self.chains, share)]

    def _repair_backward(self, behind: np.ndarray, known: bool) -> bool:
        """Smooth the last sequence again, from what comes behind (members, states); whether to its beginning here."""
        run, reached = self.runs[-1], False
        for chain, own in zip(self.chains, behind):
            done = self._smooth(chain, run, own, known)
            self.repaired += done
            reached |= done == run.stop - run.start
        return reached

    # -- both --------------------------------------------------------------------------------------

    def _settle(self, side: int, tell: Callable[[], list[np.ndarray]], repair: Callable[[np.ndarray, bool], bool]):
        """Repair from what the neighbour on one side tells, until nobody's word changes; tell the other side.

        After some rounds what passes through whole chunks is composed from their operators instead.
        """
        listens, changed = (self.continued, self.continues)[::-side]
        for _ in range(ROUNDS):
            everyone = yield self._told(tell(), changed)
            if not everyone[:, :, CHANGED].any():
                return
            changed = False
            if listens and everyone[self.shard + side, 0, CHANGED]:
                changed = repair(everyone[self.shard + side, :, :CHANGED], True) and self.through
        everyone = yield self._told(tell(), changed)
        if not everyone[:, :, CHANGED].any():
            return
        states = len(self.end)
        own = np.zeros((len(self.chains), states, states))  # logarithms
        if self.through:
            for chain, operator in zip(self.chains, own):
                recursion.chunk_operator(chain.density, chain.transition, chain.scores, chain.top, operator)
            self.repaired += len(self.chains) * states * int(self.offsets[-1])
        self.settling += 0, 1
        operators = yield Partial(ReductionOp.REPLICATE, own, axis="data")
        if listens:
            repair(np.array([self._composed(side, chain, everyone[:, k], operators[:, k])
                             for k, chain in enumerate(self.chains)]), False)  # fmt: skip

    def _composed(self, side: int, chain: Chain, told: np.ndarray, operators: np.ndarray) -> np.ndarray:
        """What the neighbour would tell of one chain: the word of the nearest shard that no sequence passes through,
        by way of the operators of those between."""
        nearest = self.shard + side
        while told[nearest, THROUGH]:
            nearest += side
        found = safe_log(told[nearest, :CHANGED])
        for shard in range(nearest - side, self.shard, -side):
            through = operators[shard] if side == BEHIND else operators[shard].T
            found = np.logaddexp.reduce(through + found, axis=1)
        possible = found if side == BEFORE else found[chain.alpha[-1] > 0]  # others do not matter
        most = possible.max(initial=-np.inf)
        value = np.exp(np.minimum(found - most, 0.0)) if most > IMPOSSIBLE else np.zeros_like(found)
        return value / value.sum() if side == BEFORE and most > IMPOSSIBLE else value  # forward ones are a distribution

    def _told(self, values: list[np.ndarray], changed: bool) -> Partial:
        """For all shards: values (members, states), whether they changed, whether a sequence passes through here."""
        self.settling += 1, 0
        told = np.zeros((len(self.chains), len(self.end) + 2))
        for own, value in zip(told, values):
            own[:CHANGED] = value
        told[:, CHANGED], told[:, THROUGH] = changed, self.through
        return Partial(ReductionOp.REPLICATE, told, axis="data")

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

    def log_densities(self) -> Generator[Partial, np.ndarray, np.ndarray]:
        """What the steps held here add to the log density of each sequence, (members, sequences).

        A sequence of probability zero has -inf where it begins, and nothing elsewhere. Collective over the data axis.
        """
        out = np.zeros((len(self.chains), len(self.offsets) - 1))
        of = np.flatnonzero(np.diff(self.offsets))
        with np.errstate(divide="ignore"):
            for own, chain in zip(out, self.chains):
                for number, run in enumerate(self.runs):
                    own[of[number]] = np.sum(np.log(chain.scale[run]) + chain.top[run])
                    if not (self.continues and number == len(self.runs) - 1):
                        own[of[number]] += np.log(chain.alpha[run.stop - 1] @ self.end)
        told = np.zeros((len(out), 3))
        if self.continued:
            told[:, 0] = np.isneginf(out[:, of[0]])
        if self.continues:
            told[:, 1] = np.isneginf(out[:, of[-1]])
        told[:, THROUGH] = self.through
        everyone = yield Partial(ReductionOp.REPLICATE, told, axis="data")
        if self.continues and not self.through:
            out[self._impossible(everyone, self.shard), of[-1]] = -np.inf
        if self.continued:
            begun = self.shard - 1
            while everyone[begun, 0, THROUGH]:
                begun -= 1
            out[self._impossible(everyone, begun), of[0]] = 0.0
        return out

    def _impossible(self, everyone: np.ndarray, begun: int) -> np.ndarray:
        """Under which chains (members,) a sequence that goes on from a shard, where it begins, has probability zero."""
        found, shard = everyone[begun, :, 1] > 0, begun + 1
        while True:
            found = found | (everyone[shard, :, 0] > 0)
            if not everyone[shard, 0, THROUGH]:
                return found
            shard += 1
