"""Gaussian processes: kernels as texts and objects, derivatives, maxima, and what a fit finds at the extremes."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mixle_mpi import (
    RBF,
    GaussianProcess,
    HiddenMarkov,
    Matern,
    Mixture,
    ModelError,
    MultivariateGaussian,
    NumericalError,
    Optional,
    Record,
    Sequence,
    White,
    load,
    optimize,
)
from mixle_mpi.families.gp_kernels import Points
from mixle_mpi.families.gp_search import Expected, maximum, split
from mixle_mpi.families.gp_text import kernel_of
from mixle_mpi.models.specification import build, describe

TIMES = np.array([0.0, 0.3, 0.9, 1.0, 1.7, 2.4, 3.1, 3.3])
TEXTS = [
    "rbf + white",
    "rbf(length_scale=[None, None]) + white",
    "matern12",
    "matern32(length_scale=[0.5, 2.0]) * rbf + white(variance=0.3)",
    "matern52 * (matern12 + white)",
    "rbf * (matern12 + white) * matern32 + rbf + white",
]


def correlated(r, scale=1.0):
    return np.exp(-(r**2) / (2 * scale**2))


def drawn(n, scale, noise, seed=0, times=TIMES, mean=0.0, variance=1.0):
    covariance = variance * correlated(np.subtract.outer(times, times), scale) + noise * np.eye(len(times))
    rng = np.random.default_rng(seed)
    return mean + rng.standard_normal((n, len(times))) @ np.linalg.cholesky(covariance).T


def expected_of(text, seed=1, n=7, rows=50):
    """The objective of an M-step for rows of a process, and other hyperparameters."""
    rng = np.random.default_rng(seed)
    kernel, points = kernel_of(text), Points(2 * rng.normal(size=(n, 2)))
    shapes = [int(np.prod(f.shape)) for f in kernel.fields()]
    x = 0.3 * rng.normal(size=sum(shapes))
    covariance, _ = kernel.covariance(points, split(np.exp(x), shapes), False)
    y = rng.normal(size=(rows, n)) @ np.linalg.cholesky(covariance).T
    objective = Expected(kernel, points, shapes, y.mean(axis=0), np.cov(y.T, bias=True))
    return objective, x + 0.5 * rng.normal(size=len(x))


# -- kernels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_a_kernel_is_its_text(text):
    kernel = kernel_of(text)
    assert repr(kernel) == repr(kernel_of(repr(kernel))) and kernel == kernel_of(repr(kernel))


def test_operators_and_texts_make_the_same_kernels():
    pairs = [
        (RBF() + White(), "rbf + white"),
        (RBF(length_scale=2.0, variance=3.0) * Matern(nu=2.5) + White(0.1),
         "rbf(variance=3, length_scale=2) * matern(nu=2.5) + white(variance=0.1)"),
        (RBF(length_scale=[1.0, 2.0]) + Matern(nu=0.5), "squared_exponential(length_scale=[1, 2.0]) + matern12"),
        (RBF() * (Matern() + White()), "rbf*(matern32+white)"),
    ]  # fmt: skip
    for kernel, text in pairs:
        assert kernel == kernel_of(text)


def test_the_first_factor_carries_the_variance_of_a_product():
    kernel = RBF(variance=2.0) * Matern(variance=3.0) * RBF(variance=0.5, length_scale=4.0)
    names = ["rbf_1_variance", "rbf_1_length_scale", "matern32_length_scale", "rbf_2_length_scale"]
    assert [f.name for f in kernel.fields()] == names
    assert kernel == kernel_of("rbf(variance=3) * matern32 * rbf(length_scale=4)")
    # of a sum, the first term; the others keep their share
    assert RBF() * (Matern(variance=2.0) + White(6.0)) == kernel_of("rbf(variance=2) * (matern32 + white(variance=3))")
    given = GaussianProcess([0.0, 1.0], RBF(2.0, 1.0) * (Matern(2.0, 1.0) + White(6.0)), 0.0)
    r = np.array([[0.0, 1.0], [1.0, 0.0]])
    covariance = 2 * correlated(r) * (2 * (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r) + 6 * np.eye(2))
    x = np.random.default_rng(0).normal(size=(5, 2))
    np.testing.assert_allclose(given.log_density(x), multivariate_normal.logpdf(x, np.zeros(2), covariance), rtol=1e-12)


def test_names_without_a_variance_have_none():
    assert [f.name for f in (Matern() + White() + White()).fields()] == [
        "matern32_variance", "matern32_length_scale", "white_1_variance", "white_2_variance"]  # fmt: skip


@pytest.mark.parametrize(
    "text, words",
    [
        ("rbf + wihte", ["'rbf + wihte'", "'wihte'", "'white'"]),
        ("rbf(lenght_scale=2)", ["'lenght_scale'", "'length_scale'"]),
        ("rbf(2)", ["keyword"]),
        ("rbf - white", ["'rbf - white'", "no kernel"]),
        ("2 * rbf", ["'2'"]),
        ("rbf(variance=-1)", ["-1", "positive"]),
        ("rbf(variance=0)", ["variance = 0", "positive"]),
        ("rbf(variance=True)", ["True"]),
        ("rbf(length_scale=[1, None])", ["[1, None]"]),
        ("rbf(variance=2, variance=3)", ["rbf(variance=2, variance=3)"]),
        ("matern(nu=2)", ["nu = 2", "2.5"]),
        ("white(length_scale=2)", ["'length_scale'"]),
        ("__import__('os').system('true')", ["no kernel"]),
        ("[rbf for x in y]", ["no kernel"]),
        ("rbf(", ["rbf("]),
        ("", ["not an expression"]),
    ],
)
def test_texts_that_are_no_kernels_are_refused(text, words):
    with pytest.raises(ModelError) as refused:
        GaussianProcess([0.0, 1.0], text)
    for word in ["gaussian_process", *words]:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: GaussianProcess("abc"), ["'abc'", "points"]),
        (lambda: GaussianProcess([]), ["(0,)"]),
        (lambda: GaussianProcess(0), ["inputs = 0"]),
        (lambda: GaussianProcess([0.0, np.nan]), ["inputs[1]"]),
        (lambda: GaussianProcess(np.zeros((2, 2, 2))), ["(2, 2, 2)"]),
        (lambda: GaussianProcess([0.0, 1.0, 1.0], "rbf"), ["inputs[1] and inputs[2]", "white"]),
        (lambda: GaussianProcess([0.0, 1.0], "rbf(length_scale=[1, 2])"), ["2 values", "1 coordinates"]),
        (lambda: GaussianProcess([0.0, 1.0], 3), ["kernel = 3"]),
        (lambda: RBF(variance=-1.0), ["variance = -1.0"]),
        (lambda: GaussianProcess([0.0, 1.0], "rbf(variance=2) + white", 1.0, fixed=True), ["fixed=True needs"]),
        (lambda: optimize(np.zeros((3, 2)), GaussianProcess(2)), ["can be planned", "points"]),
        (lambda: optimize(np.zeros((3, 2)), GaussianProcess([0.0, 1.0, 2.0])), ["3 columns", "2"]),
    ],
)
def test_refused_processes(make, words):
    with pytest.raises(ModelError) as refused:
        make()
    for word in words:
        assert word in str(refused.value)


def test_hyperparameters_whose_covariance_is_singular_are_told():
    with pytest.raises(NumericalError, match=r"the model \(member 0\).*not positive definite.*white"):
        optimize(drawn(5, 1.0, 0.1), GaussianProcess(TIMES, RBF(1.0, 1e5)))


# -- the M-step --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_the_gradient_is_that_of_differences(text):
    objective, x = expected_of(text)
    step, gradient = 1e-5, objective.at(x)[1]
    moves = step * np.eye(len(x))
    differences = [(objective.at(x + m)[0] - objective.at(x - m)[0]) / (2 * step) for m in moves]
    np.testing.assert_allclose(gradient, differences, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("text", [*TEXTS[:3], "matern52 * rbf + white"])
def test_the_maximum_is_one_and_is_sharp(text):
    objective, x = expected_of(text, seed=3, n=12)
    low, high = np.full(len(x), -8.0), np.full(len(x), 8.0)
    best, mean = maximum(objective, x, low, high)
    top, gradient, _ = objective.at(best)
    assert top >= objective.at(x)[0] and objective.evaluations < 100
    assert ((best > low) & (best < high)).all() and np.abs(gradient).max() < 1e-10
    rng = np.random.default_rng(0)
    for scale in (0.3, 0.03, 0.003):
        for _ in range(5):
            moved = np.clip(best + scale * rng.standard_normal(len(x)), low, high)
            there = objective.at(moved)
            assert there is None or there[0] <= top + 1e-12 * abs(top)
    # statistics that differ in the last bits lead to the same place
    objective.scatter = objective.scatter * (1 + 1e-15 * rng.standard_normal((12, 12)))
    again, other_mean = maximum(objective, x, low, high)
    np.testing.assert_allclose(again, best, rtol=0, atol=1e-10)
    assert abs(other_mean - mean) < 1e-9


def test_a_worse_place_is_never_taken():
    objective, x = expected_of("rbf + white")
    low, high = np.full(3, -8.0), np.full(3, 8.0)
    best, _ = maximum(objective, x, low, high)
    again, _ = maximum(objective, best, low, high)
    assert objective.at(again)[0] >= objective.at(best)[0] - 1e-12 * abs(objective.at(best)[0])
    assert maximum(objective, np.array([0.0, 20.0, -80.0]), low, np.full(3, 30.0)) is None  # singular at the start


@pytest.mark.parametrize("kernel", ["rbf + white", "matern32 + white"])
def test_one_function_has_scikit_learns_hyperparameters(kernel):
    regression = pytest.importorskip("sklearn.gaussian_process")
    kernels = regression.kernels
    t = np.linspace(0, 5, 40)
    y = 1.5 + np.sin(2 * t) + 0.2 * np.random.default_rng(3).normal(size=40)
    fitted = optimize(y[None], GaussianProcess(t, kernel), max_iter=2, tol=None)
    of_distance = {"r": kernels.RBF(1.0), "m": kernels.Matern(1.0, nu=1.5)}[kernel[0]]
    theirs = regression.GaussianProcessRegressor(
        kernels.ConstantKernel(1.0) * of_distance + kernels.WhiteKernel(0.1), alpha=0, normalize_y=False,
    ).fit(t[:, None], y - fitted.model.mean)  # fmt: skip
    mine = [value for name, value in fitted.model.values.items() if name != "mean"]
    np.testing.assert_allclose(mine, np.exp(theirs.kernel_.theta), rtol=1e-4)
    assert fitted.log_likelihood >= theirs.log_marginal_likelihood_value_ - 1e-9
    assert abs(fitted.log_likelihood - theirs.log_marginal_likelihood_value_) < 1e-6


def test_the_mean_is_that_of_generalised_least_squares():
    y = drawn(20, 0.6, 0.1, mean=3.0)
    model = optimize(y, GaussianProcess(TIMES), max_iter=1, tol=None).model
    values = model.values
    k = values["rbf_variance"] * correlated(np.subtract.outer(TIMES, TIMES), values["rbf_length_scale"])
    share = np.linalg.solve(k + values["white_variance"] * np.eye(8), np.ones(8))
    assert abs(model.mean - share @ y.mean(axis=0) / share.sum()) < 1e-10


def test_components_of_hardly_any_weight_keep_finite_parameters():
    y = drawn(30, 0.6, 0.1)
    start = [GaussianProcess(TIMES, "rbf(variance=1, length_scale=0.5) + white(variance=0.1)", m) for m in (0.0, 12.0)]
    result = optimize(y, Mixture(start, weights=[1 - 1e-9, 1e-9]), max_iter=15, tol=None)
    assert np.diff(result.history).min() > -1e-9
    assert all(np.isfinite(list(c.values.values())).all() for c in result.model.components)
    with pytest.warns(UserWarning, match="component_1"):
        dead = optimize(y, Mixture(start, weights=[1.0, 0.0]), max_iter=3, tol=None).model
    assert repr(dead.components[1]) == repr(start[1])


# -- fits --------------------------------------------------------------------------------------------------


def test_a_mixture_separates_curves_by_their_smoothness():
    y = np.concatenate([drawn(40, 0.2, 0.05, seed=1), drawn(40, 1.5, 0.05, seed=2)])
    result = optimize(y, Mixture(GaussianProcess(TIMES), 2), max_iter=200, seed=1)
    assert result.converged and np.diff(result.history).min() > -1e-9
    rough, smooth = sorted(range(2), key=lambda k: result.model.components[k].values["rbf_length_scale"])
    right = np.r_[result.model.posterior(y)[:40, rough], result.model.posterior(y)[40:, smooth]]
    assert (right > 0.5).mean() > 0.9
    scales = [result.model.components[k].kernel.of[0].length_scale for k in (rough, smooth)]
    assert scales[0] < 0.35 and 1.0 < scales[1] < 2.2
    counts = result.counts
    assert counts.searched == counts.maximized > 0 and counts.searches > 3 * counts.searched


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_of_the_values_do_not_matter(factor):
    y = drawn(25, 0.6, 0.1, mean=2.0)
    near, far = (optimize(y * f, GaussianProcess(TIMES), max_iter=3, tol=None).model for f in (1.0, factor))
    assert abs(far.mean / factor - near.mean) < 1e-9
    assert abs(far.values["rbf_variance"] / factor**2 / near.values["rbf_variance"] - 1) < 1e-8
    assert abs(far.values["rbf_length_scale"] / near.values["rbf_length_scale"] - 1) < 1e-8


def test_far_from_the_origin_and_in_single_precision():
    y = drawn(25, 0.6, 0.1)
    near = optimize(y, GaussianProcess(TIMES), max_iter=3, tol=None)
    far = optimize(y + 1e6, GaussianProcess(TIMES), max_iter=3, tol=None)
    single = optimize(y.astype(np.float32), GaussianProcess(TIMES), max_iter=3, tol=None)
    for other, tolerance in ((far, 1e-7), (single, 1e-5)):
        assert abs(other.log_likelihood - near.log_likelihood) < tolerance * 200
        np.testing.assert_allclose(values_of(other.model)[1:], values_of(near.model)[1:], rtol=100 * tolerance)


def values_of(model):
    return list(model.values.values())


@pytest.mark.parametrize(
    "y, inputs, kernel",
    [
        (drawn(1, 0.6, 0.1), TIMES, None),  # one row
        (drawn(9, 0.6, 0.1)[:, :1], [0.4], None),  # one input
        (np.full((5, 8), 3.0), TIMES, None),  # nothing varies
        (np.c_[drawn(9, 0.6, 0.1)[:, :7], np.ones(9)], TIMES, None),  # one column does not
        (drawn(9, 0.6, 0.1)[:, :3], [0.0, 1.0, 1.0], None),  # equal inputs
        (drawn(9, 0.6, 0.1), np.stack([TIMES, TIMES[::-1] ** 2], axis=1), "rbf(length_scale=[None, None]) + white"),
        (np.linspace(-1, 1, 6)[:, None] * TIMES, TIMES, None),  # no noise at all
        (drawn(9, 0.6, 0.1), TIMES, "rbf"),  # noise, and a kernel without any
        (drawn(9, 0.6, 0.1), TIMES, "white * rbf"),  # a length scale on which nothing depends
    ],
)
def test_extremes_end_with_finite_parameters(y, inputs, kernel):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = optimize(y, GaussianProcess(inputs, kernel), max_iter=20)
        mixed = optimize(y, Mixture(GaussianProcess(inputs, kernel), min(len(y), 2)), max_iter=5)
    for found in (result, mixed):
        assert found.status in ("converged", "max_iter")
        assert np.diff(found.history).min(initial=0.0) >= -1e-10 * max(abs(found.log_likelihood), y.size)
    assert np.isfinite(np.concatenate([np.ravel(v) for v in values_of(result.model)])).all()
    assert result.model.sample(3).shape[0] == 3


def test_given_hyperparameters_are_where_em_starts():
    y = drawn(20, 0.6, 0.1)
    part = optimize(y, GaussianProcess(TIMES, RBF(length_scale=3.0) + White()), max_iter=0, tol=None).model
    assert part.kernel.of[0].length_scale == 3.0 and 0 < part.kernel.of[1].variance < 1
    whole = optimize(y, GaussianProcess(TIMES, RBF(2.0, 3.0) + White(0.3), 1.0), max_iter=0, tol=None)
    covariance = 2 * correlated(np.subtract.outer(TIMES, TIMES), 3.0) + 0.3 * np.eye(8)
    assert repr(whole.model.kernel) == "rbf(variance=2.0, length_scale=3.0) + white(variance=0.3)"
    assert abs(whole.log_likelihood - multivariate_normal.logpdf(y, np.ones(8), covariance).sum()) < 1e-10


def test_a_process_reads_columns_of_a_record_and_may_be_missing(tmp_path):
    y = drawn(30, 0.6, 0.1)
    columns = [f"t{k}" for k in range(8)]
    data = {name: np.where(np.arange(30) % 5 == 0, np.nan, y[:, k]) for k, name in enumerate(columns)}
    seen = np.arange(30) % 5 > 0
    model = Record({"curve": Optional(GaussianProcess(TIMES))}, columns={"curve": columns})
    result = optimize(data, model, max_iter=3, tol=None)
    alone = optimize(y[seen], GaussianProcess(TIMES), max_iter=3, tol=None)
    np.testing.assert_allclose(result.log_likelihood, alone.log_likelihood, rtol=1e-10)
    result.model.save(tmp_path)
    again = load(tmp_path)
    assert again.log_density(data).tobytes() == result.model.log_density(data).tobytes()
    assert repr(again) == repr(result.model)
    assert describe(build(describe(result.model))) == describe(result.model)
    data["t3"][4] = np.nan
    with pytest.raises(ValueError, match="row 4.*'t3'"):
        optimize(data, model)


def test_steps_of_sequences_are_functions():
    y = np.concatenate([drawn(30, 0.2, 0.05, seed=1, mean=3.0), drawn(30, 1.5, 0.05, seed=2)])
    alone = optimize(y, GaussianProcess(TIMES), max_iter=3, tol=None)
    steps = optimize([y[:20], y[20:]], Sequence(GaussianProcess(TIMES)), max_iter=3, tol=None)
    np.testing.assert_allclose(steps.log_likelihood, alone.log_likelihood, rtol=1e-12)
    chain = optimize([y[10:50]], HiddenMarkov(GaussianProcess(TIMES), 2), max_iter=20)
    path = chain.model.viterbi([y[10:50]])[0]
    assert (path[:20] == path[0]).all() and (path[20:] == 1 - path[0]).all()


def test_a_process_beside_vectors_in_one_mixture():
    y = np.concatenate([drawn(40, 1.5, 0.05, seed=2), np.random.default_rng(0).normal(4, 1, (40, 8))])
    parts = [GaussianProcess(TIMES), MultivariateGaussian(8, structure="spherical")]
    model = optimize(y, Mixture(parts), max_iter=50, seed=1).model
    posterior = model.posterior(y)
    assert (np.abs(posterior[:40] - posterior[0].round()) < 1e-3).all()
    assert (np.abs(posterior[40:] - posterior[-1].round()) < 1e-3).all()
    assert model.num_parameters == 1 + 4 + 9


def test_the_example_finds_its_clusters(monkeypatch, capsys):
    path = Path(__file__).parents[2] / "examples" / "curves.py"
    spec = importlib.util.spec_from_file_location("curves", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(sys, "argv", ["curves.py", "150"])
    example.main()
    clusters = re.findall(r"cluster \d: (\d+) smooth, (\d+) in spurts, (\d+) measured badly", capsys.readouterr().out)
    assert len(clusters) == 3 and all(int(clusters[k][k]) > 40 for k in range(3))
