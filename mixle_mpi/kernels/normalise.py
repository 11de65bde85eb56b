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
def add_exponentials(scores, log_weights, offsets, starts, top, total):
    """scores becomes exp(log_weights[u] + scores[u, r] - top[i, r]); its sum over units is added to total.

    Of the units of member i those from starts[i] on are added; starts (members,) int64. Where top is impossible
    (below -1e250) the exponentials are 0. Other shapes as in `raise_maximum`.
    """
    n = scores.shape[1]
    for i in range(len(offsets) - 1):
        for r in range(n):
            if top[i, r] < IMPOSSIBLE:
                top[i, r] = np.inf
        for u in range(offsets[i], offsets[i + 1]):
            w, counts = log_weights[u], 1.0 if u >= starts[i] else 0.0
            for r in range(n):
                e = exp_nonpositive(scores[u, r] + w - top[i, r])
                scores[u, r] = e
                total[i, r] += counts * e
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


@njit(cache=True, fastmath=FAST)
def divide_by_total(scale, total, top):
    """scale[i, r] /= total[i, r]; all (members, n).

    Where the total is 0 the scale becomes 0, the total 1 and the top -inf, so that log(total) + top is log 0.
    """
    members, n = total.shape
    for i in range(members):
        for r in range(n):
            possible = total[i, r] > 0.0
            divisor = total[i, r] if possible else 1.0
            scale[i, r] = scale[i, r] / divisor if possible else 0.0
            top[i, r] = top[i, r] if possible else -np.inf
            total[i, r] = divisor


@njit(cache=True, fastmath=FAST)
def fold(pairs, out):
    """Log-sum-exp over shards: of pairs (shards, 2, n), meaning pairs[k, 1] * exp(pairs[k, 0]), the sum as such a pair.

    out (2, n); the shards are added in their order. Where all are impossible the sum is 0.
    """
    n = pairs.shape[2]
    out[0] = pairs[0, 0]
    out[1] = 0.0
    for k in range(1, len(pairs)):
        for r in range(n):
            out[0, r] = max(out[0, r], pairs[k, 0, r])
    for r in range(n):
        if out[0, r] < IMPOSSIBLE:
            out[0, r] = np.inf
    for k in range(len(pairs)):
        for r in range(n):
            out[1, r] += pairs[k, 1, r] * exp_nonpositive(pairs[k, 0, r] - out[0, r])
    for r in range(n):
        if out[0, r] == np.inf:
            out[0, r] = -np.inf


@njit(cache=True, fastmath=FAST)
def rescale(own, top, scale):
    """scale[i, r] = exp(own[i, r] - top[i, r]), 0 where own is impossible; all (members, n)."""
    members, n = own.shape
    for i in range(members):
        for r in range(n):
            shift = own[i, r] - top[i, r] if own[i, r] > IMPOSSIBLE else -np.inf
            scale[i, r] = exp_nonpositive(shift)


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
