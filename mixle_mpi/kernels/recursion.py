"""Forward and backward recursions of hidden Markov models over many sequences at once.

Steps are packed by time: the sequences are sorted by falling length, and the first steps of all of them come
first, then the second steps of those that have one, and so on, so that step t of sequence i is packed row
starts[t] + i. Arrays of steps are (steps, states), states last. Recursions are scaled: every step's forward
probabilities add up to one.

Source: Rabiner (1989), Proc. IEEE 77, 257-286.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mixle_mpi.kernels.elementary import FAST, IMPOSSIBLE, exp_nonpositive

WIDE = 24  # states; more, and as many sequences at a time, are multiplied by BLAS
MANY = 4


@njit(cache=True)
def pack(offsets, by_length, starts, order, sequence):
    """Place among the steps of each packed row, order (steps,), and whose it is, sequence (steps,), both int64.

    offsets (sequences + 1,); by_length those with steps, longest first; starts (times + 1,).
    """
    for t in range(len(starts) - 1):
        first = starts[t]
        for i in range(starts[t + 1] - first):
            order[first + i] = offsets[by_length[i]] + t
            sequence[first + i] = by_length[i]


@njit(cache=True, fastmath=FAST)
def densities(scores, order, out, top):
    """out[p, s] = exp(scores[s, order[p]] - top[p]), top[p] the largest over states, -inf where all are impossible.

    scores (states, n), order (steps,) int64, out (steps, states), top (steps,).
    """
    states = len(scores)
    for p in range(len(order)):
        q = order[p]
        most = -np.inf
        for s in range(states):
            value = scores[s, q]
            out[p, s] = value
            most = max(most, value)
        shift = most if most > IMPOSSIBLE else np.inf
        top[p] = most if most > IMPOSSIBLE else -np.inf
        for s in range(states):
            out[p, s] = exp_nonpositive(out[p, s] - shift)


@njit(cache=True, fastmath=FAST)
def add_product(row, matrix, out):
    """out (k,) += row (s,) @ matrix (s, k)."""
    s, k = matrix.shape
    for i in range(0, s - 3, 4):
        a, b, c, d = row[i], row[i + 1], row[i + 2], row[i + 3]
        for j in range(k):
            out[j] += a * matrix[i, j] + b * matrix[i + 1, j] + c * matrix[i + 2, j] + d * matrix[i + 3, j]
    for i in range(s - s % 4, s):
        a = row[i]
        for j in range(k):
            out[j] += a * matrix[i, j]


@njit(cache=True, fastmath=FAST)
def forward(density, starts, initial, transition, alpha, scale):
    """Forward probabilities alpha (steps, states) of packed steps, and scale (steps,), what they added up to.

    density (steps, states), starts (times + 1,) int64, initial (states,), transition (states, states).
    The scale is 0, and so are the probabilities, from the step on that no path explains.
    """
    states = len(initial)
    for t in range(len(starts) - 1):
        first, stop = starts[t], starts[t + 1]
        if t == 0:
            for p in range(first, stop):
                alpha[p] = initial
        else:
            before = starts[t - 1]
            if states >= WIDE and stop - first >= MANY:
                np.dot(alpha[before : before + stop - first], transition, alpha[first:stop])
            else:
                for p in range(first, stop):
                    alpha[p] = 0.0
                    add_product(alpha[before + p - first], transition, alpha[p])
        for p in range(first, stop):
            total = 0.0
            for s in range(states):
                alpha[p, s] *= density[p, s]
                total += alpha[p, s]
            scale[p] = total
            share = 1.0 / total if total > 0.0 else 0.0
            for s in range(states):
                alpha[p, s] *= share


@njit(cache=True, fastmath=FAST)
def backward(density, starts, back, end, alpha, scale, weights, expected):
    """Posteriors times weights, in place of alpha, from what `forward` left; expected transitions are added up.

    back (states, states) is the transposed transition matrix, C-contiguous; end (states,) is 1 for states in
    which a sequence may end, else 0; weights (sequences,) in packed order; expected (states, states) is
    increased by the posteriors of pairs of states divided by their transition probability. density is overwritten.
    """
    states = len(back)
    behind = np.empty((starts[1] - starts[0] if len(starts) > 1 else 0, states))
    for t in range(len(starts) - 2, -1, -1):
        first, stop = starts[t], starts[t + 1]
        after = stop
        last = starts[t + 2] if t + 2 < len(starts) else stop
        going = last - after  # sequences that have a further step
        for i in range(going):
            behind[i] = 0.0
        for i in range(going, stop - first):
            total = 0.0
            for s in range(states):
                total += alpha[first + i, s] * end[s]
            for s in range(states):
                behind[i, s] = end[s] / total if total > 0.0 else 0.0
        if states >= WIDE and going >= MANY:
            np.dot(density[after:last], back, behind[:going])
        else:
            for i in range(going):
                add_product(density[after + i], back, behind[i])
        for i in range(going):
            p, w = first + i, weights[i]
            for s in range(states):
                a = alpha[p, s] * w
                for k in range(states):
                    expected[s, k] += a * density[after + i, k]
        for i in range(stop - first):
            p, w = first + i, weights[i]
            share = 1.0 / scale[p] if scale[p] > 0.0 else 0.0
            for s in range(states):
                beta = behind[i, s]
                alpha[p, s] *= beta * w
                density[p, s] *= beta * share


@njit(cache=True)
def spread(values, order, out):
    """out[s, order[p]] = values[p, s]: packed steps (steps, states) back to their places (states, n)."""
    states = len(out)
    for p in range(len(order)):
        q = order[p]
        for s in range(states):
            out[s, q] = values[p, s]


@njit(cache=True)
def best_paths(scores, offsets, log_initial, log_transition, log_end, path):
    """Most probable states path (steps,) int32 of each sequence, and its log density (sequences,), by Viterbi.

    scores (states, steps), sequences one after another between offsets (sequences + 1,); log_end (states,) of the
    last state. Of equally probable states the lowest number wins.

    Source: Viterbi (1967), IEEE Trans. Inf. Theory 13, 260-269.
    """
    states, found = len(log_initial), np.zeros(len(offsets) - 1)
    for i in range(len(offsets) - 1):
        first, n = offsets[i], offsets[i + 1] - offsets[i]
        if n == 0:
            continue
        came = np.empty((n, states), np.int32)
        best, better = np.empty(states), np.empty(states)
        for s in range(states):
            best[s] = log_initial[s] + scores[s, first]
        for t in range(1, n):
            for k in range(states):
                came[t, k], better[k] = 0, best[0] + log_transition[0, k]
            for s in range(1, states):
                for k in range(states):
                    other = best[s] + log_transition[s, k]
                    if other > better[k]:
                        came[t, k], better[k] = s, other
            for k in range(states):
                best[k] = better[k] + scores[k, first + t]
        at = 0
        for s in range(states):
            best[s] += log_end[s]
            if best[s] > best[at]:
                at = s
        found[i] = best[at]
        for t in range(n - 1, -1, -1):
            path[first + t] = at
            at = came[t, at] if t > 0 else at
    return found


@njit(cache=True, fastmath=FAST)
def filter_chunk(prior, density, transition, alpha, scale, known, agree):
    """Forward probabilities of consecutive steps of one sequence; how many steps were worked out.

    prior (states,) is the distribution of the first state before its step is seen; density, alpha (steps, states),
    scale (steps,). Where alpha is `known` from another prior, it stops at the first step where the two differ by
    no more than `agree`: from there on they are equal, as the filter has forgotten where it started.
    """
    steps, states = density.shape
    row = np.empty(states)
    for t in range(steps):
        if t == 0:
            row[:] = prior
        else:
            row[:] = 0.0
            add_product(alpha[t - 1], transition, row)
        total = 0.0
        for s in range(states):
            row[s] *= density[t, s]
            total += row[s]
        share = 1.0 / total if total > 0.0 else 0.0
        apart = 0.0
        for s in range(states):
            value = row[s] * share
            apart = max(apart, abs(value - alpha[t, s]))
            alpha[t, s] = value
        scale[t] = total
        if known and apart <= agree:
            return t + 1
    return steps


@njit(cache=True, fastmath=FAST)
def smooth_chunk(behind, density, back, scale, beta, known, agree):
    """Backward probabilities beta (steps, states) of consecutive steps, from the last to the first; how many steps
    were worked out.

    behind (states,) are those of the last step; back (states, states) the transposed transition matrix. Where beta is
    `known` it stops as `filter_chunk` does, when no value differs by more than `agree` of the largest.
    """
    steps, states = density.shape
    row, seen = np.empty(states), np.empty(states)
    for done in range(steps):
        t = steps - 1 - done
        if done == 0:
            row[:] = behind
        else:
            share = 1.0 / scale[t + 1] if scale[t + 1] > 0.0 else 0.0
            for s in range(states):
                seen[s] = density[t + 1, s] * beta[t + 1, s] * share
            row[:] = 0.0
            add_product(seen, back, row)
        apart, most = 0.0, 0.0
        for s in range(states):
            apart = max(apart, abs(row[s] - beta[t, s]))
            most = max(most, row[s])
            beta[t, s] = row[s]
        if known and apart <= agree * most:
            return done + 1
    return steps


@njit(cache=True, fastmath=FAST)
def chunk_statistics(before, density, alpha, beta, scale, weight, expected):
    """Posteriors times weight in place of beta, and expected transitions as in `backward`; before (states,) are the
    forward probabilities of the step before the first, zeros where there is none."""
    steps, states = density.shape
    for t in range(steps):
        share = weight / scale[t] if scale[t] > 0.0 else 0.0
        for s in range(states):
            a = before[s] if t == 0 else alpha[t - 1, s]
            if a > 0.0:
                for k in range(states):
                    expected[s, k] += a * density[t, k] * beta[t, k] * share
    for t in range(steps):
        for s in range(states):
            beta[t, s] *= alpha[t, s] * weight


@njit(cache=True, fastmath=FAST)
def chunk_operator(density, transition, out):
    """out (states, states): the product over steps of transition @ diag(density[t]), up to a factor."""
    steps, states = density.shape
    for s in range(states):
        for k in range(states):
            out[s, k] = 1.0 if s == k else 0.0
    work = np.empty((states, states))
    for t in range(steps):
        most = 0.0
        for s in range(states):
            work[s] = 0.0
            add_product(out[s], transition, work[s])
            for k in range(states):
                work[s, k] *= density[t, k]
                most = max(most, work[s, k])
        share = 1.0 / most if most > 0.0 else 0.0
        for s in range(states):
            for k in range(states):
                out[s, k] = work[s, k] * share
