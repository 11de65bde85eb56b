"""Rows that one rank read and another one holds change hands, once."""

from __future__ import annotations

import numpy as np

from mixle_mpi.data.encode import EncodedRows


def overlap(have: tuple[int, int], want: tuple[int, int]) -> tuple[int, int]:
    """The rows, first and after the last, that two ranges share; empty ranges start where `have` does."""
    first, stop = max(have[0], want[0]), min(have[1], want[1])
    return (first, stop) if first < stop else (have[0], have[0])


def exchange(rows: EncodedRows, ranges: list[tuple[int, int]], world) -> EncodedRows:
    """The rows ranges[rank], of which every rank has read a part. Collective.

    Array by array, so that at most one array is held twice.
    """
    have = (rows.first, rows.first + rows.n)
    first, stop = ranges[world.rank]
    arrays = {}
    for key in list(rows.arrays):
        values = rows.arrays.pop(key)
        parts = []
        for want in ranges:
            a, b = overlap(have, want)
            parts.append(np.ascontiguousarray(values[..., a - have[0] : b - have[0]]).reshape(-1))
        got = world.alltoall(parts)
        lead = values.shape[:-1]
        arrays[key] = np.concatenate([g.reshape(*lead, -1) for g in got], axis=-1)
    return EncodedRows(first, stop - first, arrays)
