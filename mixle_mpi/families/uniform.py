"""The uniform distribution."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family, Theta
from mixle_mpi.contract.fields import maximum, minimum, real, total
from mixle_mpi.contract.work import Work
from mixle_mpi.kernels.elementary import LOG_ZERO

LEAST_WIDTH = 1e-9  # of the column's range: rows that are all equal would have an infinite density


class Uniform(Family):
    """Uniform numbers: log p(x) = -log(high - low),  low <= x <= high."""

    params = {"low": real(), "high": real()}
    stats = {"weight": total(), "low": minimum(), "high": maximum()}
    kind = "own"

    def __init__(self, low=None, high=None, *, key: str | None = None, fixed: bool = False):
        super().__init__({"low": low, "high": high}, key=key, fixed=fixed)
        if low is not None and high is not None and not self.values["low"] < self.values["high"]:
            raise ModelError(f"uniform: low = {low!r} is not below high = {high!r}")

    def prepare(self, theta: Theta):
        return theta["low"], theta["high"], -np.log(theta["high"] - theta["low"])

    def score(self, prepared, x, out):
        low, high, level = (a[:, None] for a in prepared)
        out += np.where((x >= low) & (x <= high), level, LOG_ZERO)

    def accumulate(self, prepared, x, weights, stats: Theta):
        used = weights > 0
        stats["weight"] += weights.sum(axis=1)
        stats["low"][...] = np.minimum(stats["low"], np.where(used, x, np.inf).min(axis=1, initial=np.inf))
        stats["high"][...] = np.maximum(stats["high"], np.where(used, x, -np.inf).max(axis=1, initial=-np.inf))

    def e_step(self, sizes, features):
        return Work(flop=6.0 + 12.0), Work()  # comparisons, and the bounds of the rows with weight

    def maximize(self, theta: Theta, stats: Theta, about):
        return self._widened(stats["low"], stats["high"])

    def _widened(self, low, high) -> Theta:
        """The bounds, apart by the least width at least."""
        whole = self.encoding.high[0] - self.encoding.low[0]
        scale = np.maximum(np.abs(low), np.abs(high))
        least = np.maximum(LEAST_WIDTH * (whole if whole > 0 else 1.0), 4e-16 * scale)
        lack = np.maximum(least - (high - low), 0.0)
        return {"low": low - 0.5 * lack, "high": high + 0.5 * lack}

    def default(self):
        return self._widened(self.encoding.low[0], self.encoding.high[0])

    def soften(self, theta: Theta):
        # a bound that rows outside start beyond can never move over them
        return {"low": np.minimum(theta["low"], self.default()["low"]),
                "high": np.maximum(theta["high"], self.default()["high"])}  # fmt: skip

    def sample_rows(self, rng, n):
        return [rng.uniform(self.values["low"], self.values["high"], n)]
