"""The log-normal distribution."""

from __future__ import annotations

import numpy as np

from mixle_mpi.families.gaussian import Gaussian


class LogNormal(Gaussian):
    """Numbers whose logarithm is Gaussian: log p(x) = log Gaussian(log x; mean, variance) - log x,  x > 0.

    Parameters
    ----------
    mean, variance : float, optional
        Of log x.
    min_variance : float, optional
        As of a Gaussian, for the variance of log x.
    """

    slot = "logarithm"

    def support(self, x):
        return x[0] > 0

    def support_text(self):
        return "numbers > 0"

    def base(self, x):
        return -np.log(x[0])

    def sample_rows(self, rng, n):
        return [np.exp(draw) for draw in super().sample_rows(rng, n)]
