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

    Array by array, and each column of numbers by itself, so that at most one array is held twice.
    """
    if world.size == 1:
        return rows
    have = (rows.first, rows.first + rows.n)
    first, stop = ranges[world.rank]
    spans = [overlap(have, want) for want in ranges]
    arrays = {}
    for key in list(rows.arrays):
        values = rows.arrays.pop(key)
        arrays[key] = np.empty((*values.shape[:-1], stop - first), values.dtype)
        for own, target in zip(np.atleast_2d(values), np.atleast_2d(arrays[key])):
            # messages have no float32: four bytes are an integer as well
            sent = own.view(np.int32) if own.dtype == np.float32 else own
            got = world.alltoall([sent[a - have[0] : b - have[0]] for a, b in spans])
            np.concatenate([part.view(own.dtype) for part in got], out=target)
    return EncodedRows(first, stop - first, arrays, rows.single)
