"""What crosses an axis while tiles are scored: partial values of several tiles in one message."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.decomposition import Partial, ReductionOp
from mixle_mpi.execution.axis import Axis
from mixle_mpi.kernels.normalise import fold


def reduce_partials(partials: list[Partial], axis: Axis) -> list[np.ndarray]:
    """The reduced values of partials that all ranks of an axis have, in the same order. Collective.

    One message for all. LOGSUMEXP folds (maximum, scaled sum) pairs in rank order, so that every rank
    gets the same bits.
    """
    how = partials[0].reduction
    if how is ReductionOp.GATHER:
        return exchange_partials(partials, axis)
    if how is ReductionOp.REPLICATE:
        return [axis.allgather_array(p.values) for p in partials]
    shapes = [p.values.shape for p in partials]
    flat = np.concatenate([p.values.reshape(2, -1) if how is ReductionOp.LOGSUMEXP else p.values.reshape(1, -1)
                           for p in partials], axis=1)  # fmt: skip
    if how is ReductionOp.SUM:
        axis.allreduce(flat)
    elif how is ReductionOp.LOGSUMEXP:
        fold(axis.allgather_array(flat), flat)
    else:
        raise ValueError(f"no reduction is known for {how}")
    sizes = np.cumsum([p.values.size // len(flat) for p in partials])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, sizes, axis=1), shapes)]


def exchange_partials(partials: list[Partial], axis: Axis) -> list[np.ndarray]:
    """What came for each of several GATHER partials, rank by rank, in one message for all. Collective."""
    sent = [np.split(p.values, np.cumsum(p.counts)[:-1]) for p in partials]
    counts = [sum(p.counts[rank] for p in partials) for rank in range(axis.size)]
    expected = [sum(p.expected[rank] for p in partials) for rank in range(axis.size)]
    flat = np.concatenate([parts[rank] for rank in range(axis.size) for parts in sent])
    came = axis.exchange(flat, counts, expected, sum(p.whole for p in partials))
    found: list[list[np.ndarray]] = [[] for _ in partials]
    at = 0
    for rank in range(axis.size):
        for own, p in zip(found, partials):
            own.append(came[at : at + p.expected[rank]])
            at += p.expected[rank]
    return [np.concatenate(parts) for parts in found]
