"""The Laplace distribution: scores, sums about the location, and the histogram that finds a weighted median."""

from __future__ import annotations

import numpy as np
from numba import njit

from mixle_mpi.kernels.elementary import FAST


@njit(cache=True, fastmath=FAST)
def laplace_scores(x, loc, rate, constant, scores):
    """scores[m] += constant[m] - |x - loc[m]| rate[m]; x (n,), loc, rate, constant (members,), scores (members, n)."""
    for m in range(len(loc)):
        for r in range(len(x)):
            scores[m, r] += constant[m] - abs(x[r] - loc[m]) * rate[m]


@njit(cache=True)
def laplace_sums(x, loc, weights, sums):
    """sums[m] += weight, weight of x < loc, weight of x = loc, sums of w |x - loc| and w (x - loc).

    sums (members, 5); rows of weight 0 add nothing.
    """
    for m in range(len(loc)):
        for r in range(len(x)):
            w = weights[m, r]
            if w > 0.0:
                z = x[r] - loc[m]
                sums[m, 0] += w
                if z < 0.0:
                    sums[m, 1] += w
                elif z == 0.0:
                    sums[m, 2] += w
                sums[m, 3] += w * abs(z)
                sums[m, 4] += w * z


def ordered(x: np.ndarray) -> np.ndarray:
    """Integers (n,) int64 in the order of the numbers x (n,): the bits of a double, negative ones reversed."""
    bits = np.ascontiguousarray(x + 0.0).view(np.int64)
    return bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))


def from_ordered(key: np.ndarray) -> np.ndarray:
    """The numbers of `ordered` integers."""
    return np.ascontiguousarray(key ^ ((key >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))).view(np.float64)


@njit(cache=True)
def histogram(keys, low, shift, active, weights, bins):
    """bins[m, (key - low[m]) >> shift[m]] += weight, for the active members and the keys in range.

    keys (n,) int64; low (members,) int64, shift (members,) int64, active (members,) bool; weights
    (members, n); bins (members, b).
    """
    b = bins.shape[1]
    for m in range(len(low)):
        if active[m]:
            for r in range(len(keys)):
                if keys[r] >= low[m] and weights[m, r] > 0.0:
                    at = np.uint64(keys[r] - low[m]) >> np.uint64(shift[m])
                    if at < b:
                        bins[m, at] += weights[m, r]
