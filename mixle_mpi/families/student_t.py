"""Student's t distribution."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.family import Family, Theta
from mixle_mpi.contract.fields import positive, real, total
from mixle_mpi.contract.work import Work
from mixle_mpi.families.gaussian import checked_floor, encoded_floor, floored
from mixle_mpi.kernels.student import student_moments, student_scores

LEAST_DF, MOST_DF = 0.1, 1e6
BISECTIONS = 60


class StudentT(Family):
    """Student's t with `df` degrees of freedom, shifted by `loc` and scaled by `scale`.

    log p(x) = log Gamma((df + 1) / 2) - log Gamma(df / 2) - log(pi df) / 2 - log(scale)
               - (df + 1) / 2 log(1 + ((x - loc) / scale)^2 / df)

    Estimated as a scale mixture of Gaussians, with the precision of each row as a further latent
    variable: the likelihood never falls.

    Parameters
    ----------
    df, loc, scale : float, optional
    min_variance : float, optional
        Floor of scale^2, as of a Gaussian's variance.

    Source
    ------
    Liu and Rubin (1995), Statistica Sinica 5, 19-39, the EM algorithm with unknown degrees of freedom.
    """

    params = {"df": positive(), "loc": real(), "scale": positive()}
    stats = {"weight": total(), "precision": total(), "total": total(), "square": total(), "log_precision": total()}
    kind = "own"
    slot = "centred"

    def __init__(self, df=None, loc=None, scale=None, *, min_variance: float | None = None, key: str | None = None,
                 fixed: bool = False):  # fmt: skip
        super().__init__({"df": df, "loc": loc, "scale": scale}, key=key, fixed=fixed)
        self.min_variance = checked_floor(self.type_name(), min_variance)

    def options(self):
        floor = {} if self.min_variance is None else {"min_variance": self.min_variance}
        return super().options() | floor

    def prepare(self, theta: Theta):
        from scipy.special import gammaln

        df, scale = theta["df"], theta["scale"]
        # the difference of log gammas by its expansion where df is large
        big = np.maximum(df, 1e4)
        ratio = np.where(df > 1e4, 0.5 * np.log(big / 2) - 0.25 / big,
                         gammaln((np.minimum(df, 1e4) + 1) / 2) - gammaln(np.minimum(df, 1e4) / 2))  # fmt: skip
        constant = ratio - 0.5 * np.log(np.pi * df) - np.log(scale) - np.log(self.encoding.scale[0])
        arrays = theta["loc"], 1.0 / scale**2, df, constant
        return tuple(np.ascontiguousarray(a) for a in arrays)

    def score(self, prepared, x, out):
        loc, precision, df, constant = prepared
        student_scores(np.ascontiguousarray(x[0]), loc, precision, df, constant, out)

    def accumulate(self, prepared, x, weights, stats: Theta):
        loc, precision, df, _ = prepared
        sums = np.zeros((len(loc), 5))
        student_moments(np.ascontiguousarray(x[0]), loc, precision, df, weights, sums)
        for column, name in enumerate(self.stats):
            stats[name] += sums[:, column]

    def e_step(self, sizes, features):
        # `student_scores` takes one logarithm, `student_moments` another
        return Work(log=2.0, flop=24.0), Work()

    def m_step(self, sizes, assumed):
        return Work(special=BISECTIONS + 4.0)

    def maximize(self, theta: Theta, stats: Theta, about):
        step = stats["total"] / stats["precision"]
        variance = (stats["square"] - step * stats["total"]) / stats["weight"]
        floor = encoded_floor(self.min_variance, self.encoding)[0]
        return {
            "df": student_df(stats["log_precision"] / stats["weight"], theta["df"]),
            "loc": theta["loc"] + step,
            "scale": np.sqrt(floored(variance, floor)),
        }

    def default(self):
        floor = encoded_floor(self.min_variance, self.encoding)[0]
        # the spread of the middle is near 1 in encoded units, whatever the tails
        return {"df": np.array(5.0), "loc": np.array(self.encoding.mean[0]),
                "scale": np.array(max(1.0, np.sqrt(floor)))}  # fmt: skip

    def soften(self, theta: Theta):
        return {"scale": np.maximum(theta["scale"], 0.03), "df": np.maximum(theta["df"], 1.0)}

    def encode_values(self, values):
        shift, scale = self.encoding.shift[0], self.encoding.scale[0]
        loc, width = values["loc"], values["scale"]
        return values | {
            "loc": None if loc is None else (loc - shift) / scale,
            "scale": None if width is None else width / scale,
        }

    def decode_values(self, values):
        shift, scale = self.encoding.shift[0], self.encoding.scale[0]
        return values | {"loc": values["loc"] * scale + shift, "scale": values["scale"] * scale}

    def sample_rows(self, rng, n):
        return [self.values["loc"] + self.values["scale"] * rng.standard_t(self.values["df"], n)]


def student_df(mean_log: np.ndarray, old: np.ndarray) -> np.ndarray:
    """Degrees of freedom (members,) that maximise the expected log likelihood, by bisection on the log scale.

    `mean_log` is the weighted mean of log(u) - u, u the expected precisions under `old`.
    """
    from scipy.special import digamma

    level = 1.0 + mean_log + digamma(0.5 * (old + 1.0)) - np.log(0.5 * (old + 1.0))
    low, high = np.full_like(old, np.log(LEAST_DF)), np.full_like(old, np.log(MOST_DF))
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        half = 0.5 * np.exp(middle)
        rising = np.log(half) - digamma(half) + level > 0  # the derivative falls with df
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    return np.exp(0.5 * (low + high))
