"""Gaussian features, and the residual forms that keep their digits far from the origin."""

from __future__ import annotations

import numpy as np
from numba import njit

from mixle_mpi.kernels.elementary import FAST


@njit(cache=True, fastmath=FAST)
def products(x, out):
    """out[c] = x[i] * x[j] for i >= j, row by row of the lower triangle; x (d, n), out (d (d + 1) / 2, n)."""
    d, n = x.shape
    c = 0
    for i in range(d):
        for j in range(i + 1):
            for r in range(n):
                out[c, r] = x[i, r] * x[j, r]
            c += 1


@njit(cache=True, fastmath=FAST)
def diagonal_scores(x, members, mean, precision, constant, present, scores):
    """scores[m] += present * (constant[m] - sum_j (x[j] - mean[m, j])^2 precision[m, j] / 2) for m in members.

    x (d, n); members (k,) int64; mean, precision (all, d); constant (all,); present (n,) 1 or 0.
    """
    d, n = x.shape
    for k in range(len(members)):
        m = members[k]
        for j in range(d):
            mu, half = mean[m, j], 0.5 * precision[m, j]
            c = constant[m] if j == 0 else 0.0
            for r in range(n):
                z = x[j, r] - mu
                # (half z) z: z * z may overflow where half z * z does not
                scores[m, r] += present[r] * (c - half * z * z)


@njit(cache=True, fastmath=FAST)
def diagonal_moments(x, members, mean, weights, present, weight, first, second):
    """Weights, first and second moments about each member's current mean, added to the statistics.

    weights (all, n); weight (all,); first, second (all, d). Rows of weight 0 add nothing, whatever x.
    """
    d, n = x.shape
    for k in range(len(members)):
        m = members[k]
        for j in range(d):
            mu, s0, s1, s2 = mean[m, j], 0.0, 0.0, 0.0
            for r in range(n):
                w = weights[m, r] * present[r]
                z = x[j, r] - mu if w > 0.0 else 0.0
                s0 += w
                s1 += w * z
                s2 += w * z * z
            if j == 0:
                weight[m] += s0
            first[m, j] += s1
            second[m, j] += s2


@njit(cache=True, fastmath=FAST)
def full_scores(x, members, mean, whiten, constant, present, scores):
    """scores[m] += present * (constant[m] - |whiten[m] (x - mean[m])|^2 / 2) for m in members.

    x (d, n); whiten (all, d, d) lower triangular, the inverse of the Cholesky factor of the covariance.
    """
    d, n = x.shape
    z = np.empty((d, n))
    y = np.empty(n)
    square = np.empty(n)
    for k in range(len(members)):
        m = members[k]
        for j in range(d):
            for r in range(n):
                z[j, r] = x[j, r] - mean[m, j]
        square[:] = 0.0
        for i in range(d):
            y[:] = 0.0
            for j in range(i + 1):
                a = whiten[m, i, j]
                for r in range(n):
                    y[r] += a * z[j, r]
            for r in range(n):
                square[r] += y[r] * y[r]
        for r in range(n):
            scores[m, r] += present[r] * (constant[m] - 0.5 * square[r])


@njit(cache=True, fastmath=FAST)
def full_moments(x, members, mean, weights, present, weight, first, second):
    """As `diagonal_moments`, with second (all, d (d + 1) / 2) in the order of `products`."""
    d, n = x.shape
    z = np.empty((d, n))
    wz = np.empty(n)
    for k in range(len(members)):
        m = members[k]
        total = 0.0
        for r in range(n):
            total += weights[m, r] * present[r]
        weight[m] += total
        for j in range(d):
            for r in range(n):
                z[j, r] = x[j, r] - mean[m, j] if weights[m, r] * present[r] > 0.0 else 0.0
        c = 0
        for i in range(d):
            total = 0.0
            for r in range(n):
                wz[r] = weights[m, r] * present[r] * z[i, r]
                total += wz[r]
            first[m, i] += total
            for j in range(i + 1):
                total = 0.0
                for r in range(n):
                    total += wz[r] * z[j, r]
                second[m, c] += total
                c += 1
