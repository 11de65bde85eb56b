"""The recursions of `recursion` for few states, states first: each loop runs across the sequences that have a step.

Steps are packed by time as there; arrays of steps are (states, steps). With four states a loop over sequences fills the
vector units of a core, which one over states leaves mostly idle.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mixle_mpi.kernels.elementary import FAST, IMPOSSIBLE, exp_nonpositive
from mixle_mpi.kernels.recursion import FAINT, anew, weighed


@njit(cache=True, fastmath=FAST)
def densities(scores, order, out, top):
    """out[s, p] = exp(scores[s, order[p]] - top[p]), top[p] the largest over states, -inf where all are impossible.

    scores (states, n), order (steps,) int64, out (states, steps), top (steps,).
    """
    states, n = len(scores), len(order)
    top[:] = -np.inf
    for s in range(states):
        own, row = scores[s], out[s]
        for p in range(n):
            value = own[order[p]]
            row[p] = value
            top[p] = max(top[p], value)
    for p in range(n):
        top[p] = top[p] if top[p] > IMPOSSIBLE else -np.inf
    for s in range(states):
        row = out[s]
        for p in range(n):
            row[p] = exp_nonpositive(row[p] - (top[p] if top[p] > IMPOSSIBLE else np.inf))


@njit(cache=True, fastmath=FAST)
def add_products(rows, matrix, k, out):
    """out (n,) += sum over s of matrix[s, k] * rows[s] (n,)."""
    n = len(out)
    s, states = 0, len(rows)
    while s + 1 < states:
        first, second, a, b = rows[s], rows[s + 1], matrix[s, k], matrix[s + 1, k]
        for i in range(n):
            out[i] += first[i] * a + second[i] * b
        s += 2
    if s < states:
        last, a = rows[s], matrix[s, k]
        for i in range(n):
            out[i] += last[i] * a


@njit(cache=True, fastmath=FAST)
def forward(density, starts, initial, transition, alpha, scale, scores, order, top):
    """Forward probabilities alpha (states, steps) of packed steps, and scale (steps,), as `recursion.forward`."""
    states = len(initial)
    prior, own = np.empty(states), np.empty(states)
    share = np.empty(starts[1] - starts[0] if len(starts) > 1 else 0)
    for t in range(len(starts) - 1):
        first, stop = starts[t], starts[t + 1]
        n, before = stop - first, starts[t - 1] if t > 0 else 0
        total = scale[first:stop]
        total[:] = 0.0
        for k in range(states):
            row, seen = alpha[k, first:stop], density[k, first:stop]
            if t == 0:
                row[:] = initial[k]
            else:
                row[:] = 0.0
                add_products(alpha[:, before : before + n], transition, k, row)
            for i in range(n):
                total[i] += row[i] * seen[i]
        for i in range(n):
            if total[i] < FAINT:
                for k in range(states):
                    prior[k], own[k] = alpha[k, first + i], density[k, first + i]
                top[first + i] = anew(prior, scores, order[first + i], own, top[first + i])
                total[i] = weighed(prior, own)
                for k in range(states):
                    density[k, first + i] = own[k]
            share[i] = 1.0 / total[i] if total[i] > 0.0 else 0.0
        for k in range(states):
            row, seen = alpha[k, first:stop], density[k, first:stop]
            for i in range(n):
                row[i] *= seen[i] * share[i]


@njit(cache=True, fastmath=FAST)
def backward(density, starts, back, end, alpha, scale, weights, expected):
    """Posteriors times weights in place of alpha, from what `forward` left, and expected transitions, as
    `recursion.backward`; back (states, states) is the transposed transition matrix. density is overwritten."""
    states = len(back)
    most = starts[1] - starts[0] if len(starts) > 1 else 0
    behind, own, share = np.empty((states, most)), np.empty(most), np.empty(most)
    for t in range(len(starts) - 2, -1, -1):
        first, stop = starts[t], starts[t + 1]
        last = starts[t + 2] if t + 2 < len(starts) else stop
        n, going = stop - first, last - stop  # sequences here, and those that have a further step
        later = density[:, stop:last]
        for s in range(states):
            row = behind[s, :going]
            row[:] = 0.0
            add_products(later, back, s, row)
        for i in range(going, n):
            total = 0.0
            for s in range(states):
                total += alpha[s, first + i] * end[s]
            for s in range(states):
                behind[s, i] = end[s] / total if total > 0.0 else 0.0
        for s in range(states):
            row = alpha[s, first : first + going]
            for i in range(going):
                own[i] = row[i] * weights[i]
            for k in range(states):
                after, total = later[k], 0.0
                for i in range(going):
                    total += own[i] * after[i]
                expected[s, k] += total
        for i in range(n):
            share[i] = 1.0 / scale[first + i] if scale[first + i] > 0.0 else 0.0
        for s in range(states):
            row, seen, beta = alpha[s, first:stop], density[s, first:stop], behind[s]
            for i in range(n):
                value = beta[i] if row[i] > 0.0 else 0.0
                row[i] *= value * weights[i]
                seen[i] *= value * share[i]


@njit(cache=True)
def spread(values, order, out):
    """out[s, order[p]] = values[s, p]: packed steps (states, steps) back to their places (states, n)."""
    for s in range(len(out)):
        for p in range(len(order)):
            out[s, order[p]] = values[s, p]
