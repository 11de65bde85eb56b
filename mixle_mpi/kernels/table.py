"""Scores by look-up and counts by scatter: categorical leaves with many levels."""

from __future__ import annotations

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
