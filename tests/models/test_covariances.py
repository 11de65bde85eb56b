"""The four structures of a covariance against scikit-learn, from the same start, iteration by iteration."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

from mixle_mpi import Composite, Mixture, ModelError, MultivariateGaussian, NumericalError, Poisson, optimize
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.threads import run_on_threads

STRUCTURES = {"full": "full", "tied": "tied", "diagonal": "diag", "spherical": "spherical"}
GRIDS = [(2, 1), (1, 2), (2, 2), (3, 1), (1, 5)]


def faithful() -> np.ndarray:
    with open(Path(__file__).parent.parent.parent / "examples" / "faithful.csv") as file:
        rows = list(csv.reader(file))
    return np.array(rows[1:], dtype=float)


def scikit_levels(x, kind, weights, means, precisions, iterations):
    """Log likelihoods before each of the M-steps and after the last, and the mixture at the end."""
    levels = []
    for k in range(iterations):
        model = GaussianMixture(len(weights), covariance_type=kind, reg_covar=0.0, tol=0.0, max_iter=k + 1,
                                weights_init=weights, means_init=means, precisions_init=precisions)  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(x)
        levels.append(model.lower_bound_ * len(x))  # of the last E-step, before the last M-step
    levels.append(model.score(x) * len(x))
    return np.array(levels), model


def starts(structure, means, variance):
    d = len(variance)
    covariance = {"diagonal": variance, "spherical": variance.mean()}.get(structure, np.diag(variance))
    k, inverse = len(means), 1 / variance
    precision = {
        "full": np.tile(np.diag(inverse), (k, 1, 1)),
        "tied": np.diag(inverse),
        "diagonal": np.tile(inverse, (k, 1)),
        "spherical": np.full(k, 1 / variance.mean()),
    }[structure]
    return [MultivariateGaussian(d, m, covariance, structure=structure) for m in means], precision


@pytest.mark.parametrize("structure", STRUCTURES)
def test_faithful_equals_scikit_learn_in_each_of_20_iterations(structure):
    x = faithful()
    assert x.shape == (272, 2)
    means = np.array([[2.0, 60.0], [4.0, 75.0]])
    parts, precisions = starts(structure, means, np.array([1.0, 100.0]))
    expected, theirs = scikit_levels(x, STRUCTURES[structure], [0.5, 0.5], means, precisions, 20)
    result = optimize(x, Mixture(parts, weights=[0.5, 0.5]), max_iter=20, tol=None)
    assert len(result.history) == 21 and expected[-1] > expected[0]
    np.testing.assert_allclose(result.history, expected, rtol=1e-9)
    np.testing.assert_allclose(result.model.weights, theirs.weights_, rtol=1e-8)
    for k, c in enumerate(result.model.components):
        np.testing.assert_allclose(c.mean, theirs.means_[k], rtol=1e-8)
        covariance = theirs.covariances_ if structure == "tied" else theirs.covariances_[k]
        np.testing.assert_allclose(c.covariance, covariance, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_five_components_in_four_dimensions_equal_scikit_learn_on_grids(structure):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4)) + 3 * rng.integers(0, 3, (300, 1))
    means, weights = x[:5], np.array([0.1, 0.15, 0.2, 0.25, 0.3])
    parts, precisions = starts(structure, means, np.array([3.0, 1.0, 2.0, 4.0]))
    expected, _ = scikit_levels(x, STRUCTURES[structure], weights, means, precisions, 8)
    for shape in [(1, 1), *GRIDS]:
        start = Mixture(parts, weights=weights)
        for result in run_on_threads(*shape, lambda g, m=start: fit(x, m, g, max_iter=8, tol=None)):
            np.testing.assert_allclose(result.history, expected, rtol=1e-9)


# -- tied ------------------------------------------------------------------------------------------------


def groups(n=240, seed=2):
    rng = np.random.default_rng(seed)
    far = np.array([[0, 0], [4, 1], [20, 20], [25, 19]])[np.arange(n) % 4]
    shape = np.where((np.arange(n) % 4 < 2)[:, None, None], [[1.0, 0.8], [0.0, 0.6]], [[2.0, 0.0], [-1.0, 0.5]])
    return far + np.einsum("nij,nj->ni", shape, rng.normal(size=(n, 2)))


def nested():
    def tied(*mean):
        return MultivariateGaussian(2, mean, structure="tied")

    return Mixture([Mixture([tied(0, 0), tied(4, 1)]), Mixture([tied(20, 20), tied(25, 19)])])


def test_each_innermost_mixture_has_a_covariance_of_its_own():
    x = groups()
    result = optimize(x, nested(), max_iter=60, tol=1e-12)
    left, right = result.model.components
    for mixture, own in ((left, x[np.arange(240) % 4 < 2]), (right, x[np.arange(240) % 4 >= 2])):
        a, b = mixture.components
        assert np.array_equal(a.covariance, b.covariance)
        alone = optimize(own, mixture, max_iter=200, tol=1e-14).model  # the groups are far apart
        np.testing.assert_allclose(a.covariance, alone.components[0].covariance, rtol=1e-4, atol=1e-4)
    assert not np.allclose(left.components[0].covariance, right.components[0].covariance, atol=0.3)
    assert result.n_parameters == 1 + 2 * (1 + 4 + 3)


@pytest.mark.parametrize("cut", ["", "component_*", "component_0", "component_1"])
def test_tied_in_nested_mixtures_cut_anywhere(cut):
    x = groups()
    serial = optimize(x, nested(), max_iter=8, tol=None)
    for shape in GRIDS:
        results = run_on_threads(*shape, lambda g: fit(x, nested(), g, max_iter=8, tol=None, cut=cut))
        for result in results:
            np.testing.assert_allclose(result.history, serial.history, rtol=1e-12)
            np.testing.assert_allclose(result.model.state.theta, serial.model.state.theta, rtol=1e-8, atol=1e-8)
            assert result.model.state.theta.tobytes() == results[0].model.state.theta.tobytes()


def test_tied_is_pooled_by_hand():
    """One M-step from given responsibilities: the scatter about each mean, summed over components."""
    x = groups(80)[:, :2]
    start = Mixture([MultivariateGaussian(2, m, np.eye(2) * 9, structure="tied") for m in ([0, 0], [4, 1], [22, 20])],
                    weights=[0.2, 0.3, 0.5])  # fmt: skip
    r = start.posterior(x)
    after = optimize(x, start, max_iter=1, tol=None).model
    scatter = np.zeros((2, 2))
    for k, c in enumerate(after.components):
        mean = r[:, k] @ x / r[:, k].sum()
        np.testing.assert_allclose(c.mean, mean, rtol=1e-12)
        scatter += (x - mean).T @ ((x - mean) * r[:, k][:, None])
    for c in after.components:
        np.testing.assert_allclose(c.covariance, scatter / 80, rtol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 2), (1, 5)])
def test_a_tied_covariance_given_to_one_component_is_all_of_theirs(shape):
    given = [[2.0, 0.5], [0.5, 1.0]]
    parts = [MultivariateGaussian(2, [m, 0.0], given if m == 4 else None, structure="tied") for m in (0.0, 4.0, 20.0)]
    model = Mixture(parts, weights=[0.3, 0.3, 0.4])
    for result in run_on_threads(*shape, lambda g: fit(groups(), model, g, max_iter=0, tol=None)):
        for m, c in zip((0.0, 4.0, 20.0), result.model.components):
            np.testing.assert_allclose(c.covariance, given, rtol=1e-14)
            np.testing.assert_allclose(c.mean, [m, 0.0], atol=1e-14)
    other = MultivariateGaussian(2, [9.0, 0.0], np.eye(2), structure="tied")
    with pytest.raises(ModelError, match="share one covariance"):
        run_on_threads(*shape, lambda g: fit(groups(), Mixture([*parts, other]), g))


def test_a_dead_component_leaves_the_covariance_to_the_others():
    x = groups()[::4]
    parts = [MultivariateGaussian(2, m, np.eye(2), structure="tied") for m in ([0.0, 0.0], [1e6, 1e6])]
    for shape in [(1, 1), (1, 2), (2, 2)]:
        for model in (Mixture(parts, weights=[0.5, 0.5]), Mixture(parts[::-1], weights=[0.5, 0.5])):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = run_on_threads(*shape, lambda g, m=model: fit(x, m, g, max_iter=2, tol=None))
            for c in results[0].model.components:
                np.testing.assert_allclose(c.covariance, np.cov(x.T, bias=True), rtol=1e-10)


def test_a_singular_tied_covariance():
    line = np.array([(i, 2.0 * i) for i in range(10)])
    model = Mixture(MultivariateGaussian(2, structure="tied", min_variance=0.0), 2)
    for shape in [(1, 1), (2, 2), (1, 3)]:
        with pytest.raises(NumericalError, match="rank 1 of 2"):
            run_on_threads(*shape, lambda g: fit(line, model, g, max_iter=200))
    floored = Mixture(MultivariateGaussian(2, structure="tied", min_variance=0.25), 2)
    result = optimize(line, floored, max_iter=100)
    values = np.linalg.eigvalsh(result.model.components[0].covariance)
    assert values[0] == pytest.approx(0.25, rel=1e-9) and values[1] > 1 and result.status != "decreased"


def test_tied_below_composites_of_a_mixture_on_grids():
    x = groups()
    data = [(a, b, int(n)) for (a, b), n in zip(x.tolist(), np.random.default_rng(0).poisson(4, len(x)))]
    model = Mixture(Composite(MultivariateGaussian(2, structure="tied"), Poisson()), 3)
    serial = optimize(data, model, max_iter=6, tol=None)
    covariances = [c.factors[0].covariance for c in serial.model.components]
    assert all(np.array_equal(c, covariances[0]) for c in covariances)
    for shape in GRIDS:
        for cut in ("", "component_*"):
            for result in run_on_threads(*shape, lambda g, c=cut: fit(data, model, g, max_iter=6, tol=None, cut=c)):
                np.testing.assert_allclose(result.history, serial.history, rtol=1e-12)
