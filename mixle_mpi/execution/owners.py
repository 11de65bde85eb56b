"""The shared M-step: which data shard maximises which rows, and the two messages that it takes.

Statistics are reduce-scattered, so that each data shard gets the sums of its own rows alone; what kernels read of
the new parameters is gathered from all of them. Together that is what one Allreduce of the statistics
moves. What members estimate together, and what needs all sums at once, is summed for every shard.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mixle_mpi.contract.bank import Rows
from mixle_mpi.contract.blocks import unit_range
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Layout
from mixle_mpi.execution.axis import Axis


class Owners:
    """The rows of each matrix by data shard, evenly and in order.

    Parameters
    ----------
    everywhere : names of matrices whose rows every data shard maximises, besides those that say so themselves

    Attributes
    ----------
    own : matrix name -> the local rows that this data shard maximises
    counted : matrix name -> the rows that this data shard counts where all shards' are added up
    """

    def __init__(self, layout: Layout, everywhere: Iterable[str], data: Axis):
        self.layout, self.data = layout, data
        together = {m.name for m in layout.matrices if m.everywhere or m.pooled} | set(everywhere)
        self.own: Rows = {}
        self.counted: Rows = {}
        self._sums: list[list[slice]] = [[] for _ in range(data.size)]  # of statistics, by owner
        self._params: list[list[slice]] = [[] for _ in range(data.size)]
        self._packed: list[list[slice]] = [[] for _ in range(data.size)]
        self._all: list[slice] = []  # of statistics that everyone needs
        self._hidden: list[list[slice]] = [[] for _ in range(data.size)]  # parameters that only their owner has
        for m in layout.matrices:
            n = len(m.rows)
            if m.name in together or data.size == 1:
                self.own[m.name] = np.arange(n)
                self.counted[m.name] = np.arange(n if data.rank == 0 else 0)
                self._all += [] if m.pooled else _some(layout.sum_slice(m))
                continue
            for shard in range(data.size):
                a, b = unit_range(shard, data.size, n)
                self._sums[shard] += _some(layout.sum_slice(m, a, b))
                if m.packed:
                    self._packed[shard] += _some(layout.packed_slice(m, a, b))
                    self._hidden[shard] += _some(layout.param_slice(m, a, b))
                else:
                    self._params[shard] += _some(layout.param_slice(m, a, b))
            self.own[m.name] = self.counted[m.name] = np.arange(*unit_range(data.rank, data.size, n))

    def reduce(self, stats: np.ndarray) -> None:
        """Sum statistics over the data axis: of own rows, and of what everyone needs. Collective over the data axis.

        One message, one more where anything is needed by everyone, and one where a family declares bounds.
        """
        if self.data.size == 1:
            return
        counts = [sum(s.stop - s.start for s in slices) for slices in self._sums]
        if any(counts):
            everything = np.concatenate([stats[s] for slices in self._sums for s in slices])
            _place([stats], [self._sums[self.data.rank]], self.data.reduce_scatter(everything, counts))
        if self._all:
            sums = np.concatenate([stats[s] for s in self._all])
            self.data.allreduce(sums)
            _place([stats], [self._all], sums)
        low, high = (stats[self.layout.segments[c]] for c in (Combine.MIN, Combine.MAX))
        if len(low) or len(high):
            bounds = np.concatenate([low, -high])
            self.data.allreduce(bounds, "min")
            low[:], high[:] = bounds[: len(low)], -bounds[len(low) :]

    def gather(self, theta: np.ndarray, packed: np.ndarray) -> None:
        """Give all data shards what kernels read of all rows: packed rows, else parameters. Collective over the
        data axis; one message."""
        pairs = [list(pair) for pair in zip(self._params, self._packed)]
        self._exchange([theta, packed], pairs)

    def complete(self, theta: np.ndarray) -> None:
        """Give all data shards the parameters that only owners have, those of packed rows. Collective over the
        data axis."""
        self._exchange([theta], [[slices] for slices in self._hidden])

    def _exchange(self, vectors: list[np.ndarray], parts: list[list[list[slice]]]) -> None:
        """Gather slices of vectors from their owners: parts[shard][k] are those of vector k."""
        counts = [sum(s.stop - s.start for slices in lists for s in slices) for lists in parts]
        if self.data.size == 1 or not any(counts):
            return
        mine = parts[self.data.rank]
        pieces = [v[s] for v, slices in zip(vectors, mine) for s in slices]
        flat = self.data.allgather_parts(np.concatenate(pieces) if pieces else np.empty(0), counts)
        at = 0
        for lists, count in zip(parts, counts):
            _place(vectors, lists, flat[at : at + count])
            at += count


def _some(where: slice) -> list[slice]:
    """The slice, unless it is empty."""
    return [where] if where.stop > where.start else []


def _place(vectors: list[np.ndarray], lists: list[list[slice]], flat: np.ndarray) -> None:
    """Write consecutive values to slices of vectors."""
    at = 0
    for vector, slices in zip(vectors, lists):
        for s in slices:
            vector[s] = flat[at : at + s.stop - s.start]
            at += s.stop - s.start


def shared_slices(layout: Layout, groups: Iterable[int]) -> list[tuple[list[slice], list[slice]]]:
    """For each group of model shards, where rows that they hold in common lie in the parameters and in the packed
    rows: of a matrix with packed rows in these only."""
    found = []
    for number in groups:
        params: list[slice] = []
        packed: list[slice] = []
        for m in layout.matrices:
            for a, b in _runs(np.flatnonzero(m.holders.numbers == number)):
                where = (layout.packed_slice if m.packed else layout.param_slice)(m, a, b)
                (packed if m.packed else params).extend(_some(where))
        found.append((params, packed))
    return found


def _runs(rows: np.ndarray) -> list[tuple[int, int]]:
    """Ascending row numbers as contiguous ranges."""
    parts = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    return [(int(p[0]), int(p[-1]) + 1) for p in parts if len(p)]
