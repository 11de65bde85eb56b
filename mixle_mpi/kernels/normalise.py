"""Log-sum-exp over the units of each member, and the responsibilities that it leaves.

Arrays are members first, rows last, so that inner loops run over contiguous rows and a range of units
is a contiguous part of the array. Units of member i are rows offsets[i] to offsets[i + 1].
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mixle_mpi.kernels.elementary import FAST, IMPOSSIBLE, exp_nonpositive


@njit(cache=True, fastmath=FAST)
def raise_maximum(scores, log_weights, offsets, top):
    """top[i, r] = max(top[i, r], log_weights[u] + scores[u, r]) over the units u of member i.

    scores (units, n), log_weights (units,), offsets (members + 1,) int64, top (members, n) in and out.
    """
    n = scores.shape[1]
    for i in range(len(offsets) - 1):
        for u in range(offsets[i], offsets[i + 1]):
            w = log_weights[u]
            for r in range(n):
                top[i, r] = max(top[i, r], scores[u, r] + w)


@njit(cache=True, fastmath=FAST)
def add_exponentials(scores, log_weights, offsets, top, total):
    """scores becomes exp(log_weights[u] + scores[u, r] - top[i, r]); its sum over units is added to total.

    Where top is impossible (below -1e250) the exponentials are 0. Shapes as in `raise_maximum`.
    """
    n = scores.shape[1]
    for i in range(len(offsets) - 1):
        for r in range(n):
            if top[i, r] < IMPOSSIBLE:
                top[i, r] = np.inf
        for u in range(offsets[i], offsets[i + 1]):
            w = log_weights[u]
            for r in range(n):
                e = exp_nonpositive(scores[u, r] + w - top[i, r])
                scores[u, r] = e
                total[i, r] += e
        for r in range(n):
            if top[i, r] == np.inf:
                top[i, r] = -np.inf


@njit(cache=True, fastmath=FAST)
def weigh_exponentials(scores, offsets, factor, counts):
    """scores[u, r] *= factor[i, r], the responsibilities; their sums over rows are added to counts (units,)."""
    n = scores.shape[1]
    for i in range(len(offsets) - 1):
        for u in range(offsets[i], offsets[i + 1]):
            count = 0.0
            for r in range(n):
                value = scores[u, r] * factor[i, r]
                scores[u, r] = value
                count += value
            counts[u] += count


@njit(cache=True)
def place_labels(labels, positions, offsets, weights, resp, counts):
    """Hard responsibilities: resp[u, r] = weights[i, r] where labels[r] is the number of unit u, else 0.

    labels (n,) int32; positions (units,) int64, each unit's number within its member; weights
    (members, n); resp (units, n) overwritten; counts (units,) increased.
    """
    n = len(labels)
    for i in range(len(offsets) - 1):
        for u in range(offsets[i], offsets[i + 1]):
            count = 0.0
            for r in range(n):
                value = weights[i, r] if labels[r] == positions[u] else 0.0
                resp[u, r] = value
                count += value
            counts[u] += count
