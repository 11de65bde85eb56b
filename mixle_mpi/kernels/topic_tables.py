"""Tables of the densities of words in topics, and what is counted turned back into statistics; see `kernels.topics`."""

from __future__ import annotations

import math

from numba import njit

from mixle_mpi.kernels.digamma import exp_digamma, scaled_digamma
from mixle_mpi.kernels.elementary import FAST

LEAST_TOTAL = -100.0  # logarithm of a topic below which its words' densities are worked out from logarithms
LEAST_DENSITY = -600.0  # logarithm below which the density of a word in a topic is not followed


@njit(inline="always")
def exp_difference(x, log):
    """exp(digamma(x) - log), at least exp(LEAST_DENSITY)."""
    y, t = scaled_digamma(x)
    return math.exp(max(math.log(y) + t - log, LEAST_DENSITY))


@njit(cache=True, fastmath=FAST, error_model="numpy")
def fill_expected(concentration, totals, least, table):
    """table[w, k] = exp(digamma(concentration[k, w]) - digamma(totals[k])); concentration (topics, words).

    The last row is that of a word with concentration `least` in each topic, without its factor exp(digamma(least)),
    which may be no number, and is the same for all topics.
    """
    topics, words = concentration.shape
    for first in range(0, words, 64):  # a block of words stays in the cache while it is turned
        for k in range(topics):
            y, t = scaled_digamma(totals[k])
            scale, whole = math.exp(-t) / y, math.log(y) + t
            dead = whole < LEAST_TOTAL  # a topic of next to nothing: neither factor need be a number
            smallest = exp_difference(least, whole) if dead else exp_digamma(least, LEAST_DENSITY) * scale
            for w in range(first, min(first + 64, words)):
                value = concentration[k, w]
                if value == least:
                    table[w, k] = smallest
                elif dead:
                    table[w, k] = exp_difference(value, whole)
                else:
                    table[w, k] = exp_digamma(value, LEAST_DENSITY) * scale
    for k in range(topics):
        y, t = scaled_digamma(totals[k])
        table[words, k] = math.exp(min(-math.log(y) - t, -LEAST_TOTAL))


@njit(cache=True, fastmath=FAST, error_model="numpy")
def turn(values, table):
    """table[w, k] = values[k, w]; the last row of the table becomes 0."""
    topics, words = values.shape
    for first in range(0, words, 64):
        for k in range(topics):
            for w in range(first, min(first + 64, words)):
                table[w, k] = values[k, w]
    table[words] = 0.0


@njit(cache=True, fastmath=FAST, error_model="numpy")
def turn_back(sums, table, out):
    """out[k, w] += sums[w, k] table[w, k]."""
    topics, words = out.shape
    for first in range(0, words, 64):
        for k in range(topics):
            for w in range(first, min(first + 64, words)):
                out[k, w] += sums[w, k] * table[w, k]


@njit(cache=True, fastmath=FAST, error_model="numpy")
def topic_terms(concentration, totals, least):
    """Sum over topics and words of log Gamma(c) - log Gamma(least) - (c - least) (digamma(c) - digamma(total)) for
    concentrations c (topics, words): what Dirichlet topics add to the bound, but for what their words share."""
    found, smallest = 0.0, math.lgamma(least)
    for k in range(len(concentration)):
        y, t = scaled_digamma(totals[k])
        whole = math.log(y) + t
        for w in range(concentration.shape[1]):
            value = concentration[k, w]
            if value != least:
                y, t = scaled_digamma(value)
                log = max(math.log(y) + t, LEAST_DENSITY)
                found += math.lgamma(value) - smallest - (value - least) * (log - whole)
    return found


@njit(cache=True, fastmath=FAST, error_model="numpy")
def place_seeds(words, counts, offsets, labels, first, weights, sums):
    """sums[w, labels[i] - first] += weights[i] counts[w] of the documents whose label is of a topic held here."""
    for i in range(len(labels)):
        k = labels[i] - first
        if 0 <= k < sums.shape[1]:
            for j in range(offsets[i], offsets[i + 1]):
                sums[words[j], k] += weights[i] * counts[j]
