"""exp for kernels, and the options under which kernels are compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

# No "ninf" and no "nnan": scores may be -inf.
FAST = {"reassoc", "contract", "nsz", "arcp"}
IMPOSSIBLE = -1e250  # a score below this is -inf
LOG_ZERO = -1e300  # how log 0 is stored, so that 0 * log 0 = 0 in a product


@njit(inline="always")
def exp_nonpositive(x):
    """exp(x) for x <= 0, relative error 1e-14; 0 below -708. -inf is allowed, NaN is not.

    Range reduction by ln 2 in two parts, a polynomial of degree 11 on [-ln2/2, ln2/2], and the exponent shifted
    into its place in the integer view, where adding 2^52 has put it: a loop over this vectorises, as one that converts
    floats to integers does not on every processor.
    """
    y = max(x, -709.0)
    k = np.floor(y * 1.4426950408889634 + 0.5)
    r = y - k * 0.693147180369123816490
    r = r - k * 1.90821492927058770002e-10
    p = 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    power = np.int64(np.float64(k + (4503599627370496.0 + 1023.0)).view(np.int64) << 52).view(np.float64)
    return p * power if x > -708.0 else 0.0
