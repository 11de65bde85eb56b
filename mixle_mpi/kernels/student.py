"""Student's t: scores, and the moments of its scale mixture of Gaussians."""

from __future__ import annotations

import math

from numba import njit

from mixle_mpi.kernels.elementary import FAST


@njit(cache=True, fastmath=FAST)
def student_scores(x, loc, precision, df, constant, scores):
    """scores[m] += constant[m] - (df[m] + 1) / 2 log(1 + (x - loc[m])^2 precision[m] / df[m]).

    x (n,); loc, precision, df, constant (members,); scores (members, n).
    """
    for m in range(len(loc)):
        for r in range(len(x)):
            z = x[r] - loc[m]
            scores[m, r] += constant[m] - 0.5 * (df[m] + 1.0) * math.log1p(z * precision[m] / df[m] * z)


@njit(cache=True)
def student_moments(x, loc, precision, df, weights, sums):
    """sums[m] += of w: 1, u, u z, u z^2, log(u) - u, with z = x - loc and u the expected precision of a row.

    Given x a row's precision is gamma distributed with mean u = (df + 1) / (df + z^2 precision).
    weights (members, n); sums (members, 5). Rows of weight 0 add nothing.

    Source
    ------
    Liu and Rubin (1995), Statistica Sinica 5, 19-39.
    """
    for m in range(len(loc)):
        for r in range(len(x)):
            w = weights[m, r]
            if w > 0.0:
                z = x[r] - loc[m]
                u = (df[m] + 1.0) / (df[m] + z * precision[m] * z)
                sums[m, 0] += w
                sums[m, 1] += w * u
                sums[m, 2] += w * u * z
                sums[m, 3] += w * u * z * z
                sums[m, 4] += w * (math.log(u) - u)
