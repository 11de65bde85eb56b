"""What an executor asks of a group of ranks, and the group of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np


class Axis(ABC):
    """A group of ranks that call the same methods in the same order; every method is collective.

    Arrays are checked before they are sent: float64 or an integer type, C-contiguous.
    """

    rank: int = 0
    size: int = 1

    @abstractmethod
    def allgather(self, value: Any) -> list:
        """The objects of all ranks, in rank order. Pickles: for set-up, not for the loop."""

    @abstractmethod
    def allreduce(self, array: np.ndarray, how: str = "sum") -> None:
        """Replace the array by the sum, minimum or maximum over ranks, in place."""

    @abstractmethod
    def allgather_array(self, array: np.ndarray) -> np.ndarray:
        """The arrays of all ranks, equally shaped, as (size, *shape)."""

    @abstractmethod
    def bcast(self, array: np.ndarray, root: int = 0) -> None:
        """Replace the array by that of one rank, in place."""

    @abstractmethod
    def alltoall(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        """parts[r] goes to rank r, 1-d arrays of one type and any lengths; what came from each rank."""

    @abstractmethod
    def barrier(self) -> None:
        """Return when all ranks have called it."""


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

    def bcast(self, array, root=0):
        checked(array)

    def alltoall(self, parts):
        return list(parts)

    def barrier(self):
        pass
