"""The categorical distribution over labels."""

from __future__ import annotations

import copy

import numpy as np

from mixle_mpi.contract.columns import as_label, label_key
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family, Theta
from mixle_mpi.contract.fields import simplex, total
from mixle_mpi.contract.work import Work
from mixle_mpi.families.logs import safe_log
from mixle_mpi.kernels.elementary import LOG_ZERO
from mixle_mpi.kernels.table import indicators

FEW_LEVELS = 12  # up to here an indicator of each level in the product is faster than look-ups


class Categorical(Family):
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
    slot = "label"

    def __init__(self, levels=None, probabilities=None, *, pseudo_count: float = 0.0, default: float = 0.0,
                 key: str | None = None, fixed: bool = False):  # fmt: skip
        if isinstance(levels, (str, dict)):
            raise ModelError(f"categorical: levels = {levels!r} is not a list of labels")
        self.levels = None if levels is None else tuple(as_label(v) for v in levels)
        self.pseudo_count = _at_least_zero(self.type_name(), "pseudo_count", pseudo_count)
        self.unseen = _at_least_zero(self.type_name(), "default", default)
        super().__init__({"probabilities": probabilities}, key=key, fixed=fixed)
        if self.levels is None:
            if probabilities is not None:
                raise ModelError("categorical: probabilities need levels")
        else:
            self._check_levels()

    def _check_levels(self):
        if len(self.levels) != len({label_key(v) for v in self.levels}) or not self.levels:
            raise ModelError(f"categorical: levels {list(self.levels)!r} are empty or not distinct")
        p = self.values["probabilities"]
        if p is not None and len(p) != len(self.levels):
            raise ModelError(f"categorical: {len(p)} probabilities for {len(self.levels)} levels")
        order = sorted(range(len(self.levels)), key=lambda i: label_key(self.levels[i]))
        if order != sorted(order):  # levels are kept sorted, as bind sorts them
            self.levels = tuple(self.levels[i] for i in order)
            if p is not None:
                self.values["probabilities"] = p[order]

    @property
    def kind(self):
        return "natural" if len(self.levels or ()) <= FEW_LEVELS else "table"

    @property
    def sizes(self):
        return {"levels": len(self.levels or ())}

    def assumed_sizes(self, assumed):
        return {"levels": int(assumed.value("levels", None if self.levels is None else len(self.levels)))}

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

    def bind(self, bindings):
        bound = copy.copy(super().bind(bindings))
        bound.levels = bound.encoding.levels
        return bound

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
        return {"probabilities": self._smooth()}

    def _smooth(self) -> np.ndarray:
        n = max(len(self.levels or ()), 1)
        return 0.99 * self.encoding.frequencies + 0.01 / n if self.encoding.frequencies.any() else np.full(n, 1.0 / n)

    def soften(self, theta: Theta):
        return {"probabilities": 0.9 * theta["probabilities"] + 0.1 * self.encoding.frequencies
                if self.encoding.frequencies.any() else theta["probabilities"]}  # fmt: skip

    def log_prior(self, theta: Theta):
        if not self.pseudo_count:
            return 0.0
        return self.pseudo_count * safe_log(theta["probabilities"]).sum(axis=1)

    def sample_rows(self, rng, n):
        drawn = rng.choice(len(self.levels), size=n, p=self.values["probabilities"])
        labels = np.empty(n, dtype=object)
        labels[:] = [self.levels[i] for i in drawn]
        return [labels]


def _at_least_zero(where: str, name: str, value) -> float:
    if not (isinstance(value, (int, float)) and 0 <= value < np.inf):
        raise ModelError(f"{where}: {name} = {value!r} is not a number >= 0")
    return float(value)
