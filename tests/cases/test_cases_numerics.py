"""The numerical cases of `cases.md`, by their names, on one process."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from mixle_mpi import (
    Bernoulli,
    Categorical,
    Composite,
    DataError,
    Exponential,
    Gaussian,
    Mixture,
    MultivariateGaussian,
    NumericalError,
    Optional,
    Poisson,
    optimize,
)  # fmt: skip
from mixle_mpi.execution import tiles


def close(a, b, tolerance):
    return np.abs(np.asarray(a) - b).max() <= tolerance


# -- N01 -----------------------------------------------------------------------------------------------


def test_n01_large_offset():
    result = optimize([1e8 + 1, 1e8 + 2, 1e8 + 6], Gaussian())
    assert result.model.mean == 1e8 + 3
    assert abs(result.model.variance - 14 / 3) < 1e-12
    assert close(result.log_likelihood, -1.5 * (math.log(2 * math.pi * 14 / 3) + 1), 1e-12)


def test_n01_rows_that_are_all_equal_have_variance_zero_before_the_floor():
    with pytest.warns(UserWarning, match="column '0' is constant"):
        result = optimize(np.full(1000, 1e8 + 7.1), Gaussian(min_variance=1e-30))
    assert result.model.mean == 1e8 + 7.1
    assert abs(result.model.variance - 1e-30) < 1e-44
    with pytest.warns(UserWarning, match="constant"):
        assert optimize(np.full(1000, 1e8 + 7.1), Gaussian()).model.variance == 1e-9


def test_n01_a_vector_far_away_is_the_vector_moved():
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3)) * 2**20) / 2**20  # exact after + 1e8, nearly
    x[:200] += 5
    model = Mixture([MultivariateGaussian(3, [a] * 3, np.eye(3) * 4) for a in (0.0, 5.0)], weights=[0.5, 0.5])
    far = Mixture([MultivariateGaussian(3, [a + 1e8] * 3, np.eye(3) * 4) for a in (0.0, 5.0)], weights=[0.5, 0.5])
    a, b = (optimize(data, m, max_iter=10, tol=None).model for data, m in ((x, model), (x + 1e8, far)))
    for near, away in zip(a.components, b.components):
        assert close(away.mean - 1e8, near.mean, 1e-6 * np.abs(near.mean).max())
        assert close(away.covariance, near.covariance, 1e-6 * np.abs(near.covariance).max())


# -- N02 -----------------------------------------------------------------------------------------------


PAIR = Mixture([Gaussian(0.0, 1.0), Gaussian(1.0, 1.0)], weights=[0.5, 0.5])


def test_n02_a_row_impossible_under_every_component_is_refused_with_row_and_count():
    with pytest.raises(DataError, match=r"row 2 .*probability zero.*as 2 rows in all"):
        optimize([0.0, 1.0, 1e200, 0.5, -1e200], PAIR)


def test_n02_skip_gives_it_no_weight_and_changes_nothing_else():
    rest = [0.0, 1.0, 0.5, 2.0, -1.0]
    alone = optimize(rest, PAIR, max_iter=5, tol=None)
    skipped = optimize([*rest, 1e200], PAIR, max_iter=5, tol=None, impossible="skip")
    assert skipped.impossible == 1 and alone.impossible == 0
    assert close(skipped.history, np.array(alone.history), 1e-11)
    for a, b in zip(skipped.model.components, alone.model.components):
        assert close([a.mean, a.variance], np.array([b.mean, b.variance]), 1e-10)


def test_n02_logsumexp_is_minus_infinity_never_nan():
    got = PAIR.log_density([1e200, 0.0])
    assert got[0] == -np.inf and np.isfinite(got[1])


def test_n02_a_symbol_of_probability_zero_everywhere():
    parts = [Categorical(["a", "b", "c"], p) for p in ([0.5, 0.5, 0.0], [0.1, 0.9, 0.0])]
    model = Mixture(parts, weights=[0.5, 0.5])
    with pytest.raises(DataError, match="row 1 .*as 1 row in all"):
        optimize(["a", "c", "b"], model)
    result = optimize(["a", "c", "b"], model, impossible="skip", max_iter=3, tol=None)
    assert result.impossible == 1 and np.isfinite(result.history).all()
    assert model.log_density(["c"])[0] == -np.inf
    only = Categorical(["a", "b"], [1.0, 0.0])
    assert only.log_density(["a", "b"]).tolist() == [0.0, -np.inf]


def test_n02_zero_times_log_zero_in_one_product_is_zero():
    """Two impossible factors add up to -inf, one of probability one to nothing."""
    model = Composite(Bernoulli(1.0), Categorical(["a", "b"], [0.0, 1.0]), Gaussian(0.0, 1.0))
    got = model.log_density([(1, "b", 0.0), (0, "b", 0.0), (0, "a", 0.0)])
    assert close(got[0], -0.5 * math.log(2 * math.pi), 1e-15)
    assert got[1] == got[2] == -np.inf


# -- N04 -----------------------------------------------------------------------------------------------


def test_n04_a_dead_component_keeps_its_parameters_and_is_reported():
    start = Mixture([Gaussian(0.0, 1.0), Gaussian(1000.0, 1.0)], weights=[0.5, 0.5])
    with pytest.warns(UserWarning, match="component_1"):
        result = optimize([-1.0, 0.0, 1.0], start, max_iter=5, tol=None)
    model = result.model
    assert model.weights.tolist() == [1.0, 0.0]
    assert model.components[0].mean == 0.0 and close(model.components[0].variance, 2 / 3, 1e-15)
    assert (model.components[1].mean, model.components[1].variance) == (1000.0, 1.0)
    assert result.dead == ["component_1"]
    assert np.isfinite(result.history).all()
    assert close(result.log_likelihood, -1.5 * (math.log(2 * math.pi * 2 / 3) + 1), 1e-13)


@pytest.mark.parametrize(
    "dead, row",
    [
        (Poisson(1e9), (0.0,)),
        (Exponential(1e9), (5.0,)),
        (MultivariateGaussian(1, [1e4], [[1.0]]), (1.0,)),
        (Categorical(["a", "b"], [0.0, 1.0]), ("a",)),
        (Composite(Gaussian(1e4, 1.0)), (1.0,)),
        (Mixture([Gaussian(1e4, 1.0), Gaussian(-1e4, 2.0)], weights=[0.3, 0.7]), (1.0,)),
        (Optional(Gaussian(1e4, 1.0), 0.25, estimate_missing=True), (1.0,)),
    ],
    ids=lambda v: type(v).__name__,
)
@pytest.mark.filterwarnings("ignore")
def test_n04_every_kind_of_dead_component_keeps_all_of_its_parameters(dead, row):
    kind = Categorical(["a", "b"], [1.0, 0.0]) if row == ("a",) else Gaussian(1.0, 100.0)
    result = optimize([row] * 3 if row == ("a",) else [row, (0.5,), (1.5,)][: 3 if row[0] == 1.0 else 1] * 3,
                      Mixture([kind, dead], weights=[0.5, 0.5]), max_iter=3, tol=None)  # fmt: skip
    assert result.model.weights.tolist() == [1.0, 0.0]
    assert repr(result.model.components[1]) == repr(dead)
    assert "component_1" in result.dead


# -- N05 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_n05a_collapse_stops_at_the_floor(seed):
    x = np.r_[np.zeros(500), np.full(500, 10.0)]
    result = optimize(x, Mixture(Gaussian(min_variance=1e-6), 2), seed=seed)
    order = np.argsort([c.mean for c in result.model.components])
    assert close(result.model.weights, 0.5, 1e-12)
    assert close([result.model.components[k].mean for k in order], np.array([0.0, 10.0]), 1e-12)
    assert close([c.variance for c in result.model.components], 1e-6, 1e-18)
    assert close(result.log_likelihood / 1000, 5.29566957, 5e-9)
    assert result.converged


def test_n05b_fewer_rows_than_components_are_refused_before_em():
    calls = []
    with pytest.raises(DataError, match="3 components, but only 2 rows"):
        optimize([1.0, 2.0], Mixture(Gaussian(), 3), callback=calls.append)
    assert calls == []


def test_n05_as_many_components_as_rows_runs():
    result = optimize([3.0, 4.0, 5.0, 7.0], Mixture(Gaussian(min_variance=1e-4), 4), tol=None, max_iter=20)
    assert sorted(round(c.mean, 6) for c in result.model.components) == [3.0, 4.0, 5.0, 7.0]
    assert close(result.log_likelihood, 4 * (math.log(0.25) - 0.5 * math.log(2 * math.pi * 1e-4)), 1e-9)


# -- N07, N08 --------------------------------------------------------------------------------------------


def test_n07_a_determinant_that_underflows():
    d = 1000
    full = MultivariateGaussian(d, np.zeros(d), 0.1 * np.eye(d))
    diagonal = MultivariateGaussian(d, np.zeros(d), np.full(d, 0.1), structure="diagonal")
    assert np.linalg.det(0.1 * np.eye(d)) == 0.0
    expected = -0.5 * d * math.log(2 * math.pi * 0.1)
    assert abs(expected - 232.354013) < 5e-7
    x = np.zeros((1, d))
    assert close(full.log_density(x), expected, 1e-10)
    assert close(diagonal.log_density(x), expected, 1e-10)


LINE = np.array([(i, 2.0 * i) for i in range(10)])


def test_n08_a_singular_covariance_without_a_floor_is_refused():
    for model in (MultivariateGaussian(2, min_variance=0), Mixture(MultivariateGaussian(2, min_variance=0), 1)):
        with pytest.raises(NumericalError, match="rank 1 of 2"):
            optimize(LINE, model)
    with pytest.raises(NumericalError, match=r"component.*member 0.*rank 1 of 2"):
        optimize(LINE, Mixture(MultivariateGaussian(2, min_variance=0), 1))


@pytest.mark.parametrize("floor", [1e-6, 0.5])
def test_n08_with_a_floor_the_eigenvalues_are_the_datas_and_the_floor(floor):
    result = optimize(LINE, MultivariateGaussian(2, min_variance=floor), max_iter=4, tol=None)
    assert close(np.linalg.eigvalsh(result.model.covariance), np.array([floor, 41.25]), 1e-12)
    assert np.isfinite(result.history).all() and result.status == "max_iter"
    expected = -0.5 * 10 * (2 * math.log(2 * math.pi) + math.log(41.25 * floor) + 1)
    assert close(result.log_likelihood, expected, 1e-6)


def test_n08_the_default_floor_keeps_a_singular_covariance_regular():
    result = optimize(LINE, MultivariateGaussian(2))
    values = np.linalg.eigvalsh(result.model.covariance)
    assert values[0] > 0 and close(values[1], 41.25, 1e-6)
    assert np.isfinite(result.log_likelihood)


# -- N11 -----------------------------------------------------------------------------------------------


def test_n11_the_tolerance_is_per_observation():
    rows = np.array([0.0, 1.0, 4.0, 5.5])
    start = Mixture([Gaussian(0.5, 1.0), Gaussian(4.0, 2.0)], weights=[0.4, 0.6])
    few = optimize(rows, start, tol=1e-7)
    many = optimize(np.tile(rows, 100_000), start, tol=1e-7)
    weighted = optimize(rows, start, tol=1e-7, weights=np.full(4, 1e6))
    assert few.converged and 3 < few.n_iter < 100
    for other in (many, weighted):
        assert other.n_iter == few.n_iter
        assert close(other.model.weights, few.model.weights, 1e-10)
        for a, b in zip(other.model.components, few.model.components):
            assert close([a.mean, a.variance], np.array([b.mean, b.variance]), 1e-10)


def test_n11_a_change_below_rounding_stops_a_tolerance_of_zero():
    result = optimize([0.0, 1.0, 2.0, 3.0], Gaussian(), tol=0.0, max_iter=50)
    assert result.converged and result.n_iter <= 3
    assert optimize([0.0, 1.0, 2.0, 3.0], Gaussian(), tol=None, max_iter=50).n_iter == 50


# -- N14, N16 --------------------------------------------------------------------------------------------


def test_n14_single_precision_is_summed_in_double():
    ones = np.ones(2**24 + 1, np.float32)
    made = optimize(ones, Poisson(2.0), max_iter=1, tol=None)
    assert made.effective_rows == 16777217.0
    assert made.model.rate == 1.0
    assert abs(made.log_likelihood - -16777217.0) < 1e-5


def test_n14_a_fit_of_single_precision_equals_that_of_its_copy_in_double():
    x = np.random.default_rng(0).normal(3, 2, (500, 2)).astype(np.float32)
    model = Mixture(Composite(Gaussian(), Gaussian()), 2)
    a, b = optimize(x, model, max_iter=10, tol=None), optimize(x.astype(float), model, max_iter=10, tol=None)
    assert close(a.history, np.array(b.history), 1e-12 * 500)
    for c, d in zip(a.model.components, b.model.components):
        for f, g in zip(c.factors, d.factors):
            assert close([f.mean, f.variance], np.array([g.mean, g.variance]), 1e-12)


def test_n16_a_positive_log_likelihood_is_right():
    x = np.random.default_rng(0).normal(0, 0.01, 300)
    result = optimize(x, Gaussian())
    assert result.log_likelihood > 0 and result.converged
    assert close(result.log_likelihood, -150 * (math.log(2 * math.pi * x.var()) + 1), 1e-9)


# -- P16 -----------------------------------------------------------------------------------------------


MANY = Mixture(Composite(Gaussian(), Optional(Categorical()), Poisson(), Optional(Mixture(Gaussian(), 2))), 3)


def mixed_rows(n=700):
    rng = np.random.default_rng(5)
    return [
        (float(a), None if b == 3 else "xyz"[b], float(c), None if d > 1 else float(d))
        for a, b, c, d in zip(rng.normal(size=n), rng.integers(0, 4, n), rng.poisson(4, n), rng.normal(size=n))
    ]


@pytest.mark.parametrize("rows", [1, 7, 64, 699])
def test_p16_the_size_of_a_tile_does_not_matter(rows, monkeypatch):
    data = mixed_rows()
    whole = optimize(data, MANY, max_iter=5, tol=None)
    monkeypatch.setattr(tiles, "TILE_ROWS", (rows, rows))
    tiled = optimize(data, MANY, max_iter=5, tol=None)
    assert close(tiled.history, np.array(whole.history), 1e-12 * max(abs(whole.log_likelihood), 700))
    assert close(tiled.model.log_density(data), whole.model.log_density(data), 1e-8)
    assert close(tiled.model.weights, whole.model.weights, 1e-9)


def test_p16_the_scratch_of_a_tile_does_not_matter(monkeypatch):
    data = mixed_rows()
    whole = optimize(data, MANY, max_iter=5, tol=None)
    monkeypatch.setattr(tiles, "TILE_VALUES", 1000)
    tiled = optimize(data, MANY, max_iter=5, tol=None)
    assert close(tiled.history, np.array(whole.history), 1e-12 * max(abs(whole.log_likelihood), 700))


@pytest.mark.parametrize("leaf", [Gaussian(), MultivariateGaussian(1), Composite(Mixture(Gaussian(), 2))], ids=str)
def test_p16_nothing_of_the_size_of_rows_times_components_is_kept(leaf):
    n, k = 100_000, 50
    x = np.random.default_rng(0).normal(size=n)
    optimize(x[:500], Mixture(leaf, k), max_iter=1, tol=None)  # compiled
    tracemalloc.start()
    optimize(x, Mixture(leaf, k), max_iter=1, tol=None, init="random")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < n * k * 8 / 4, f"{peak / 1e6:.1f} MB; one array of rows x components is {n * k * 8 / 1e6:.0f} MB"
