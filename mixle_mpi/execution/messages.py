"""Messages that are too large for one call, in parts."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from mixle_mpi.planning.machine import parse_bytes

MESSAGE_LIMIT = 1 << 30  # bytes in one collective call, unless MIXLE_MPI_MESSAGE_LIMIT says so; more goes in parts


def message_limit() -> int:
    """Bytes in one collective call at most. Raises ModelError when the environment says it in no such number."""
    given = os.environ.get("MIXLE_MPI_MESSAGE_LIMIT")
    return MESSAGE_LIMIT if not given else parse_bytes(given, "MIXLE_MPI_MESSAGE_LIMIT")


def in_parts(array: np.ndarray, limit: int) -> Iterator[np.ndarray]:
    """Consecutive flat parts of an array, of so many bytes at most."""
    flat, step = array.reshape(-1), max(1, limit // array.itemsize)
    for at in range(0, flat.size, step):
        yield flat[at : at + step]


def rounds(counts: list[int], itemsize: int, limit: int) -> Iterator[tuple[int, int | None, list[int]]]:
    """First value of each rank's part, values at most, and each rank's number of them, of rounds within a limit of
    bytes; None for a single round."""
    if sum(counts) * itemsize <= limit:
        yield 0, None, list(counts)
        return
    step = max(1, limit // (itemsize * len(counts)))
    for at in range(0, max(counts), step):
        yield at, step, [min(max(n - at, 0), step) for n in counts]


def cut_out(array: np.ndarray, counts: list[int], at: int, step: int) -> np.ndarray:
    """Values `at` to `at + step` of each rank's part of a flat array, one after another."""
    starts = np.cumsum(counts) - counts
    return np.concatenate([array[s + min(at, n) : s + min(at + step, n)] for s, n in zip(starts, counts)])
