"""Borders and extremes of single families: what is capped, what is refused, and what stays exact there."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import optimize as scipy_optimize
from scipy import stats
from scipy.special import digamma

from mixle_mpi import (
    Binomial,
    DataError,
    Exponential,
    Gamma,
    Gaussian,
    Geometric,
    Laplace,
    LogNormal,
    Mixture,
    ModelError,
    MultivariateGaussian,
    NumericalError,
    Optional,
    Poisson,
    StudentT,
    Uniform,
    load,
    optimize,
)  # fmt: skip

HALF = [0.5, 0.5]


# -- gamma (N13) -----------------------------------------------------------------------------------------


def test_n13_a_gamma_of_equal_rows_has_its_shape_capped_with_a_warning():
    with pytest.warns(UserWarning, match="shape is capped at 1e"):
        result = optimize([3.0, 3.0, 3.0], Gamma())
    assert result.model.shape == 1e6
    assert abs(result.model.shape / result.model.rate - 3.0) < 1e-12
    assert result.converged and result.n_iter <= 3
    expected = 3 * (stats.norm.logpdf(0, scale=3e-3))  # a gamma of that shape is all but normal
    assert abs(result.log_likelihood - expected) < 1e-5


def test_n13_a_component_that_collapses_ends_too():
    x = np.r_[np.full(40, 3.0), np.random.default_rng(0).gamma(2.0, 5.0, 60)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = optimize(x, Mixture([Gamma(1e3, 333.0), Gamma(2.0, 0.2)], weights=HALF), max_iter=200)
    assert result.converged and np.diff(result.history).min() > -1e-9
    assert result.model.components[0].shape == 1e6


@pytest.mark.parametrize("shape", [1e-2, 0.3, 1.0, 7.0, 1e3, 1e5])
def test_the_gamma_of_maximum_likelihood(shape):
    """The root of log(a) - digamma(a), of rows whose mean and mean log are known; compared in high precision."""
    x = np.maximum(np.random.default_rng(1).gamma(shape, 1 / shape, 400), 1e-300)
    model = optimize(x, Gamma(), max_iter=1, tol=None).model
    u = x / x.mean()  # the difference of the log of the mean and the mean log, without cancellation
    gap = float(np.mean(np.where(np.abs(u - 1) < 0.1, u - 1 - np.log1p(np.maximum(u - 1, -0.5)), u - 1 - np.log(u))))

    def minus(t):  # log(a) - digamma(a), by its series where that is a difference
        a = np.exp(t)
        return 1 / (2 * a) + 1 / (12 * a**2) - 1 / (120 * a**4) if a > 1e3 else np.log(a) - digamma(a)

    root = np.exp(scipy_optimize.brentq(lambda t: minus(t) / gap - 1, -12, 14, xtol=1e-15))
    assert abs(model.shape / root - 1) < 1e-9
    assert abs(model.shape / model.rate / x.mean() - 1) < 1e-12


@pytest.mark.parametrize(
    "model, rows, column",
    [
        (Gamma(), [1.0, 0.0, 2.0], "numbers > 0"),
        (Gamma(), [1.0, -2.0, 2.0], "numbers > 0"),
        (Geometric(), [1.0, 0.0], "1, 2, ..."),
        (Geometric(), [1.0, 1.5], "1, 2, ..."),
        (Binomial(3), [1.0, 4.0], "0, 1, ..., 3"),
        (Binomial(), [1.0, -1.0], "0, 1, ..., trials"),
        (Mixture(Gamma(), 2), [1.0, -2.0, 3.0], "numbers > 0"),
        (Mixture(Optional(Geometric()), 2), [1.0, 0.5, None], "1, 2, ..."),
    ],
)
def test_rows_outside_the_support_of_the_only_family_are_refused(model, rows, column):
    with pytest.raises(DataError, match=r"row 1 .*support") as refused:
        optimize(rows, model)
    assert column in str(refused.value)


@pytest.mark.parametrize("inner", [Gamma(2.0, 1.0), Geometric(0.3), Binomial(4, 0.5), Binomial(4, 1.0), Geometric(1.0),
                                   Uniform(0.0, 3.0)], ids=repr)  # fmt: skip
def test_n13_rows_outside_the_support_go_to_the_other_component(inner):
    x = np.array([-5.0, -0.5, 0.5, 5.5, -1e200, 1e200, 2.0, 1.0, 4.0])
    model = Mixture([inner, Gaussian(0.0, 1.0)], weights=HALF)
    scores, own = model.log_density(x), inner.log_density(x)
    normal = np.where(np.abs(x) < 1e150, stats.norm.logpdf(np.clip(x, -1e150, 1e150)), -np.inf)
    np.testing.assert_allclose(scores, np.log(0.5) + np.logaddexp(own, normal), rtol=1e-12)
    outside = own == -np.inf
    assert outside[[0, 1, 4]].all() and not outside.all()
    assert (model.posterior(x)[outside & (normal > -np.inf)] == [0.0, 1.0]).all()
    # and nothing of them in the statistics
    fitted = optimize(x[np.abs(x) < 1e100], model, max_iter=1, tol=None).model
    inside = x[~outside & (np.abs(x) < 1e100)]
    r = 1 / (1 + np.exp(stats.norm.logpdf(inside) - inner.log_density(inside)))
    mean = {"gamma": lambda m: m.shape / m.rate, "geometric": lambda m: 1 / m.p, "binomial": lambda m: 4 * m.p,
            "uniform": lambda m: None}[inner.type_name()](fitted.components[0])  # fmt: skip
    if mean is not None:
        assert abs(mean - (r @ inside) / r.sum()) < 1e-12 * abs(mean)
    else:
        assert (fitted.components[0].low, fitted.components[0].high) == (inside.min(), inside.max())


# -- Student's t -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("df", [0.5, 3.0])
def test_the_student_of_maximum_likelihood(df):
    x = 2.0 + 3.0 * np.random.default_rng(int(2 * df)).standard_t(df, 400)
    result = optimize(x, StudentT(), max_iter=500, tol=1e-13)
    best = scipy_optimize.minimize(
        lambda p: -stats.t.logpdf(x, np.exp(p[0]), p[1], np.exp(p[2])).sum(),
        [np.log(df), 2.0, np.log(3.0)], method="BFGS", options={"gtol": 1e-6},
    )  # fmt: skip
    assert abs(result.log_likelihood + best.fun) < 1e-7
    np.testing.assert_allclose([result.model.df, result.model.loc, result.model.scale],
                               [np.exp(best.x[0]), best.x[1], np.exp(best.x[2])], rtol=1e-4)  # fmt: skip


def test_a_student_of_many_degrees_of_freedom_is_a_gaussian():
    x = np.random.default_rng(0).normal(5.0, 2.0, 300)
    np.testing.assert_allclose(StudentT(1e6, 5.0, 2.0).log_density(x), stats.norm.logpdf(x, 5.0, 2.0), atol=1e-4)
    assert abs(StudentT(1e5, 5.0, 2.0).log_density(x) - stats.norm.logpdf(x, 5.0, 2.0)).max() < 1e-3


def test_a_student_with_outliers_is_not_moved_by_them():
    x = np.r_[np.random.default_rng(0).normal(0, 1, 100), 1e6, 1e9, -1e12]
    result = optimize(x, StudentT(), max_iter=300, tol=1e-10)
    assert abs(result.model.loc) < 0.5 and 0.5 < result.model.scale < 1.5 and result.model.df < 3
    assert np.diff(result.history).min() > -1e-9


def test_a_constant_column_stops_a_students_scale_at_the_floor():
    with pytest.warns(UserWarning, match="constant"):
        result = optimize(np.full(20, 7.5), StudentT())
    assert result.model.loc == 7.5 and result.model.scale == pytest.approx(1e-9**0.5, rel=1e-9)
    assert np.isfinite(result.log_likelihood)
    assert StudentT(min_variance=0.01).min_variance == 0.01
    with pytest.warns(UserWarning, match="constant"):
        assert optimize(np.full(20, 7.5), StudentT(min_variance=0.01)).model.scale == pytest.approx(0.1, rel=1e-9)


# -- binomial --------------------------------------------------------------------------------------------


def test_absent_trials_are_the_largest_value_of_all_rows():
    x = [0.0, 3.0, 7.0, 2.0]
    result = optimize(x, Binomial())
    assert result.model.trials == 7 and result.model.p == pytest.approx(3 / 7, rel=1e-14)
    assert result.n_parameters == 1
    np.testing.assert_allclose(result.model.log_density(x), stats.binom.logpmf(x, 7, 3 / 7), rtol=1e-12)
    # also of those that weigh nothing, and those of other components
    assert optimize(x, Binomial(), weights=[1, 1, 0, 1]).model.trials == 7
    mixed = optimize([*x, *x], Mixture(Binomial(), 2), max_iter=3, tol=None).model
    assert [c.trials for c in mixed.components] == [7, 7]


def test_a_fitted_binomial_keeps_its_trials_on_other_rows(tmp_path):
    result = optimize([0.0, 3.0, 7.0, 2.0] * 5, Mixture(Binomial(), 2), max_iter=3, tol=None)
    result.model.save(tmp_path)
    for model in (result.model, load(tmp_path)):
        got = model.log_density([7.0, 8.0, 1.0])
        assert got[1] == -np.inf and np.isfinite(got[[0, 2]]).all()
        again = optimize([1.0, 2.0, 3.0], model, max_iter=2, tol=None).model
        assert [c.trials for c in again.components] == [7, 7]
        with pytest.raises(DataError, match="support"):
            optimize([1.0, 8.0], model)


def test_a_fitted_binomial_beside_a_new_one():
    part = optimize([0.0, 3.0, 7.0, 2.0], Binomial()).model
    both = Mixture([part, Binomial(p=0.5), Binomial(20, 0.25)], weights=[0.2, 0.5, 0.3])
    x = np.array([0.0, 5.0, 12.0, 7.0, 15.0])
    model = optimize(x, both, max_iter=0, tol=None).model
    assert [c.trials for c in model.components] == [7, 15, 20]
    parts = [stats.binom.logpmf(x, n, p) + np.log(w) for n, p, w in ((7, 3 / 7, 0.2), (15, 0.5, 0.5), (20, 0.25, 0.3))]
    np.testing.assert_allclose(model.log_density(x), np.logaddexp.reduce(parts), rtol=1e-11)


@pytest.mark.parametrize("value, p", [(0.0, 0.0), (5.0, 1.0)])
def test_a_binomial_on_its_border(value, p):
    result = optimize([value] * 4, Binomial(5))
    assert result.model.p == p and result.log_likelihood == 0.0
    assert optimize([0.0] * 4, Binomial()).model.trials == 0


@pytest.mark.parametrize("trials", [-1, 1.5, True, "three"])
def test_trials_that_are_no_number_are_refused(trials):
    with pytest.raises(ModelError, match="trials"):
        Binomial(trials)


def test_a_geometric_of_ones():
    result = optimize([1.0] * 4, Geometric())
    assert result.model.p == 1.0 and result.log_likelihood == 0.0
    assert result.model.log_density([1.0, 2.0]).tolist() == [0.0, -np.inf]


# -- uniform ---------------------------------------------------------------------------------------------


def test_a_uniform_is_the_extremes_exactly():
    x = np.random.default_rng(0).normal(1e8, 1, 100)
    result = optimize(x, Uniform())
    assert (result.model.low, result.model.high) == (x.min(), x.max())
    assert result.log_likelihood == pytest.approx(-100 * np.log(np.ptp(x)), rel=1e-14)
    assert result.converged and result.n_iter == 1
    weighted = optimize(x, Uniform(), weights=(x < np.median(x)).astype(float)).model
    assert weighted.high == x[x < np.median(x)].max()


@pytest.mark.parametrize("x", [7.5, 0.0, -1e12])
def test_a_uniform_of_one_point_has_a_least_width(x):
    result = optimize([x] * 3, Uniform())
    assert result.model.low <= x <= result.model.high
    assert 0 < result.model.high - result.model.low <= max(1.0001e-9, 1e-15 * abs(x) * 4)
    assert np.isfinite(result.log_likelihood)


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0)])
def test_a_uniform_without_width_is_refused(bounds):
    with pytest.raises(ModelError, match="not below"):
        Uniform(*bounds)


def test_a_uniform_component_never_loses_rows_that_only_it_explains():
    x = np.array([-50.0, 0.1, 0.2, 0.3, 40.0])
    result = optimize(x, Mixture([Uniform(-60.0, 60.0), Gaussian(0.2, 0.1)], weights=HALF), max_iter=50)
    assert (result.model.components[0].low, result.model.components[0].high) == (-50.0, 40.0)
    assert np.diff(result.history).min() >= -1e-12 and result.converged


# -- Laplace ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x, weights, loc, scale",
    [
        ([1.0, 2.0, 3.0], None, 2.0, 2 / 3),
        ([4.0, 1.0, 3.0, 2.0], None, 2.0, 1.0),  # an even count: the lower median
        ([1.0, 1.0, 1.0, 5.0], None, 1.0, 1.0),
        ([-1.0, 0.0, 0.0, 1.0], None, 0.0, 0.5),
        ([-0.0, 0.0, 1.0, -1.0], None, 0.0, 0.5),
        ([1.0, 2.0, 3.0], [1.0, 1.0, 5.0], 3.0, 3 / 7),
        ([1.0, 2.0, 3.0, 9.0], [1.0, 1.0, 2.0, 0.0], 2.0, 0.75),
        ([1e-280, 1e8, -1e8], None, 1e-280, 2e8 / 3),
        ([1e8 + 1, 1e8 + 2, 1e8 + 4], None, 1e8 + 2, 1.0),
    ],
)
def test_a_laplace_is_the_lower_weighted_median(x, weights, loc, scale):
    result = optimize(x, Laplace(), weights=weights)
    assert result.model.loc == loc
    assert result.model.scale == pytest.approx(scale, rel=1e-12)
    assert result.converged


def test_a_laplace_of_a_constant_column_stops_at_the_floor():
    for n in (1, 2, 5):
        with pytest.warns(UserWarning, match="constant"):
            result = optimize(np.full(n, -2.5), Laplace())
        assert result.model.loc == -2.5 and 0 < result.model.scale < 1e-3
        assert np.isfinite(result.log_likelihood) and result.converged


@pytest.mark.parametrize("kind", [Laplace, StudentT, Uniform, Gamma, Gaussian])
def test_moving_and_scaling_the_column_moves_and_scales_the_model(kind):
    x = np.random.default_rng(3).gamma(2.0, 1.0, 150)
    add = 0.0 if kind is Gamma else 3.0
    a = optimize(x, Mixture(kind(), 2), max_iter=8, tol=None, seed=1)
    b = optimize(x * 2.0**40 + add * 2.0**40, Mixture(kind(), 2), max_iter=8, tol=None, seed=1)
    shifted = np.array(b.history) + 150 * 40 * np.log(2.0)
    np.testing.assert_allclose(shifted, a.history, atol=1e-9)


# -- structures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", ["full", "tied", "diagonal", "spherical"])
@pytest.mark.parametrize("scale", [1e-150, 1e80])
def test_vectors_of_numbers_whose_squares_overflow(structure, scale):
    """The residual form alone; the natural one would form squares."""
    x = np.random.default_rng(0).normal(size=(60, 2)) + np.array([1.0, -2.0])
    near = optimize(x, MultivariateGaussian(2, structure=structure), max_iter=3, tol=None)
    far = optimize(x * scale, MultivariateGaussian(2, structure=structure), max_iter=3, tol=None)
    assert far.log_likelihood + 2 * 60 * np.log(scale) == pytest.approx(near.log_likelihood, rel=1e-9)
    np.testing.assert_allclose(far.model.mean / scale, near.model.mean, rtol=1e-9)
    if scale > 1:  # the smaller one's square is no number
        np.testing.assert_allclose(np.asarray(far.model.covariance) / scale**2, near.model.covariance, rtol=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda floor: Gaussian(min_variance=floor),
        lambda floor: StudentT(min_variance=floor),
        lambda floor: MultivariateGaussian(1, structure="full", min_variance=floor),
        lambda floor: MultivariateGaussian(1, structure="diagonal", min_variance=floor),
        lambda floor: MultivariateGaussian(1, structure="spherical", min_variance=floor),
    ],
    ids=["gaussian", "student", "full", "diagonal", "spherical"],
)
def test_a_component_that_collapses_without_a_floor_is_refused_by_name(make):
    x = np.r_[np.random.default_rng(0).normal(size=40), np.full(6, 9.0)]
    parts = [make(0.0), make(0.0)]
    for part, at in zip(parts, (0.0, 9.0)):
        given = {"loc": at, "scale": 1.0, "df": 5.0} if isinstance(part, StudentT) else {"mean": at, "variance": 1.0}
        if isinstance(part, MultivariateGaussian):
            shape = {"full": (1, 1), "diagonal": (1,)}.get(part.structure, ())
            given = {"mean": np.array([at]), "covariance": np.ones(shape)}
        part.values = given
    with pytest.raises(NumericalError, match=r"component_\* \(member 1\).* is (0|singular).*min_variance is 0"):
        optimize(x, Mixture(parts, weights=HALF), max_iter=500, tol=None)
    floored = optimize(x, Mixture(make(0.01), 2), max_iter=30, tol=None, seed=1)
    assert floored.status == "max_iter"


@pytest.mark.parametrize("family", [Exponential(2.0), Poisson(3.0), Geometric(0.2), Binomial(9, 0.4), Gamma(2, 1),
                                    Laplace(1, 2), LogNormal(1, 2), StudentT(3, 1, 2), Uniform(0, 9)],
                         ids=repr)  # fmt: skip
def test_a_dead_component_keeps_its_parameters(family):
    weights = [1.0, 0.0]
    model = Mixture([Gaussian(2.0, 4.0), family], weights=weights)
    with pytest.warns(UserWarning, match="component_1"):
        result = optimize([1.0, 2.0, 4.0], model, max_iter=3, tol=None)
    assert repr(result.model.components[1]) == repr(family)
