"""The binomial distribution."""

from __future__ import annotations

import copy

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family, Theta
from mixle_mpi.contract.fields import interval, total
from mixle_mpi.families.logs import safe_log


class Binomial(Family):
    """Successes in trials: log p(x) = x log(p) + (trials - x) log(1 - p) + log C(trials, x).

    Parameters
    ----------
    trials : int, optional
        By default the largest value in the data, which is its likeliest value when p is large.
    p : float, optional
    """

    params = {"p": interval()}
    stats = {"weight": total(), "successes": total(), "failures": total()}

    def __init__(self, trials: int | None = None, p=None, *, key: str | None = None, fixed: bool = False):
        number = isinstance(trials, (int, float, np.number)) and not isinstance(trials, bool)
        if trials is not None and not (number and trials >= 0 and trials == np.floor(trials) and trials < np.inf):
            raise ModelError(f"binomial: trials = {trials!r} is not a number >= 0")
        self.trials = None if trials is None else int(trials)
        self.asked = self.trials
        super().__init__({"p": p}, key=key, fixed=fixed)

    def place(self, scope):
        placed = super().place(scope)
        placed.asked = self.trials  # the key of the base measure must not change when the trials become known
        return placed

    def bind(self, bindings):
        bound = super().bind(bindings)
        if bound.trials is None:
            bound = copy.copy(bound)
            bound.trials = int(max(bound.encoding.high[0], 0.0))
        return bound

    def options(self):
        return super().options() | ({} if self.trials is None else {"trials": self.trials})

    def support(self, x):
        inside = (x[0] >= 0) & (x[0] == np.floor(x[0]))
        return inside if self.trials is None else inside & (x[0] <= self.trials)

    def support_text(self):
        return f"0, 1, ..., {'trials' if self.trials is None else self.trials}"

    def base(self, x):
        from scipy.special import gammaln

        n = float(self.trials or 0)
        return gammaln(n + 1.0) - gammaln(x[0] + 1.0) - gammaln(n - x[0] + 1.0)

    @property
    def base_key(self):
        return (*super().base_key, self.asked)

    def features(self, x, present, out):
        n = float(self.trials)
        np.clip(x[0], 0.0, n, out=out[0])
        np.multiply(present, n, out=out[1])
        out[1] -= out[0]

    def natural(self, theta: Theta):
        p = theta["p"]
        return np.stack([safe_log(p), safe_log(1.0 - p)], axis=1), np.zeros(len(p))

    def maximize(self, theta: Theta, stats: Theta, about):
        both = stats["successes"] + stats["failures"]
        return {"p": np.where(both > 0, stats["successes"] / np.where(both > 0, both, 1.0), theta["p"])}

    def default(self):
        return {"p": np.clip(self.encoding.mean[0] / max(self.trials, 1), 0.0, 1.0)}

    def soften(self, theta: Theta):
        return {"p": 0.9 * theta["p"] + 0.1 * self.default()["p"]}

    def sample_rows(self, rng, n):
        if self.trials is None:
            raise ModelError("binomial: the trials are absent; fit the model first, or give them")
        return [rng.binomial(self.trials, self.values["p"], n).astype(float)]
