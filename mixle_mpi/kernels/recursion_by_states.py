"""One step of the recursions of `recursion` on a model shard that has some of the states, for several members.

What shards tell each other is padded to as many states as any of them has: told (shards, members, widest), of which
shard r's are borders[r] to borders[r + 1] of all.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mixle_mpi.kernels.elementary import FAST
from mixle_mpi.kernels.recursion import FAINT, add_product


@njit(cache=True, fastmath=FAST)
def prior_of(before, columns, prior):
    """prior (members, own) = before (members, states) @ columns (members, states, own)."""
    for m in range(len(prior)):
        prior[m] = 0.0
        add_product(before[m], columns[m], prior[m])


@njit(cache=True, fastmath=FAST)
def weigh(prior, density, own):
    """own (members, widest) = prior * density, (members, own states) each."""
    for m in range(len(prior)):
        for s in range(prior.shape[1]):
            own[m, s] = prior[m, s] * density[m, s]


@njit(cache=True, fastmath=FAST)
def settle(told, borders, alpha, scale):
    """Forward probabilities alpha (members, states) and scale (members,) of what shards told; whether a sum is too
    small to have all its digits."""
    faint = False
    for m in range(len(alpha)):
        total = 0.0
        for r in range(len(told)):
            for s in range(borders[r + 1] - borders[r]):
                alpha[m, borders[r] + s] = told[r, m, s]
                total += told[r, m, s]
        scale[m] = total
        faint = faint or total < FAINT
        share = 1.0 / total if total > 0.0 else 0.0
        for s in range(alpha.shape[1]):
            alpha[m, s] *= share
    return faint


@njit(cache=True, fastmath=FAST)
def behind_of(told, borders, rows, beta):
    """Backward probabilities beta (members, own) of what shards told of the step behind; rows (members, states, own) is
    the transposed part of the transition matrix."""
    together = np.empty(rows.shape[1])
    for m in range(len(beta)):
        for r in range(len(told)):
            for s in range(borders[r + 1] - borders[r]):
                together[borders[r] + s] = told[r, m, s]
        beta[m] = 0.0
        add_product(together, rows[m], beta[m])


@njit(cache=True, fastmath=FAST)
def smooth(alpha, density, scale, weights, beta, passed, posterior, own):
    """Of one step: posterior = alpha * beta * weights (members,), and passed = own = density * beta / scale, for the
    step before. All (members, own states), own padded; beta counts as 0 for states out of reach, where it may be
    beyond all numbers.
    """
    for m in range(len(beta)):
        share = 1.0 / scale[m] if scale[m] > 0.0 else 0.0
        for s in range(beta.shape[1]):
            value = beta[m, s] if alpha[m, s] > 0.0 else 0.0
            posterior[m, s] = alpha[m, s] * value * weights[m]
            own[m, s] = passed[m, s] = density[m, s] * value * share
