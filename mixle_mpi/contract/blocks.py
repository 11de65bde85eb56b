"""Who holds which rows: a pure function of the number of rows, never of who asks.

Rows are dealt in blocks whose borders depend on the number of rows only, so that a sum taken block by
block is the same on any number of data shards.
"""

from __future__ import annotations


def num_blocks(n: int) -> int:
    """Blocks that `n` rows are dealt in: one row a block up to 4096 rows, else the largest power of two <= n / 32."""
    if n <= 4096:
        return n
    return 1 << ((n // 32).bit_length() - 1)


def block_start(block: int, n: int) -> int:
    """First row of a block; blocks differ in size by at most one row. `block == num_blocks(n)` gives n."""
    return block * n // num_blocks(n) if n else 0


def shard_rows(shard: int, shards: int, n: int) -> tuple[int, int]:
    """First row and the row after the last of one of `shards` data shards of `n` rows."""
    blocks = num_blocks(n)
    return block_start(shard * blocks // shards, n), block_start((shard + 1) * blocks // shards, n)


def unit_range(shard: int, shards: int, units: int) -> tuple[int, int]:
    """Even contiguous split of `units`: first unit and the unit after the last of one shard."""
    return shard * units // shards, (shard + 1) * units // shards
