"""The Poisson distribution."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.family import Family, Theta
from mixle_mpi.contract.fields import positive, total
from mixle_mpi.families.logs import safe_log

MOST = 2.0**53  # beyond this, float64 cannot tell counts apart


class Poisson(Family):
    """Poisson counts: log p(x) = x log(rate) - rate - log x!,  x = 0, 1, 2, ..."""

    params = {"rate": positive()}
    stats = {"weight": total(), "total": total()}

    def __init__(self, rate=None, *, key: str | None = None, fixed: bool = False):
        super().__init__({"rate": rate}, key=key, fixed=fixed)

    def support(self, x):
        return (x[0] >= 0) & (x[0] == np.floor(x[0])) & (x[0] <= MOST)

    def support_text(self):
        return "0, 1, 2, ..., 2^53"

    def base(self, x):
        from scipy.special import gammaln

        return -gammaln(x[0] + 1.0)

    def features(self, x, present, out):
        np.clip(x[0], 0.0, MOST, out=out[0])  # a row outside the support times log 0 would be a huge score

    def natural(self, theta: Theta):
        return safe_log(theta["rate"])[:, None], -theta["rate"]

    def maximize(self, theta: Theta, stats: Theta, about):
        return {"rate": stats["total"] / stats["weight"]}

    def default(self):
        return {"rate": max(self.encoding.mean[0], 0.0)}

    def soften(self, theta: Theta):
        return {"rate": np.where(theta["rate"] > 0, theta["rate"], 0.1 * self.encoding.mean[0])}

    def sample_rows(self, rng, n):
        return [rng.poisson(self.values["rate"], n).astype(float)]
