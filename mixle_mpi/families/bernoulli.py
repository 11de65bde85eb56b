"""The Bernoulli distribution."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.family import Family, Theta
from mixle_mpi.contract.fields import interval, total
from mixle_mpi.families.logs import safe_log


class Bernoulli(Family):
    """Successes and failures: log p(x) = x log(p) + (1 - x) log(1 - p),  x = 0, 1."""

    params = {"p": interval()}
    stats = {"weight": total(), "failures": total(), "successes": total()}

    def __init__(self, p=None, *, key: str | None = None, fixed: bool = False):
        super().__init__({"p": p}, key=key, fixed=fixed)

    def support(self, x):
        return (x[0] == 0) | (x[0] == 1)

    def support_text(self):
        return "0 or 1"

    def features(self, x, present, out):
        # both, not one and a constant: with p = 1 the difference of their logs would swallow the rest
        # (rows outside the support are clipped, or a negative one times log 0 would be a huge score)
        np.clip(x[0], 0.0, 1.0, out=out[1])
        np.subtract(present, out[1], out=out[0])

    def natural(self, theta: Theta):
        p = theta["p"]
        return np.stack([safe_log(1.0 - p), safe_log(p)], axis=1), np.zeros(len(p))

    def maximize(self, theta: Theta, stats: Theta, about):
        return {"p": stats["successes"] / (stats["successes"] + stats["failures"])}

    def default(self):
        return {"p": np.clip(self.encoding.mean[0], 0.0, 1.0)}

    def soften(self, theta: Theta):
        return {"p": 0.9 * theta["p"] + 0.1 * np.clip(self.encoding.mean[0], 0.0, 1.0)}

    def sample_rows(self, rng, n):
        return [(rng.random(n) < self.values["p"]).astype(float)]
