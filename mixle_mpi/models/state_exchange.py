"""What model shards that share hidden Markov models tell each other: of their states, and of whole sequences."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mixle_mpi.contract.cuts import CutGroup
from mixle_mpi.contract.decomposition import Partial, ReductionOp


class StateExchange:
    """Transposes between states and sequences of the members of a group; the units of member m that are held here are
    rows first_unit[m] to first_unit[m + 1]."""

    def __init__(self, group: CutGroup, first_unit: np.ndarray, states: int):
        self.group, self.first_unit, self.states = group, first_unit, states

    def _units(self, member: int) -> slice:
        return slice(int(self.first_unit[member]), int(self.first_unit[member + 1]))

    def answered(self, member: int) -> slice:
        """The units of a cut member for which this shard answers: the last ones of those that it holds."""
        stop, group = int(self.first_unit[member + 1]), self.group
        return slice(stop - (group.answered[group.place + 1] - group.answered[group.place]), stop)

    def to_sequences(self, emissions: np.ndarray, offsets: np.ndarray, dealt: list[int]):
        """Log densities (members, states, own steps) of the sequences that this shard runs of a group."""
        group, of_steps, states = self.group, offsets[dealt], np.diff(self.group.answered)
        held, k = np.stack([emissions[self.answered(m)] for m in group.members]), len(group.members)
        parts = [held[:, :, a:b].ravel() for a, b in pairwise(of_steps)]
        own = int(of_steps[group.place + 1] - of_steps[group.place])
        expected = [k * int(n) * own for n in states]
        came = yield self._gather(parts, expected, int(offsets[-1]), self.states)
        return np.concatenate([part.reshape(k, int(n), own) for part, n in
                               zip(np.split(came, np.cumsum(expected)[:-1]), states)], axis=1)  # fmt: skip

    def _gather(self, parts: list[np.ndarray], expected: list[int], steps: int, states: int):
        """What goes to each shard of a group, and how much comes from each, of values of all members, states, steps."""
        whole = len(self.group.members) * states * steps
        return Partial(ReductionOp.GATHER, np.concatenate(parts), tuple(map(len, parts)), tuple(expected), whole,
                       group=self.group.number)  # fmt: skip

    def to_states(self, posteriors: np.ndarray, offsets: np.ndarray, dealt: list[int], resp):
        """Write the posteriors of the states held here to resp (units, steps), from those of all states in the steps of
        the sequences that were run here (members, states, own steps)."""
        group, of_steps, k = self.group, offsets[dealt], len(self.group.members)
        parts = [posteriors[:, a:b].ravel() for a, b in group.held]
        low, high = group.held[group.place]
        expected = [k * (high - low) * int(n) for n in np.diff(of_steps)]
        held = sum(b - a for a, b in group.held)
        came = yield self._gather(parts, expected, int(offsets[-1]), held)
        for part, (a, b) in zip(np.split(came, np.cumsum(expected)[:-1]), pairwise(of_steps)):
            for m, own in zip(group.members, part.reshape(k, high - low, b - a)):
                resp[self._units(m), a:b] = own

    def to_holders(self, posteriors: np.ndarray, resp: np.ndarray):
        """As `to_states`, from those of the states that this shard answers for in all steps (members, states, steps):
        others may hold some of them as well."""
        group, k, steps = self.group, len(self.group.members), posteriors.shape[2]
        low, high = group.held[group.place]
        if not group.overlaps:
            for m, own in zip(group.members, posteriors):
                resp[self._units(m)] = own
            return
        first = group.answered[group.place]
        parts = [posteriors[:, max(a - first, 0) : max(b - first, 0)].ravel() for a, b in group.held]
        shares = [max(min(high, b) - max(low, a), 0) for a, b in pairwise(group.answered)]
        expected = [k * n * steps for n in shares]
        held = sum(b - a for a, b in group.held)
        came = yield self._gather(parts, expected, steps, held)
        at = 0
        for part, n in zip(np.split(came, np.cumsum(expected)[:-1]), shares):
            for m, own in zip(group.members, part.reshape(k, n, steps)):
                resp[self.first_unit[m] + at : self.first_unit[m] + at + n] = own
            at += n
