"""Families whose M-step has no closed form and evaluates the expected log likelihood until it is at its maximum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mixle_mpi.contract.family import Family, Theta


class NumericFamily(Family):
    """A leaf that maximises one member after another, by evaluations that are counted and reported."""

    def maximize_counted(
        self, theta: Theta, stats: Theta, about: np.ndarray | None, count: Callable[[int], None]
    ) -> Theta:
        """As `maximize`; `count` is told how many evaluations of its expected log likelihood each member took."""
        raise TypeError(f"{type(self).__name__} does not define maximize_counted")

    def maximize(self, theta, stats, about):
        return self.maximize_counted(theta, stats, about, lambda evaluations: None)
