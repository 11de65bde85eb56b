"""What crosses the model axis while a tile is scored: a partial value is sent, and made whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mixle_mpi.contract.decomposition import Partial, ReductionOp
from mixle_mpi.execution.axis import Axis, Pending
from mixle_mpi.kernels.normalise import fold

Whole = Callable[[np.ndarray], np.ndarray]


def start_partial(partial: Partial, axis: Axis) -> tuple[Pending, Whole]:
    """Begin to reduce a partial that all ranks of an axis have, in the same order; and what makes the reduced value of
    the message's result. Collective.

    LOGSUMEXP folds (maximum, scaled sum) pairs in rank order, so that every rank gets the same bits.
    """
    how, values = partial.reduction, partial.values
    if how is ReductionOp.SUM:
        return axis.start_allreduce(values), _itself
    if how is ReductionOp.LOGSUMEXP:
        return axis.start_allgather(values), _folded
    if how is ReductionOp.REPLICATE:
        return axis.start_allgather(values), _itself
    if how is ReductionOp.GATHER:
        return axis.start_exchange(values, list(partial.counts), list(partial.expected), partial.whole), _itself
    raise ValueError(f"no reduction is known for {how}")


def reduce_partial(partial: Partial, axis: Axis) -> np.ndarray:
    """The reduced value of a partial. Collective."""
    message, whole = start_partial(partial, axis)
    axis.wait_any([message])
    return whole(message.result())


def _itself(values: np.ndarray) -> np.ndarray:
    return values


def _folded(pairs: np.ndarray) -> np.ndarray:
    """Of pairs (ranks, 2, members, n) the log-sum-exp as a pair (2, members, n)."""
    out = np.empty(pairs.shape[1:])
    fold(pairs.reshape(len(pairs), 2, -1), out.reshape(2, -1))
    return out
