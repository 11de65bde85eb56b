"""The categorical distribution over labels."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family, Theta
from mixle_mpi.contract.fields import simplex, total
from mixle_mpi.contract.work import Work
from mixle_mpi.families.labelled import Labelled, at_least_zero, sorted_order
from mixle_mpi.families.logs import safe_log
from mixle_mpi.kernels.elementary import LOG_ZERO
from mixle_mpi.kernels.table import indicators

FEW_LEVELS = 12  # up to here an indicator of each level in the product is faster than look-ups


class Categorical(Labelled):
    """Labels: log p(x) = log(probabilities[x]).

    Parameters
    ----------
    levels : sequence of str, int or bool, optional
        By default the sorted union of the labels of all ranks. `1` and `"1"` differ.
    probabilities : (levels,), optional
    pseudo_count : float
        Added to the count of each level: the mode under a Dirichlet(1 + pseudo_count) prior.
    default : float
        Probability given to a label that is not a level, when scoring.
    """

    params = {"probabilities": simplex("levels")}
    stats = {"weight": total(), "counts": total("levels")}
    if_missing = Family.if_missing

    def __init__(self, levels=None, probabilities=None, *, pseudo_count: float = 0.0, default: float = 0.0,
                 key: str | None = None, fixed: bool = False):  # fmt: skip
        self.pseudo_count = at_least_zero(self.type_name(), "pseudo_count", pseudo_count)
        self.unseen = at_least_zero(self.type_name(), "default", default)
        super().__init__(levels, {"probabilities": probabilities}, key=key, fixed=fixed)
        if self.levels is not None:
            self._sort_levels()
        elif probabilities is not None:
            raise ModelError("categorical: probabilities need levels")

    def _sort_levels(self):
        p = self.values["probabilities"]
        if p is not None and len(p) != len(self.levels):
            raise ModelError(f"categorical: {len(p)} probabilities for {len(self.levels)} levels")
        order = sorted_order(self.levels)
        self.levels = tuple(self.levels[i] for i in order)
        if p is not None:
            self.values["probabilities"] = p[order]

    @property
    def kind(self):
        return "natural" if len(self.levels or ()) <= FEW_LEVELS else "table"

    def planned_kind(self, sizes):
        return "natural" if sizes["levels"] <= FEW_LEVELS else "table"

    def e_step(self, sizes, features):
        # one read of the table and one addition to the counts, however many levels there are
        if self.planned_kind(sizes) == "table":
            return Work(lookup=1.0, scatter=1.0), Work()
        return super().e_step(sizes, features)

    @property
    def base_key(self):
        return (*super().base_key, self.unseen)

    def options(self):
        own = {"pseudo_count": self.pseudo_count, "default": self.unseen}
        return super().options() | {k: v for k, v in own.items() if v}

    def base(self, codes):
        """Log mass (n,) of the codes of labels that are not levels; 0 for levels and missing."""
        log_mass = np.log(self.unseen) if self.unseen > 0 else LOG_ZERO
        return np.where(codes == len(self.levels), log_mass, 0.0)

    def features(self, codes, present, out):
        indicators(codes, out)

    def natural(self, theta: Theta):
        p = theta["probabilities"]
        return safe_log(p), np.zeros(len(p))

    def prepare(self, theta: Theta):
        p = theta["probabilities"]
        rest = np.broadcast_to([np.log(self.unseen) if self.unseen > 0 else LOG_ZERO, 0.0], (len(p), 2))
        return np.concatenate([safe_log(p), rest], axis=1)

    def maximize(self, theta: Theta, stats: Theta, about):
        counts = stats["counts"] + self.pseudo_count
        total_count = counts.sum(axis=1, keepdims=True)
        return {"probabilities": np.where(total_count > 0, counts / np.where(total_count > 0, total_count, 1.0),
                                          theta["probabilities"])}  # fmt: skip

    def default(self):
        return {"probabilities": self.smooth_shares()}

    def soften(self, theta: Theta):
        return {"probabilities": self.softened(theta["probabilities"])}

    def log_prior(self, theta: Theta):
        if not self.pseudo_count:
            return 0.0
        return self.pseudo_count * safe_log(theta["probabilities"]).sum(axis=1)

    def sample_rows(self, rng, n):
        drawn = rng.choice(len(self.levels), size=n, p=self.values["probabilities"])
        labels = np.empty(n, dtype=object)
        labels[:] = [self.levels[i] for i in drawn]
        return [labels]
