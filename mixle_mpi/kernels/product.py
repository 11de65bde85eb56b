"""The two matrix products of natural leaves, in parts that libraries are fast at.

A product with few rows or columns takes OpenBLAS up to three times as long as its arithmetic, as it copies both
factors first. Up to a million multiplications it takes another way, without copies, and so do products with
long sides when they go in parts; parts are passed to `matmul`, because `dot` copies them itself.
"""

from __future__ import annotations

import numpy as np

SMALL = 1_000_000  # multiplications of one part
LEAST_ROWS = 40  # of a part of scores; where only fewer would fit, all go in one product
SMALL_SUMS = 1000  # members times features of a part of sums
FEW, MANY_ROWS = 40, 300  # members at most, and rows at least, for sums in parts


def scores(eta: np.ndarray, features: np.ndarray, out: np.ndarray) -> None:
    """out (m, n) = eta (m, w) @ features (w, n)."""
    n = features.shape[1]
    step = SMALL // max(eta.size, 1)
    for rows in _ranges(n, step if step >= LEAST_ROWS else n):
        np.matmul(eta, features[:, rows], out=out[:, rows])


def add_sums(weights: np.ndarray, features: np.ndarray, sums: np.ndarray) -> None:
    """sums (m, w) += weights (m, n) @ features (w, n).T."""
    (m, width), n = sums.shape, features.shape[1]
    if not 0 < m <= FEW or n < MANY_ROWS:
        sums += np.matmul(weights, features.T)
        return
    for columns in _ranges(width, SMALL_SUMS // m):
        for rows in _ranges(n, SMALL // (m * (columns.stop - columns.start))):
            sums[:, columns] += np.matmul(weights[:, rows], features[columns, rows].T)


def _ranges(n: int, most: int) -> list[slice]:
    """Ranges of about equal size, none above `most`."""
    parts = -(-n // max(most, 1))
    return [slice(n * i // parts, n * (i + 1) // parts) for i in range(parts)]
