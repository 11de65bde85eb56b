"""The digamma function for kernels."""

from __future__ import annotations

import math

from numba import njit

from mixle_mpi.kernels.elementary import exp_nonpositive


@njit(inline="always")
def scaled_digamma(x):
    """y > x and t <= 0 so that digamma(x) = log(y) + t, for x > 0: the exponential needs no logarithm.

    The recurrence moves x beyond 8, where the asymptotic series is exact to the last bits (Abramowitz and Stegun 1964,
    6.3.6 and 6.3.18); the steps of it are brought to one denominator.
    """
    over, under = 1.0, x
    for i in range(1, 8):
        over = over * (x + i) + under
        under = under * (x + i)
    y = x + 8.0
    r = 1.0 / y
    q = r * r
    series = q * (1 / 12 - q * (1 / 120 - q * (1 / 252 - q * (1 / 240 - q * (1 / 132 - q * (691 / 32760 - q / 12))))))
    return y, -0.5 * r - series - over / under


@njit(inline="always")
def exp_digamma(x, least):
    """exp(digamma(x)) for x > 0, at least exp(least)."""
    y, t = scaled_digamma(x)
    return max(y * exp_nonpositive(max(t, -700.0)), math.exp(least))
