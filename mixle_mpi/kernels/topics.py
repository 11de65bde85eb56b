"""Inner rounds of topic models: the shares of topics in documents, and what words count for topics.

Document i has the words `words[offsets[i]:offsets[i + 1]]`, each `counts` times. `table` (words + 1, topics) is the
density of a word in a topic, the last row that of words without parameters; rows are words, as a token reads one. In a
round topic k of a document weighs a[k]: the exponential of the digamma of gamma[k] where documents have a Dirichlet
prior, else gamma[k] itself. A token's normaliser is the sum of a[k] table[w, k] over all topics, and the next gamma[k]
is alpha[k] + a[k] sum of counts[w] table[w, k] / normaliser[w].
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from mixle_mpi.kernels.digamma import exp_digamma, scaled_digamma
from mixle_mpi.kernels.elementary import FAST

FAINT = 1e-14  # share of a document's words of which a topic with less takes no part in further rounds
NARROWED = 0.75  # topics are gathered anew when only so many of them are left
GATHERED = 1 << 17  # values of a document that are gathered at most, a megabyte
PADDED = 8  # rows of gathered values are filled up with zeros to a multiple of so many, which vectors are
LEAST_WEIGHT = -100.0  # logarithm below which a topic's weight is not followed
LEAST_NORMALISER = 1e-280  # a word with less has probability zero: counts over it, and sums of them, do not overflow


@njit(cache=True, fastmath=FAST, error_model="numpy")
def weigh(gamma, which, dirichlet, topics, held, a):
    """Weights a[i] (documents, topics) of the topics that the documents `which` still have: `held` (documents,) of
    them, topics[i] (documents, topics) int32."""
    for i in which:
        own, left = gamma[i], topics[i]
        for n in range(held[i]):
            value = own[left[n]]
            a[i, n] = exp_digamma(value, LEAST_WEIGHT) if dirichlet else value


@njit(cache=True, fastmath=FAST, error_model="numpy")
def normalise(words, offsets, which, a, topics, held, table, out):
    """Normalisers, of the topics held here, of the words of the documents `which`, one after another in `out`."""
    at = 0
    for i in which:
        own, left, m = a[i], topics[i], held[i]
        for j in range(offsets[i], offsets[i + 1]):
            total, row = 0.0, table[words[j]]
            if m == len(row):
                for k in range(m):
                    total += own[k] * row[k]
            else:
                for n in range(m):
                    total += own[n] * row[left[n]]
            out[at] = total
            at += 1


@njit(cache=True, fastmath=FAST, error_model="numpy")
def update(words, counts, offsets, which, normalisers, lengths, a, topics, held, alpha, table, gamma, ratios, changes):
    """The next gamma of the documents `which`, (documents, topics) in and out, and by how much it changed in the topics
    held here, `changes` (which,), 0 for a document of probability zero. `normalisers` are as `normalise` leaves them,
    reduced; `ratios` (steps,) become counts over normalisers. Topics that have next to no words of a document are left
    out: `a`, `topics` and `held` are narrowed to the others."""
    at, taken = 0, np.empty(gamma.shape[1])
    for number, i in enumerate(which):
        own, left, m = a[i], topics[i], held[i]
        taken[:m] = 0.0
        possible = True
        for j in range(offsets[i], offsets[i + 1]):
            ratio = counts[j] / normalisers[at] if normalisers[at] > LEAST_NORMALISER else 0.0
            possible = possible and (normalisers[at] > LEAST_NORMALISER or counts[j] == 0.0)
            ratios[j] = ratio
            at += 1
            row = table[words[j]]
            if m == len(row):
                for k in range(m):
                    taken[k] += ratio * row[k]
            else:
                for n in range(m):
                    taken[n] += ratio * row[left[n]]
        change, q = 0.0, 0
        for n in range(m):
            k = left[n]
            new = own[n] * taken[n]
            more = new > FAINT * lengths[i]
            new += alpha[k]
            change += abs(new - gamma[i, k])
            gamma[i, k] = new
            if more:
                own[q], left[q] = own[n], k
                q += 1
        held[i] = q
        changes[number] = change if possible else 0.0


@njit(cache=True, fastmath=FAST, error_model="numpy")
def spread_logs(counts, offsets, which, ends, normalisers, out):
    """out[i] = the sum over the words of document i of counts times log normaliser, -inf where one is 0, of those of
    the documents `which` that end; `normalisers` are those of `normalise`."""
    at = 0
    for n, i in enumerate(which):
        total = 0.0
        for j in range(offsets[i], offsets[i + 1]):
            if counts[j] > 0.0 and ends[n]:
                total += counts[j] * math.log(normalisers[at]) if normalisers[at] > LEAST_NORMALISER else -np.inf
            at += 1
        if ends[n]:
            out[i] = total


@njit(inline="always")
def round_of_all(word, number, table, weight, taken, ratios):
    """Ratios of counts `number` to normalisers, and the sums over words of ratio times table, taken (topics,); whether
    no word has probability zero. Four words at a time: a weight is read once for them."""
    topics, possible = len(weight), True
    taken[:] = 0.0
    n = len(word)
    for j in range(0, n - 3, 4):
        a, b, c, d = table[word[j]], table[word[j + 1]], table[word[j + 2]], table[word[j + 3]]
        of_a = of_b = of_c = of_d = 0.0
        for k in range(topics):
            of_a += weight[k] * a[k]
            of_b += weight[k] * b[k]
            of_c += weight[k] * c[k]
            of_d += weight[k] * d[k]
        of_a = number[j] / of_a if of_a > LEAST_NORMALISER else -number[j]
        of_b = number[j + 1] / of_b if of_b > LEAST_NORMALISER else -number[j + 1]
        of_c = number[j + 2] / of_c if of_c > LEAST_NORMALISER else -number[j + 2]
        of_d = number[j + 3] / of_d if of_d > LEAST_NORMALISER else -number[j + 3]
        possible = possible and min(min(of_a, of_b), min(of_c, of_d)) >= 0.0
        of_a, of_b, of_c, of_d = max(of_a, 0.0), max(of_b, 0.0), max(of_c, 0.0), max(of_d, 0.0)
        ratios[j], ratios[j + 1], ratios[j + 2], ratios[j + 3] = of_a, of_b, of_c, of_d
        for k in range(topics):
            taken[k] += of_a * a[k] + of_b * b[k] + of_c * c[k] + of_d * d[k]
    for j in range(n - n % 4, n):
        a = table[word[j]]
        of_a = 0.0
        for k in range(topics):
            of_a += weight[k] * a[k]
        of_a = number[j] / of_a if of_a > LEAST_NORMALISER else -number[j]
        possible = possible and of_a >= 0.0
        ratios[j] = max(of_a, 0.0)
        for k in range(topics):
            taken[k] += max(of_a, 0.0) * a[k]
    return possible


@njit(inline="always")
def round_of_gathered(near, n, m, number, weight, taken, ratios):
    """As `round_of_all`, of m topics whose values for the n words were gathered, near[k * n : (k + 1) * n]. Four
    topics at a time: a word is read once for them."""
    ratios[:n] = 0.0
    for k in range(0, m - 3, 4):
        a, b = near[k * n : (k + 1) * n], near[(k + 1) * n : (k + 2) * n]
        c, d = near[(k + 2) * n : (k + 3) * n], near[(k + 3) * n : (k + 4) * n]
        of_a, of_b, of_c, of_d = weight[k], weight[k + 1], weight[k + 2], weight[k + 3]
        for j in range(n):
            ratios[j] += of_a * a[j] + of_b * b[j] + of_c * c[j] + of_d * d[j]
    for k in range(m - m % 4, m):
        a, of_a = near[k * n : (k + 1) * n], weight[k]
        for j in range(n):
            ratios[j] += of_a * a[j]
    for j in range(n):
        ratios[j] = number[j] / max(ratios[j], LEAST_NORMALISER)
    for k in range(0, m - 3, 4):
        a, b = near[k * n : (k + 1) * n], near[(k + 1) * n : (k + 2) * n]
        c, d = near[(k + 2) * n : (k + 3) * n], near[(k + 3) * n : (k + 4) * n]
        of_a = of_b = of_c = of_d = 0.0
        for j in range(n):
            ratio = ratios[j]
            of_a += ratio * a[j]
            of_b += ratio * b[j]
            of_c += ratio * c[j]
            of_d += ratio * d[j]
        taken[k], taken[k + 1], taken[k + 2], taken[k + 3] = of_a, of_b, of_c, of_d
    for k in range(m - m % 4, m):
        a, of_a = near[k * n : (k + 1) * n], 0.0
        for j in range(n):
            of_a += ratios[j] * a[j]
        taken[k] = of_a


@njit(cache=True, fastmath=FAST, error_model="numpy")
def all_rounds(words, counts, offsets, table, alpha, dirichlet, tolerance, most, gamma, a, topics, held, ratios, logs,
               rounds):  # fmt: skip
    """All rounds of all documents, where this shard has all topics.

    A document ends one round after the sum of what its gamma changed by is below `tolerance` times its words and
    sum of alpha, or after `most` rounds; one with a word of probability zero, whose logarithm is -inf, after two.
    Topics that have next to no words are left out on the way.

    Parameters
    ----------
    dirichlet : whether weights are exponentials of the digamma of gamma
    gamma : (documents, topics) in and out
    a, topics, held : (documents, topics), (documents, topics) int32, (documents,) int32 out: weights in the last round
        of the topics that have more than next to no words, which they are, and how many
    ratios : (steps,) out; logs : (documents,) out, as `spread_logs`; rounds : (documents,) int32 out
    """
    count = table.shape[1]
    prior = alpha.sum()
    weight, taken, own, base, level = np.empty((5, count))
    (near, times, shares), kept = np.empty((3, GATHERED)), np.empty(count, np.int64)
    for i in range(len(offsets) - 1):
        first, n = offsets[i], offsets[i + 1] - offsets[i]
        length = 0.0
        for j in range(first, first + n):
            length += counts[j]
        total, faint = prior + length, FAINT * length
        width = (n + PADDED - 1) // PADDED * PADDED
        m, gathered, settled, made, possible = count, False, False, 0, True
        for k in range(count):
            own[k], base[k], kept[k] = gamma[i, k], alpha[k], k
        word, number, share = words[first : first + n], counts[first : first + n], ratios[first : first + n]
        while n > 0:
            if dirichlet:
                for k in range(m):
                    weight[k] = exp_digamma(own[k], LEAST_WEIGHT)
            else:
                for k in range(m):
                    weight[k] = own[k]
            if gathered:  # topics first: a row for each, over the words
                round_of_gathered(near, width, m, times, weight, taken, shares)
            else:
                possible = round_of_all(word, number, table, weight, taken, share) and possible
            made += 1
            change = 0.0
            left = 0
            for k in range(m):
                new = weight[k] * taken[k]
                left += new > faint
                level[k] = new
                new += base[k]
                change += abs(new - own[k])
                own[k] = new
            if settled or made >= most:
                break
            settled = change < tolerance * total or not possible
            if 0 < left <= NARROWED * m and left * width <= GATHERED:
                q = 0
                for k in range(m):
                    if level[k] > faint:
                        row = near[q * width : (q + 1) * width]
                        if gathered:
                            row[:] = near[k * width : (k + 1) * width]
                        else:
                            for j in range(n):
                                row[j] = table[word[j], kept[k]]
                            row[n:] = 0.0
                        own[q], base[q] = own[k], base[k]
                        kept[q] = kept[k]
                        q += 1
                    else:
                        gamma[i, kept[k]] = own[k]
                if not gathered:
                    times[:n], times[n:width] = number, 0.0
                m, gathered = q, True
        if gathered:
            share[:] = shares[:n]
        log = 0.0 if possible else -np.inf
        for j in range(n):
            if number[j] > 0.0 and possible:
                log += number[j] * math.log(number[j] / share[j])
        left, m = 0, m if n > 0 else 0
        for k in range(m):
            gamma[i, kept[k]] = own[k]
            if level[k] > faint:
                a[i, left], topics[i, left] = weight[k], kept[k]
                left += 1
        held[i], logs[i], rounds[i] = left, log, made


@njit(cache=True, fastmath=FAST, error_model="numpy")
def add_words(words, offsets, ratios, a, topics, held, weights, sums):
    """sums[w, k] += weights[i] ratios[j] a[k] of the words of all documents; times `table` that is how often a word is
    from a topic. `sums` (words + 1, topics); the others as `all_rounds` leaves them."""
    count = a.shape[1]
    for i in range(len(offsets) - 1):
        m, own, which = held[i], a[i], topics[i]
        for j in range(offsets[i], offsets[i + 1]):
            ratio, row = weights[i] * ratios[j], sums[words[j]]
            if m == count:
                for k in range(count):
                    row[k] += ratio * own[k]
            else:
                for k in range(m):
                    row[which[k]] += ratio * own[k]


@njit(cache=True, fastmath=FAST, error_model="numpy")
def document_terms(gamma, a, topics, held, alpha, out):
    """out[i] += the sum over the topics held here of log Gamma(gamma) - log Gamma(alpha) - (gamma - alpha) log a: what
    the mix of a document adds to its bound, but for what all its topics share."""
    for i in range(len(held)):
        total = 0.0
        for n in range(held[i]):
            k = topics[i, n]
            total += math.lgamma(gamma[i, k]) - math.lgamma(alpha[k]) - (gamma[i, k] - alpha[k]) * math.log(a[i, n])
        out[i] += total


@njit(cache=True, fastmath=FAST, error_model="numpy")
def add_log_mixes(gamma, totals, weights, out):
    """out[k] += weights[i] (digamma(gamma[i, k]) - digamma(totals[i])): expected logarithms of the mixes."""
    for i in range(len(totals)):
        y, t = scaled_digamma(totals[i])
        whole = math.log(y) + t
        for k in range(gamma.shape[1]):
            y, t = scaled_digamma(gamma[i, k])
            out[k] += weights[i] * (math.log(y) + t - whole)
