"""Rows that one rank read and another one holds change hands, once."""

from __future__ import annotations

import numpy as np

from mixle_mpi.data.encode import EncodedRows, EncodedSteps


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
    spans = [(a - have[0], b - have[0]) for a, b in (overlap(have, want) for want in ranges)]
    sequences = {}
    for name, steps in rows.sequences.items():
        lengths = {"": np.diff(steps.offsets)}
        offsets = np.concatenate([[0], np.cumsum(_exchanged(lengths, stop - first, spans, world)[""])])
        of_steps = [(int(steps.offsets[a]), int(steps.offsets[b])) for a, b in spans]
        arrays = _exchanged(steps.arrays, int(offsets[-1]), of_steps, world)
        sequences[name] = EncodedSteps(offsets, arrays, steps.single)
    arrays = _exchanged(rows.arrays, stop - first, spans, world)
    return EncodedRows(first, stop - first, arrays, rows.single, sequences)


def _exchanged(arrays: dict, n: int, spans: list[tuple[int, int]], world) -> dict:
    """Arrays of `n` rows, of which every rank gives the ranges spans[rank] of its own; these are taken away."""
    found = {}
    for key in list(arrays):
        values = arrays.pop(key)
        found[key] = np.empty((*values.shape[:-1], n), values.dtype)
        for own, target in zip(np.atleast_2d(values), np.atleast_2d(found[key])):
            # messages have no float32: four bytes are an integer as well
            sent = own.view(np.int32) if own.dtype == np.float32 else own
            got = world.alltoall([sent[a:b] for a, b in spans])
            np.concatenate([part.view(own.dtype) for part in got], out=target)
    return found
