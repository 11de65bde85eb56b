"""Who holds which rows: a pure function of the number of rows, never of who asks.

Rows are dealt in blocks whose borders depend on the number of rows only, so that a sum taken block by
block is the same on any number of data shards.
"""

from __future__ import annotations

import numpy as np


def num_blocks(n: int) -> int:
    """Blocks that `n` rows are dealt in: one row a block up to 4096 rows, else the largest power of two <= n / 32."""
    if n <= 4096:
        return n
    return 1 << ((n // 32).bit_length() - 1)


def block_start(block: int, n: int) -> int:
    """First row of a block; blocks differ in size by at most one row. `block == num_blocks(n)` gives n."""
    return block * n // num_blocks(n) if n else 0


def block_of(row, n: int):
    """The block of a row, or of rows (k,) int64."""
    return ((row + 1) * num_blocks(n) - 1) // n


def balanced_rows(work: np.ndarray, shards: int, n: int, ends: np.ndarray | None = None) -> list[int]:
    """Borders of the rows of data shards with about as much work each, at borders of blocks; `work` (blocks,).

    `ends` (shards + 1,) are the shares of all work at the borders, from 0 to 1, by default even ones.
    """
    done = np.concatenate([[0], np.cumsum(work)])
    share = done[-1] * np.arange(1, shards) / shards if ends is None else done[-1] * ends[1:-1]
    above = np.minimum(np.searchsorted(done, share), len(work))
    below = np.maximum(above - 1, 0)
    nearest = np.where(share - done[below] < done[above] - share, below, above)
    return [0, *(block_start(int(b), n) for b in nearest), n]


def shard_rows(shard: int, shards: int, n: int) -> tuple[int, int]:
    """First row and the row after the last of one of `shards` data shards of `n` rows."""
    blocks = num_blocks(n)
    return block_start(shard * blocks // shards, n), block_start((shard + 1) * blocks // shards, n)


def unit_range(shard: int, shards: int, units: int) -> tuple[int, int]:
    """Even contiguous split of `units`: first unit and the unit after the last of one shard."""
    return shard * units // shards, (shard + 1) * units // shards
