"""Hidden Markov models side by side with hmmlearn: every log likelihood of 20 iterations from the same start."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hmmlearn import hmm

from mixle_mpi import Categorical, Gaussian, HiddenMarkov, MultivariateGaussian, optimize

logging.getLogger("hmmlearn").setLevel(logging.CRITICAL)
ITERATIONS = 20
LENGTHS = np.array([1, 40, 3, 77, 12, 160, 2, 55])


def start(states: int) -> tuple[np.ndarray, np.ndarray]:
    """Initial probabilities (states,) and transitions (states, states)."""
    rng = np.random.default_rng(states)
    return rng.dirichlet(np.full(states, 5.0)), rng.dirichlet(np.full(states, 2.0), states)


def history(model, x: np.ndarray) -> list[float]:
    """Log likelihoods before each of hmmlearn's M-steps and after the last."""
    found = []
    for _ in range(ITERATIONS):
        found.append(model.score(x, LENGTHS))
        model.fit(x, LENGTHS)
    return [*found, model.score(x, LENGTHS)]


def assert_alike(ours: list[float], theirs: list[float]) -> None:
    assert len(ours) == ITERATIONS + 1 and ours[-1] > ours[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.parametrize("structure", ["diagonal", "full"])
@pytest.mark.parametrize("states", [2, 5])
def test_gaussian_emissions(states, structure):
    rng, (initial, transition) = np.random.default_rng(1), start(states)
    place = np.repeat(rng.integers(0, states, LENGTHS.sum() // 5), 5)
    x = 3.0 * rng.normal(size=(states, 2))[place] + rng.normal(size=(LENGTHS.sum(), 2))
    means = rng.normal(size=(states, 2))
    spread = np.ones(2) if structure == "diagonal" else np.eye(2)
    emissions = [MultivariateGaussian(2, m, spread, structure=structure) for m in means]
    model = HiddenMarkov(emissions, initial=initial, transition=transition)
    ours = optimize(np.split(x, np.cumsum(LENGTHS)[:-1]), model, max_iter=ITERATIONS, tol=None)
    theirs = hmm.GaussianHMM(states, "diag" if structure == "diagonal" else "full", n_iter=1, tol=-np.inf,
                             init_params="", implementation="log", covars_prior=0.0,
                             covars_weight=0.0 if structure == "diagonal" else 1e-300, means_weight=0.0,
                             min_covar=1e-12)  # fmt: skip
    theirs.startprob_, theirs.transmat_, theirs.means_ = initial, transition, means
    theirs.covars_ = np.broadcast_to(spread, (states, *spread.shape)).copy()
    assert_alike(ours.history, history(theirs, x))


@pytest.mark.parametrize("states", [2, 4])
def test_categorical_emissions(states):
    rng, (initial, transition) = np.random.default_rng(2), start(states)
    x, p = rng.integers(0, 6, LENGTHS.sum()), rng.dirichlet(np.ones(6), states)
    x[: 80] = rng.integers(0, 3, 80)
    model = HiddenMarkov([Categorical(range(6), own) for own in p], initial=initial, transition=transition)
    ours = optimize(np.split(x, np.cumsum(LENGTHS)[:-1]), model, max_iter=ITERATIONS, tol=None)
    theirs = hmm.CategoricalHMM(states, n_iter=1, tol=-np.inf, init_params="", implementation="log", n_features=6)
    theirs.startprob_, theirs.transmat_, theirs.emissionprob_ = initial, transition, p
    assert_alike(ours.history, history(theirs, x[:, None]))


def test_scalar_emissions_are_vectors_of_one():
    (initial, transition), x = start(3), np.random.default_rng(3).normal(size=LENGTHS.sum()) + 2
    model = HiddenMarkov([Gaussian(m, 1.0) for m in (0.0, 1.0, 3.0)], initial=initial, transition=transition)
    ours = optimize(np.split(x, np.cumsum(LENGTHS)[:-1]), model, max_iter=ITERATIONS, tol=None)
    theirs = hmm.GaussianHMM(3, "diag", n_iter=1, tol=-np.inf, init_params="", implementation="log", covars_prior=0.0,
                             covars_weight=0.0, means_weight=0.0, min_covar=1e-12)  # fmt: skip
    theirs.startprob_, theirs.transmat_, theirs.means_ = initial, transition, np.array([[0.0], [1.0], [3.0]])
    theirs.covars_ = np.ones((3, 1))
    assert_alike(ours.history, history(theirs, x[:, None]))
