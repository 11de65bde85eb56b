"""What an executor asks of a group of ranks, and the group of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Traffic:
    """What one rank gave to the collectives of a group: calls with arrays, their bytes, calls with pickled objects."""

    messages: int = 0
    bytes: int = 0
    objects: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.messages + other.messages, self.bytes + other.bytes, self.objects + other.objects)

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.messages - other.messages, self.bytes - other.bytes, self.objects - other.objects)


class Pending:
    """A message that was started; by default one that has arrived already."""

    def __init__(self, result: Any = None):
        self._result = result

    @property
    def arrived(self) -> bool:
        """Whether the result is there, as was last looked."""
        return True

    def result(self) -> Any:
        """What the call returns that does not only begin; to be asked for once it has arrived."""
        return self._result


class Axis(ABC):
    """A group of ranks that call the same methods in the same order; every method is collective.

    Arrays are checked before they are sent: float64 or an integer type, C-contiguous.

    Attributes
    ----------
    traffic : what this rank has given to the group, and to parts of it, so far; a group of one sends nothing
    overlaps : whether messages that are started arrive while this rank does other things
    """

    rank: int = 0
    size: int = 1
    overlaps: bool = False

    def __init__(self, traffic: Traffic | None = None) -> None:
        self.traffic = Traffic() if traffic is None else traffic

    def _count(self, nbytes: int, others: bool = False) -> None:
        """Count a call with an array of so many bytes; without a byte of anybody, as in a barrier, it is no message.

        `others` says that another rank gives some.
        """
        if self.size > 1 and (nbytes or others):
            self.traffic.messages += 1
            self.traffic.bytes += nbytes

    def _count_object(self) -> None:
        if self.size > 1:
            self.traffic.objects += 1

    @abstractmethod
    def allgather(self, value: Any) -> list:
        """The objects of all ranks, in rank order. Pickles: for set-up, not for the loop."""

    def troubles(self, error: Exception | None) -> list:
        """The errors of all ranks, None of those that have none, in rank order."""
        return self.allgather(error)

    @abstractmethod
    def allreduce(self, array: np.ndarray, how: str = "sum") -> None:
        """Replace the array by the sum, minimum or maximum over ranks, in place."""

    @abstractmethod
    def allgather_array(self, array: np.ndarray) -> np.ndarray:
        """The arrays of all ranks, equally shaped, as (size, *shape)."""

    @abstractmethod
    def reduce_scatter(self, array: np.ndarray, counts: list[int]) -> np.ndarray:
        """Of the sum of the flat arrays over ranks, this rank's part: the first counts[0] values are rank 0's."""

    @abstractmethod
    def allgather_parts(self, array: np.ndarray, counts: list[int]) -> np.ndarray:
        """The flat arrays of all ranks one after another, of which rank r's has counts[r] values."""

    @abstractmethod
    def bcast(self, array: np.ndarray, root: int = 0) -> None:
        """Replace the array by that of one rank, in place."""

    @abstractmethod
    def alltoall(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        """parts[r] goes to rank r, 1-d arrays of one type and any lengths; what came from each rank."""

    @abstractmethod
    def exchange(self, array: np.ndarray, counts: list[int], expected: list[int], whole: int) -> np.ndarray:
        """Of a flat array the next counts[r] values go to rank r; what came, expected[r] values from rank r. `whole`
        is what all ranks send together, known to each."""

    def start_allreduce(self, array: np.ndarray) -> Pending:
        """Begin `allreduce`; the result is the array, which nobody may touch before."""
        self.allreduce(array)
        return Pending(array)

    def start_allgather(self, array: np.ndarray) -> Pending:
        """Begin `allgather_array`."""
        return Pending(self.allgather_array(array))

    def start_exchange(self, array: np.ndarray, counts: list[int], expected: list[int], whole: int) -> Pending:
        """Begin `exchange`."""
        return Pending(self.exchange(array, counts, expected, whole))

    def wait_any(self, pending: Sequence[Pending]) -> int:
        """The first of some messages, of this group or of parts of it, that has arrived; waits until one has."""
        return next(k for k, message in enumerate(pending) if message.arrived)

    def part(self, ranks: tuple[int, ...], copy: int, colour: int = 0) -> Axis:
        """The group of some ranks of this one, as one of several `copy`s whose messages do not meet; made once, and
        freed with this one. Collective over those ranks: they ask for the groups that they share in the same order.

        Of groups with a common rank no two have the same `colour`.
        """
        raise TypeError(f"{type(self).__name__} has no parts")

    @abstractmethod
    def barrier(self) -> None:
        """Return when all ranks have called it."""

    def meet(self) -> None:
        """As `barrier`, for long waits: a rank that waits leaves its core to others."""
        self.barrier()

    def arrive(self, seconds: float | None, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """Whether all ranks call this within so many seconds, None for any time; see `grid.all_arrive`."""
        self.barrier()
        return True

    def arranged(self, devices: tuple[tuple[int, ...], ...]) -> tuple[Axis, Axis, Axis] | None:
        """World, data and model group of a grid of some ranks, D rows of M; None on a rank that is not among them.

        Raises TypeError where ranks cannot leave some of them idle.
        """
        raise TypeError(f"ranks of a {type(self).__name__} cannot leave some of them idle")

    def node(self) -> Axis:
        """The ranks of the group that are processes of this one's host, to be freed by `free`."""
        return Alone()

    def free(self) -> None:  # noqa: B027 - only some groups hold anything
        """Give back what the group holds; nothing may be called afterwards."""


def checked(array: np.ndarray, like: tuple[int, ...] | None = None) -> np.ndarray:
    """The array, if it can be a buffer of a message. Raises ValueError that says what is wrong.

    `like` is the shape that the other side has.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or array.dtype == np.float32:
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise ValueError(f"a message buffer must be an array of float64 or integers, not {kind}")
    if not array.flags.c_contiguous:
        raise ValueError(f"a message buffer of shape {array.shape} is not C-contiguous")
    if like is not None and array.shape != tuple(like):
        raise ValueError(f"a message buffer of shape {array.shape} meets one of shape {tuple(like)}")
    return array


class Alone(Axis):
    """The group of one rank."""

    def allgather(self, value):
        return [value]

    def allreduce(self, array, how="sum"):
        checked(array)

    def allgather_array(self, array):
        return checked(array)[None]

    def reduce_scatter(self, array, counts):
        return checked(array, (counts[0],)).copy()

    def allgather_parts(self, array, counts):
        return checked(array, (counts[0],)).copy()

    def bcast(self, array, root=0):
        checked(array)

    def alltoall(self, parts):
        return list(parts)

    def exchange(self, array, counts, expected, whole):
        return checked(array, (counts[0],)).copy()

    def part(self, ranks, copy, colour=0):
        return self

    def barrier(self):
        pass
