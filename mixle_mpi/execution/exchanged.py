"""A group of ranks that can do one thing: show each other a value. All collectives follow from that."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from mixle_mpi.execution.axis import Axis, checked

REDUCE = {"sum": np.add, "min": np.minimum, "max": np.maximum}


class ExchangedAxis(Axis):
    """A group whose collectives are exchanges of values, arrays or others; sums are taken in rank order."""

    @abstractmethod
    def _exchange(self, value: Any) -> list:
        """The values of all ranks, in rank order; nobody writes into them. Collective."""

    def allgather(self, value):
        self._count_object()
        return self._exchange(value)

    def allreduce(self, array, how="sum"):
        self._count(checked(array).nbytes)
        parts = self._exchange(array.copy())
        for part in parts:
            checked(part, array.shape)
        array[...] = REDUCE[how].reduce(parts)

    def allgather_array(self, array):
        self._count(checked(array).nbytes)
        parts = self._exchange(array.copy())
        return np.stack([checked(part, array.shape) for part in parts])

    def reduce_scatter(self, array, counts):
        self._count(checked(array, (sum(counts),)).nbytes)
        start = sum(counts[: self.rank])
        return np.add.reduce([part[start : start + counts[self.rank]] for part in self._exchange(array)])

    def allgather_parts(self, array, counts):
        self._count(checked(array, (counts[self.rank],)).nbytes, any(counts))
        return np.concatenate(self._exchange(array.copy()))

    def bcast(self, array, root=0):
        self._count(checked(array).nbytes)
        array[...] = checked(self._exchange(array.copy())[root], array.shape)

    def alltoall(self, parts):
        self._count(sum(checked(p).nbytes for p in parts))
        everyone = self._exchange([p.copy() for p in parts])
        return [theirs[self.rank] for theirs in everyone]

    def exchange(self, array, counts, expected, whole):
        self._count(checked(array, (sum(counts),)).nbytes, True)
        everyone = self._exchange((array.copy(), counts))
        return np.concatenate([np.split(theirs, np.cumsum(sizes)[:-1])[self.rank] for theirs, sizes in everyone])

    def barrier(self):
        self._exchange(None)
