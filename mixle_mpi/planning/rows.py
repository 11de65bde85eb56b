"""Whole rows over data shards: even ones as `contract.blocks` deals them, or by speed at block borders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from mixle_mpi.contract.blocks import block_start, num_blocks, shard_rows


@lru_cache(maxsize=4096)
def busiest_rows(n: int, shards: int) -> int:
    """The most rows that one of `shards` data shards of `n` rows has."""
    if n <= 4096:
        return -(-n // shards)
    blocks = num_blocks(n)
    if n * blocks >= 2**63 or shards * blocks >= 2**63:
        return max(b - a for a, b in (shard_rows(d, shards, n) for d in range(shards)))
    borders = np.arange(shards + 1, dtype=np.int64) * blocks // shards * n // blocks
    return int(np.diff(borders).max())


def least_busiest_rows(n: int, shards: np.ndarray) -> np.ndarray:
    """At most `busiest_rows`, for many numbers of shards at once."""
    blocks = num_blocks(n)
    return np.maximum(-(-blocks // shards) * (n // blocks), -(-n // shards))


def deal_rows(n: int, per_row: Sequence[float], fixed: Sequence[float], most: Sequence[float]) -> list[int] | None:
    """Borders b[0] = 0, ..., b[shards] = n at block borders; the slowest shard takes as short as can be.

    Parameters
    ----------
    per_row, fixed : (shards,) seconds of a shard for each row and besides
    most : (shards,) rows that fit, infinite where unknown

    Returns
    -------
    None when the rows do not fit. Exact where blocks are single rows, that is for n <= 4096.
    """
    shards = len(per_row)
    if len(set(zip(per_row, fixed))) == 1 and min(most) >= busiest_rows(n, shards):
        return [shard_rows(d, shards, n)[0] for d in range(shards)] + [n]
    blocks = num_blocks(n)
    size = n / blocks
    each, besides = np.asarray(per_row) * size, np.asarray(fixed)
    room = np.floor(np.minimum(np.asarray(most) / math.ceil(size), blocks))

    def counts(limit: float) -> np.ndarray:
        found = np.floor((limit - besides) / np.where(each > 0, each, 1e-300))
        found = np.clip(found, 0, room)
        found += (found < room) & (besides + (found + 1) * each <= limit)  # the quotient is rounded
        return found

    if counts(math.inf).sum() < blocks:
        return None
    low, high = 0.0, float((besides + blocks * each).max())
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if counts(middle).sum() >= blocks else (middle, high)
    taken = counts(high)
    surplus = int(taken.sum()) - blocks
    while surplus > 0:  # the slowest give back first
        ends = np.where(taken > 0, besides + taken * each, -math.inf)
        slowest = int(np.argmax(ends))
        taken[slowest] -= 1
        surplus -= 1
    borders = np.concatenate([[0], np.cumsum(taken)]).astype(int)
    return [block_start(int(b), n) for b in borders]
