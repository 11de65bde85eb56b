"""Logarithms whose zero keeps products finite."""

from __future__ import annotations

import numpy as np

from mixle_mpi.kernels.elementary import LOG_ZERO


def safe_log(x: np.ndarray) -> np.ndarray:
    """log x, and -1e300 for log 0, so that 0 * log 0 = 0 in a product."""
    x = np.asarray(x, dtype=float)
    return np.where(x > 0, np.log(np.where(x > 0, x, 1.0)), LOG_ZERO)
