"""The exponential distribution."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.family import Family, Theta
from mixle_mpi.contract.fields import positive, total

LEAST_MEAN = 1e-9  # of the column's mean: rows that are all 0 would have an infinite rate


class Exponential(Family):
    """Waiting times: log p(x) = log(rate) - rate x,  x >= 0."""

    params = {"rate": positive()}
    stats = {"weight": total(), "total": total()}

    def __init__(self, rate=None, *, key: str | None = None, fixed: bool = False):
        super().__init__({"rate": rate}, key=key, fixed=fixed)

    def support(self, x):
        return x[0] >= 0

    def support_text(self):
        return "numbers >= 0"

    def features(self, x, present, out):
        np.maximum(x[0], 0.0, out=out[0])  # a row outside the support would have a huge score

    def natural(self, theta: Theta):
        return -theta["rate"][:, None], np.log(theta["rate"])

    def maximize(self, theta: Theta, stats: Theta, about):
        return {"rate": 1.0 / np.maximum(stats["total"] / stats["weight"], self._least())}

    def _least(self) -> float:
        mean = self.encoding.mean[0]
        return max(LEAST_MEAN * mean, 1e-300) if mean > 0 else LEAST_MEAN

    def default(self):
        return {"rate": 1.0 / max(self.encoding.mean[0], self._least())}

    def sample_rows(self, rng, n):
        return [rng.exponential(1.0 / self.values["rate"], n)]
