"""The geometric distribution."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.family import Family, Theta
from mixle_mpi.contract.fields import interval, total
from mixle_mpi.families.logs import safe_log
from mixle_mpi.families.poisson import MOST


class Geometric(Family):
    """Trials up to the first success: log p(x) = log(p) + (x - 1) log(1 - p),  x = 1, 2, ..."""

    params = {"p": interval()}
    stats = {"weight": total(), "failures": total()}

    def __init__(self, p=None, *, key: str | None = None, fixed: bool = False):
        super().__init__({"p": p}, key=key, fixed=fixed)

    def support(self, x):
        return (x[0] >= 1) & (x[0] == np.floor(x[0])) & (x[0] <= MOST)

    def support_text(self):
        return "1, 2, ..., 2^53"

    def features(self, x, present, out):
        np.subtract(x[0], present, out=out[0])
        np.clip(out[0], 0.0, MOST, out=out[0])  # a row outside the support adds no huge score

    def natural(self, theta: Theta):
        p = theta["p"]
        return safe_log(1.0 - p)[:, None], safe_log(p)

    def maximize(self, theta: Theta, stats: Theta, about):
        return {"p": stats["weight"] / (stats["weight"] + stats["failures"])}

    def default(self):
        return {"p": 1.0 / max(self.encoding.mean[0], 1.0)}

    def soften(self, theta: Theta):
        return {"p": 0.9 * theta["p"] + 0.1 * self.default()["p"]}

    def sample_rows(self, rng, n):
        return [rng.geometric(self.values["p"], n).astype(float)]
