"""Scores by look-up and counts by scatter: categorical leaves with many levels."""

from __future__ import annotations

from numba import njit


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
