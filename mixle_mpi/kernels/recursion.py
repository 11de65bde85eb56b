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

BLOCK = 32  # steps that are turned over at a time
FAINT = 1e-280  # a sum of probabilities below this has lost digits, or all
WIDE, MANY = 7, 12  # states, and sequences at a time, from which BLAS multiplies them faster


@njit(cache=True)
def pack(offsets, by_length, starts, order, place, sequence):
    """Number among the steps of each packed row, order (steps,), the packed row of each step, place (steps,), and whose
    each packed row is, sequence (steps,), all int64.

    offsets (sequences + 1,); by_length those with steps, longest first; starts (times + 1,).
    """
    for t in range(len(starts) - 1):
        first = starts[t]
        for i in range(starts[t + 1] - first):
            step = offsets[by_length[i]] + t
            order[first + i] = step
            place[step] = first + i
            sequence[first + i] = by_length[i]


@njit(cache=True, fastmath=FAST)
def densities(scores, place, out, top):
    """out[place[q], s] = exp(scores[s, q] - top[place[q]]), where top is the largest over states, -inf where all are
    impossible.

    scores (states, steps), place (steps,) int64, out (steps, states), top (steps,). Some steps at a time are read
    along the rows of scores, and turned over in the cache.
    """
    states, n = scores.shape
    block, most = np.empty((states, BLOCK)), np.empty(BLOCK)
    for first in range(0, n, BLOCK):
        m = min(BLOCK, n - first)
        most[:] = -np.inf
        for s in range(states):
            own = scores[s, first : first + m]
            for j in range(m):
                most[j] = max(most[j], own[j])
        for j in range(m):
            top[place[first + j]] = most[j] if most[j] > IMPOSSIBLE else -np.inf
            most[j] = most[j] if most[j] > IMPOSSIBLE else np.inf
        for s in range(states):
            own, row = scores[s, first : first + m], block[s]
            for j in range(m):
                row[j] = exp_nonpositive(own[j] - most[j])
        for j in range(m):
            row = out[place[first + j]]
            for s in range(states):
                row[s] = block[s, j]


@njit(inline="always")  # as a call for each step it would take twice as long
def add_product(row, matrix, out):
    """out (k,) += row (s,) @ matrix (s, k)."""
    s, k = matrix.shape
    i = 0
    while i + 3 < s:
        a, b, c, d = row[i], row[i + 1], row[i + 2], row[i + 3]
        of_a, of_b, of_c, of_d = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        for j in range(k):
            out[j] += a * of_a[j] + b * of_b[j] + c * of_c[j] + d * of_d[j]
        i += 4
    while i < s:
        a, of_a = row[i], matrix[i]
        for j in range(k):
            out[j] += a * of_a[j]
        i += 1


@njit(inline="always")
def weighed(prior, density):
    """The sum of prior * density, (states,) each."""
    total = 0.0
    for s in range(len(prior)):
        total += prior[s] * density[s]
    return total


@njit(cache=True)
def anew(prior, scores, step, density, top):
    """Densities (states,) of one step again, written to density: relative to the best of the states that can be.

    prior (states,) is 0 for those that cannot, whose density becomes 0; scores (states, n). Returns what was
    subtracted, -inf where no state explains the step; and `top`, what it was before, where none can be. The best of all
    states may be out of reach, and so far above the others that these were lost.
    """
    most, any_state = -np.inf, False
    for s in range(len(prior)):
        if prior[s] > 0.0:
            most, any_state = max(most, scores[s, step]), True
    if not any_state:
        return top
    for s in range(len(prior)):
        known = prior[s] > 0.0 and most > IMPOSSIBLE
        density[s] = exp_nonpositive(scores[s, step] - most) if known else 0.0
    return most if most > IMPOSSIBLE else -np.inf


@njit(cache=True, fastmath=FAST)
def forward(density, starts, initial, transition, alpha, scale, scores, order, top):
    """Forward probabilities alpha (steps, states) of packed steps, and scale (steps,), what they added up to.

    density (steps, states), starts (times + 1,) int64, initial (states,), transition (states, states). scores, order
    and top are those of `densities`; density and top are changed where states out of reach hid the others.
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
            row, seen = alpha[p], density[p]
            total = weighed(row, seen)
            if total < FAINT:
                top[p] = anew(row, scores, order[p], seen, top[p])
                total = weighed(row, seen)
            scale[p] = total
            share = 1.0 / total if total > 0.0 else 0.0
            for s in range(states):
                row[s] *= seen[s] * share


@njit(cache=True, fastmath=FAST)
def backward(density, starts, back, end, alpha, scale, weights, before):
    """Posteriors times weights, in place of alpha, from what `forward` left.

    back (states, states) is the transposed transition matrix, C-contiguous; end (states,) is 1 for states in
    which a sequence may end, else 0; weights (sequences,) in packed order. density, and before (steps, states), are
    written: before[p, s] * density[p, k] is the posterior of states s and k of a step and the one before, times its
    weight, divided by the transition probability. Of first steps before is not written.
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
                before[after + i, s] = alpha[p, s] * w
        for i in range(stop - first):
            p, w = first + i, weights[i]
            share = 1.0 / scale[p] if scale[p] > 0.0 else 0.0
            for s in range(states):
                beta = behind[i, s] if alpha[p, s] > 0.0 else 0.0  # out of reach: it may be beyond all numbers
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
def filter_chunk(prior, density, transition, alpha, scale, scores, top, known, agree):
    """Forward probabilities of consecutive steps of one sequence; how many steps were worked out.

    prior (states,) is the distribution of the first state before its step is seen; density, alpha (steps, states),
    scale, top (steps,), scores (states, steps) as in `forward`. Where alpha is `known` from another prior, it stops at
    the first step where no probability differs by more than `agree` of itself: from there on they are equal, as the
    filter has forgotten where it started. A small one counts as much as a large one: it may be all that is left later.
    """
    steps, states = density.shape
    row = np.empty(states)
    for t in range(steps):
        if t == 0:
            row[:] = prior
        else:
            row[:] = 0.0
            add_product(alpha[t - 1], transition, row)
        total = weighed(row, density[t])
        if total < FAINT:
            top[t] = anew(row, scores, t, density[t], top[t])
            total = weighed(row, density[t])
        share = 1.0 / total if total > 0.0 else 0.0
        apart = 0
        for s in range(states):
            value = row[s] * density[t, s] * share
            apart += abs(value - alpha[t, s]) > agree * value
            alpha[t, s] = value
        scale[t] = total
        if known and apart == 0:
            return t + 1
    return steps


@njit(cache=True, fastmath=FAST)
def smooth_chunk(behind, density, back, scale, alpha, beta, known, agree):
    """Backward probabilities beta (steps, states) of consecutive steps, from the last to the first; how many steps
    were worked out.

    behind (states,) are those of the last step; back (states, states) the transposed transition matrix. They are 0 for
    states out of reach, whose alpha is 0. Where beta is `known` it stops as `filter_chunk` does.
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
        apart = 0
        for s in range(states):
            value = row[s] if alpha[t, s] > 0.0 else 0.0
            apart += abs(value - beta[t, s]) > agree * value
            beta[t, s] = value
        if known and apart == 0:
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
def chunk_operator(density, transition, scores, top, out):
    """Logarithms out (states, states) of the product over steps of transition @ diag(density[t]).

    density (steps, states) relative to top (steps,), scores (states, steps). Each row is scaled by itself, and takes
    its own densities where those of the chunk leave nothing of it.
    """
    steps, states = density.shape
    own = np.empty(states)
    for s in range(states):
        row, logarithm = np.zeros(states), 0.0
        row[s] = 1.0
        for t in range(steps):
            work = np.zeros(states)
            add_product(row, transition, work)
            own[:] = density[t]
            total = weighed(work, own)
            if total < FAINT:
                most = anew(work, scores, t, own, top[t])
                total = weighed(work, own)
                if total == 0.0:
                    logarithm = -np.inf
                    break
                logarithm += most - (top[t] if top[t] > -np.inf else 0.0)
            logarithm += np.log(total)
            for k in range(states):
                row[k] = work[k] * own[k] / total
        for k in range(states):
            out[s, k] = np.log(row[k]) + logarithm
