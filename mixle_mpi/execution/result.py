"""What a fit returns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mixle_mpi.contract.node import Node
from mixle_mpi.execution.axis import Traffic
from mixle_mpi.execution.executor import Counts

ROUNDING = 1e-10  # of the log likelihood, or of the rows where they are more: a smaller difference is rounding


@dataclass
class Result:
    """A fitted model and how the fit went.

    Attributes
    ----------
    model : the model with its parameters; where it is cut and larger than a rank is asked to hold, on the first rank
        alone, and None on the others
    log_likelihood : total log likelihood of the data under `model`, nats; the last entry of `history`
    history : total log likelihood before each M-step and after the last, n_iter + 1 entries
    n_iter : number of M-steps
    converged : whether two successive entries differed by less than tol per observation
    status : "converged", "max_iter", "decreased", "stopped" or "failed"
    n_rows, effective_rows : rows, and the sum of the weights of those with anything observed
    impossible : rows that have probability zero under every component, left out with impossible="skip"
    dead : paths of components without any weight
    starts, best_start : a record of each start (status, n_iter, history, ...), and the number of the best; where
        starts ran on several grids side by side a record has the `grid` and its `ranks`
    groups : the grids side by side, with their ranks and the numbers of their starts; `grid`, `cut` and `plan` are
        those of the first of them. None where the grid existed before
    seconds, calls : wall-clock seconds, and how often, by phase, of this rank
    statistics_bytes : size of the vector of statistics of this rank
    counts, payload : what the kernels of this rank saw, and what it sent on each axis, in the iterations
    plan : the `BalancePlan` that was run; None for a cut that cannot be planned, and where the grid existed before
    """

    model: Node
    log_likelihood: float
    history: list[float]
    n_iter: int
    converged: bool
    status: str
    n_rows: int
    effective_rows: float
    n_parameters: int
    grid: tuple[int, int]
    cut: str | None
    impossible: int = 0
    dead: list[str] = field(default_factory=list)
    starts: list[dict] = field(default_factory=list)
    best_start: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    statistics_bytes: int = 0
    counts: Counts = field(default_factory=Counts)
    payload: dict[str, Traffic] = field(default_factory=dict)
    plan: Any = None
    groups: list[dict] = field(default_factory=list)

    @property
    def bic(self) -> float:
        """Bayesian information criterion: parameters * ln(rows) - 2 log likelihood."""
        return self.n_parameters * math.log(max(self.effective_rows, 1e-300)) - 2.0 * self.log_likelihood

    @property
    def aic(self) -> float:
        """Akaike information criterion: 2 parameters - 2 log likelihood."""
        return 2.0 * self.n_parameters - 2.0 * self.log_likelihood


@dataclass(frozen=True)
class Iteration:
    """What a callback gets after each pass: `change` is per observation, None at the first."""

    n_iter: int
    log_likelihood: float
    per_row: float
    change: float | None
    seconds: float
    start: int = 0


class Judge:
    """Convergence and status from the history alone, the same on every rank.

    `objective` is the log likelihood and log prior: EM never lowers it, except by rounding; but it may fall where a
    model `restarts` inner rounds in each pass.
    """

    def __init__(
        self, tol: float | None, effective: float, history: list[float] | None = None, objective=None,
        restarts: bool = False,
    ):  # fmt: skip
        self.tol, self.effective, self.restarts = tol, effective, restarts
        self.history: list[float] = [] if history is None else history
        self.objective: list[float] = [] if objective is None else objective

    def add(self, log_likelihood: float, log_prior: float) -> str | None:
        """Add an entry; the status that ends the run, or None to go on."""
        self.history.append(log_likelihood)
        self.objective.append(log_likelihood + log_prior)
        if not np.isfinite(log_likelihood):
            return "failed"
        if len(self.history) < 2:
            return None
        size = max(abs(log_likelihood), self.effective)
        if self.objective[-1] - self.objective[-2] < -ROUNDING * size and not self.restarts:
            return "decreased"
        if self.tol is None:
            return None
        # both: under a prior the likelihood alone may stand still at a turn
        change = max(abs(entries[-1] - entries[-2]) for entries in (self.history, self.objective))
        if change < self.tol * self.effective or change < 8 * np.finfo(float).eps * abs(log_likelihood):
            return "converged"
        return None

    @property
    def change(self) -> float | None:
        """Change of the last entry per observation."""
        if len(self.history) < 2:
            return None
        return (self.history[-1] - self.history[-2]) / max(self.effective, 1e-300)
