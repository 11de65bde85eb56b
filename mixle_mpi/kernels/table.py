"""Scores by look-up and counts by scatter: categorical leaves with many levels, transitions of Markov chains."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def indicators(codes, out):
    """out[k, r] = 1 where codes[r] = k, else 0; codes (n,) int32, out (levels, n)."""
    out[:] = 0.0
    for r in range(len(codes)):
        if codes[r] < out.shape[0]:
            out[codes[r], r] = 1.0


@njit(cache=True)
def look_up(table, codes, scores):
    """scores[m, r] += table[m, codes[r]]; table (members, levels + 2), codes (n,), scores (members, n)."""
    for m in range(table.shape[0]):
        for r in range(len(codes)):
            scores[m, r] += table[m, codes[r]]


@njit(cache=True)
def scatter(weights, codes, counts):
    """counts[m, codes[r]] += weights[m, r]; weights (members, n), counts (members, levels + 2)."""
    for m in range(counts.shape[0]):
        for r in range(len(codes)):
            counts[m, codes[r]] += weights[m, r]


@njit(cache=True)
def transitions(labels, offsets, levels, order, codes):
    """codes[t]: the cell of a table of transitions that step t of its sequence reads.

    Rows of the table (contexts, levels) are the `order` labels before, as a number to base `levels`, the last label
    the last digit; before them those of the steps that have fewer labels before them, the empty context first. A
    step that is no level, and all after it, read the cell after the last one.

    labels (steps,) int32, sequences one after another between offsets (sequences + 1,); codes (steps,) int32.
    """
    contexts, width = 0, 1
    for _ in range(order):
        contexts += width
        width *= levels
    outside = (contexts + width) * levels
    for i in range(len(offsets) - 1):
        first, base, power, context, known = offsets[i], 0, 1, 0, True
        for t in range(first, offsets[i + 1]):
            label = np.int64(labels[t])
            known = known and label < levels
            codes[t] = (base + context) * levels + label if known else outside
            context = context * levels + label
            if t - first < order:
                base += power
                power *= levels
            elif known:
                context -= labels[t - order] * width


@njit(cache=True)
def look_up_sums(table, codes, offsets, scores):
    """scores[m, i] = sum of table[codes[t], m] over the steps of sequence i, 0 where it has none.

    table (cells, members), codes (steps,), offsets (sequences + 1,), scores (members, sequences).
    """
    members = table.shape[1]
    total = np.empty(members)
    for i in range(len(offsets) - 1):
        total[:] = 0.0
        for t in range(offsets[i], offsets[i + 1]):
            row = codes[t]
            for m in range(members):
                total[m] += table[row, m]
        for m in range(members):
            scores[m, i] = total[m]


@njit(cache=True)
def scatter_sums(weights, codes, offsets, counts):
    """counts[codes[t], m] += weights[m, i] for the steps of sequence i; weights (members, sequences), counts (cells,
    members)."""
    members = counts.shape[1]
    own = np.empty(members)
    for i in range(len(offsets) - 1):
        for m in range(members):
            own[m] = weights[m, i]
        for t in range(offsets[i], offsets[i + 1]):
            row = codes[t]
            for m in range(members):
                counts[row, m] += own[m]
