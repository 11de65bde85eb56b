"""Nodes of one key are one set of parameters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mixle_mpi import (
    Bernoulli,
    Binomial,
    Categorical,
    Composite,
    Exponential,
    Gamma,
    Gaussian,
    Laplace,
    Mixture,
    ModelError,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    StudentT,
    Uniform,
    load,
    optimize,
)  # fmt: skip
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.threads import run_on_threads

X = np.r_[np.random.default_rng(0).normal(-3, 1, 40), np.random.default_rng(1).normal(2, 0.5, 60)]
GRIDS = [(2, 1), (1, 2), (2, 2), (1, 5)]


def same_on_grids(data, model, cuts=("",), **options):
    """Every rank of every grid and cut has the parameters of one rank."""
    serial = optimize(data, model, tol=None, **options)
    for shape in GRIDS:
        for cut in cuts if shape[1] > 1 else [None]:
            for result in run_on_threads(*shape, lambda g, c=cut: fit(data, model, g, tol=None, cut=c, **options)):
                np.testing.assert_allclose(result.history, serial.history, rtol=1e-12)
                np.testing.assert_allclose(result.model.state.theta, serial.model.state.theta, rtol=1e-8, atol=1e-8)
                assert result.n_parameters == serial.n_parameters
    return serial


# -- against formulas written out ------------------------------------------------------------------------


def test_three_components_two_of_one_key_are_pooled():
    start = Mixture([Gaussian(-1.0, 2.0, key="a"), Gaussian(1.0, 1.0, key="b"), Gaussian(-1.0, 2.0, key="a")],
                    weights=[0.2, 0.5, 0.3])  # fmt: skip
    result = same_on_grids(X, start, max_iter=6)
    w, mean, variance, history = np.array([0.2, 0.5, 0.3]), np.array([-1.0, 1.0, -1.0]), np.array([2.0, 1.0, 2.0]), []
    for step in range(7):
        terms = np.log(w) + stats.norm.logpdf(X[:, None], mean, np.sqrt(variance))
        level = np.logaddexp.reduce(terms, axis=1)
        history.append(level.sum())
        if step == 6:
            break
        r = np.exp(terms - level[:, None])
        w = r.mean(axis=0)
        for own in ([0, 2], [1]):
            u = r[:, own].sum(axis=1)
            mean[own] = u @ X / u.sum()
            variance[own] = u @ (X - mean[own[0]]) ** 2 / u.sum()
    np.testing.assert_allclose(result.history, history, rtol=1e-12)
    np.testing.assert_allclose(result.model.weights, w, rtol=1e-11)
    for k, c in enumerate(result.model.components):
        assert (c.mean, c.variance) == (pytest.approx(mean[k], rel=1e-11), pytest.approx(variance[k], rel=1e-11))
    a, _, c = result.model.components
    assert (a.mean, a.variance) == (c.mean, c.variance)
    assert result.n_parameters == 2 + 2 + 2


def test_one_table_for_all_components():
    rng = np.random.default_rng(2)
    words = ["abc"[i] for i in rng.integers(0, 3, 100)]
    data = list(zip(X.tolist(), words))
    table = Categorical(["a", "b", "c"], [0.2, 0.3, 0.5], key="word")
    model = Mixture([Composite(Gaussian(-1.0, 2.0), table), Composite(Gaussian(1.0, 1.0), table)], weights=[0.5, 0.5])
    result = same_on_grids(data, model, ("", "component_*"), max_iter=5)
    # the same in all components: it is independent of them, and its maximum is the shares of the words
    share = np.array([words.count(v) for v in "abc"]) / 100
    for c in result.model.components:
        np.testing.assert_allclose(c.factors[1].probabilities, share, rtol=1e-12)
    alone = optimize(X, Mixture([Gaussian(-1.0, 2.0), Gaussian(1.0, 1.0)], weights=[0.5, 0.5]), max_iter=5, tol=None)
    expected = np.array(alone.history) + 100 * share @ np.log(share)
    np.testing.assert_allclose(result.history[1:], expected[1:], rtol=1e-11)
    assert result.n_parameters == 1 + 4 + 2


# -- grids, cuts and counts --------------------------------------------------------------------------------

PAIRS = list(zip(X.tolist(), np.random.default_rng(3).poisson(4, 100).tolist()))
CASES = {
    "every component": (Mixture(Composite(Gaussian(), Poisson(key="n")), 3), PAIRS, ("", "component_*"), 2 + 6 + 1),
    "a mixture": (Mixture(Composite(Mixture(Gaussian(), 2, key="m"), Poisson()), 3), PAIRS,
                  ("", "component_*", "component_*/factor_0", "component_1"), 2 + (1 + 4) + 3),
    "a factor pair": (Mixture([Composite(Composite(Gaussian(), Poisson(), key="r")), Composite(Gaussian(), Poisson()),
                               Composite(Composite(Gaussian(), Poisson(), key="r"))]), PAIRS,
                      ("", "component_0/factor_0", "component_1"), 2 + 3 + 3),
    "searches": (Mixture([Laplace(key="a"), Gaussian(), Laplace(key="a"), StudentT(key="t"), Laplace(),
                          StudentT(key="t"), Uniform(key="u"), Uniform(key="u")]), X, ("",), 7 + 2 + 2 + 3 + 2 + 2),
    "a key in a keyed mixture's copies": (Mixture(Composite(Mixture([Laplace(), Gaussian(), Laplace()], key="m"),
                                                            Poisson(key="n")), 2), PAIRS,
                                          ("", "component_*", "component_*/factor_0", "component_0/factor_0"),
                                          1 + (2 + 6) + 1),
    "an optional": (Mixture(Composite(Optional(Gaussian(), estimate_missing=True, key="o"), Poisson()), 3),
                    [(None if i % 7 == 0 else x, n) for i, (x, n) in enumerate(PAIRS)], ("", "component_*"), 2 + 3 + 3),
    "tied vectors": (Mixture(Mixture(MultivariateGaussian(2, structure="tied"), 2, key="m"), 3), PAIRS,
                     ("", "component_*", "component_1"), 2 + (1 + 4 + 3)),
    "tied vectors, each of one key": (Mixture(MultivariateGaussian(2, structure="tied", key="v"), 3), PAIRS, ("",),
                                      2 + 2 + 3),
    "pseudo-counts": (Mixture(Composite(Gaussian(), Categorical(pseudo_count=2, key="c")), 3),
                      [(x, "abcd"[n % 4]) for x, n in PAIRS], ("", "component_*"), 2 + 6 + 3),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_keys_on_every_grid_and_cut(name, tmp_path):
    model, data, cuts, free = CASES[name]
    result = same_on_grids(data, model, cuts, max_iter=5, seed=1)
    assert result.n_parameters == free == result.model.num_parameters
    assert result.status == "max_iter"  # never "decreased"
    result.model.save(tmp_path)
    again = load(tmp_path)
    assert again.log_density(data).tobytes() == result.model.log_density(data).tobytes()
    assert again.num_parameters == free


def test_a_key_over_all_components_makes_one_component():
    result = optimize(X, Mixture(Gaussian(key="g"), 3), max_iter=5, tol=None)
    for c in result.model.components:
        assert c.mean == pytest.approx(X.mean(), rel=1e-12) and c.variance == pytest.approx(X.var(), rel=1e-12)
    assert result.n_parameters == 2 + 2


def test_the_prior_of_a_keyed_table_counts_once():
    """One set of parameters has one prior: the pooled counts and one pseudo-count, and the objective never falls."""
    words = ["a"] * 30 + ["b"] * 10
    result = optimize(words, Mixture(Categorical(pseudo_count=5, key="c"), 2), max_iter=5, tol=None, init="random")
    for c in result.model.components:
        np.testing.assert_allclose(c.probabilities, [35 / 50, 15 / 50], rtol=1e-12)
    assert result.status == "max_iter"


# -- given parameters ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), *GRIDS])
def test_a_parameter_given_to_one_is_given_to_all(shape):
    model = Mixture([Gaussian(key="a"), Gaussian(0.0, 1.0), Gaussian(5.0, 2.0, key="a"), Gaussian(mean=5.0, key="a")],
                    weights=[0.25] * 4)  # fmt: skip
    for result in run_on_threads(*shape, lambda g: fit(X, model, g, max_iter=0, tol=None)):
        given = [(c.mean, c.variance) for c in result.model.components]
        assert given == [(5.0, 2.0), (0.0, 1.0), (5.0, 2.0), (5.0, 2.0)]


@pytest.mark.parametrize("shape", [(1, 1), *GRIDS])
@pytest.mark.parametrize(
    "model",
    [
        Mixture([Gaussian(1.0, 2.0, key="a"), Gaussian(1.0, 3.0, key="a")]),
        Mixture([Gaussian(1.0, key="a"), Gaussian(key="a"), Gaussian(2.0, key="a")]),
        Mixture([Mixture([Gaussian(), Gaussian()], weights=[0.5, 0.5], key="m"),
                 Mixture([Gaussian(), Gaussian()], weights=[0.4, 0.6], key="m")]),
    ],
    ids=["two", "partly", "weights"],
)  # fmt: skip
def test_parameters_that_differ_are_refused(model, shape):
    with pytest.raises(ModelError, match="key '[am]'.*different parameters"):
        run_on_threads(*shape, lambda g: fit(X, model, g))


@pytest.mark.parametrize(
    "a, b",
    [
        (Poisson(), Exponential()),
        (Gaussian(), Laplace()),
        (Gaussian(min_variance=0.1), Gaussian(min_variance=0.2)),
        (Gaussian(0.0, 1.0, fixed=True), Gaussian()),
        (Mixture(Gaussian(), 2), Mixture(Gaussian(), 3)),
        (Mixture([Gaussian(), Exponential()]), Mixture([Gaussian(), Gaussian()])),
        (Optional(Gaussian()), Optional(Gaussian(), estimate_missing=True)),
    ],
    ids=repr,
)
def test_nodes_that_are_not_alike_cannot_have_one_key(a, b):
    a.key = b.key = "k"
    with pytest.raises(ModelError, match="key 'k'"):
        optimize(np.abs(np.round(X)), Mixture([a, b]))


def test_a_fitted_keyed_model_goes_on_where_it_was():
    model = Mixture([Gaussian(key="a"), Exponential(), Gaussian(key="a"), Gaussian()])
    x = np.abs(X)
    first = optimize(x, model, max_iter=3, tol=None)
    on = optimize(x, first.model, max_iter=3, tol=None)
    straight = optimize(x, model, max_iter=6, tol=None)
    np.testing.assert_allclose(on.history, straight.history[3:], rtol=1e-12)


# -- several columns -------------------------------------------------------------------------------------------


def columns(seed=4, n=80):
    rng = np.random.default_rng(seed)
    return np.stack([rng.normal(100.0, 0.1, n), rng.gamma(2.0, 30.0, n) + 40], axis=1)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_one_gaussian_for_two_columns_is_that_of_their_rows_together(shape):
    """The columns have other places and spreads, so that each alone would be encoded in its own way."""
    x = columns()
    for result in run_on_threads(*shape, lambda g: fit(x, Composite(Gaussian(key="g"), Gaussian(key="g")), g)):
        both = x.ravel()
        for f in result.model.factors:
            assert f.mean == pytest.approx(both.mean(), rel=1e-12)
            assert f.variance == pytest.approx(both.var(), rel=1e-11)
        expected = stats.norm.logpdf(both, both.mean(), both.std()).sum()
        assert result.log_likelihood == pytest.approx(expected, rel=1e-11)
        assert result.n_parameters == 2


def test_one_laplace_student_or_vector_for_two_columns():
    x = columns()
    model = optimize(x, Composite(Laplace(key="l"), Laplace(key="l")), tol=1e-9).model
    both = np.sort(x.ravel())
    for f in model.factors:
        assert f.loc == both[len(both) // 2 - 1]
        assert f.scale == pytest.approx(np.abs(both - f.loc).mean(), rel=1e-12)
    a, b = optimize(x, Composite(StudentT(key="t"), StudentT(key="t")), max_iter=200, tol=1e-12).model.factors
    alone = optimize(both, StudentT(), max_iter=200, tol=1e-12)
    assert a.values == b.values
    assert stats.t.logpdf(both, a.df, a.loc, a.scale).sum() == pytest.approx(alone.log_likelihood, abs=1e-5)
    four = np.concatenate([x, columns(5)[:, ::-1]], axis=1)
    for structure in ("full", "diagonal", "spherical", "tied"):
        vector = MultivariateGaussian(2, structure=structure, key="v")
        model = optimize(four, Composite(vector, vector)).model
        alone = optimize(np.concatenate([four[:, :2], four[:, 2:]]), MultivariateGaussian(2, structure=structure))
        for f in model.factors:
            np.testing.assert_allclose(f.mean, alone.model.mean, rtol=1e-11)
            np.testing.assert_allclose(f.covariance, alone.model.covariance, rtol=1e-9, atol=1e-9)


def test_one_family_of_plain_numbers_for_two_columns():
    rng = np.random.default_rng(0)
    n, p = rng.poisson([3, 30], (50, 2)).astype(float), (rng.random((50, 2)) < [0.2, 0.9]).astype(float)
    for data, kind, mean in ((n, Poisson, "rate"), (p, Bernoulli, "p")):
        model = optimize(data, Composite(kind(key="k"), kind(key="k"))).model
        assert [getattr(f, mean) for f in model.factors] == [pytest.approx(data.mean(), rel=1e-13)] * 2
    model = optimize(n + 1, Composite(Uniform(key="k"), Uniform(key="k"))).model
    assert {(f.low, f.high) for f in model.factors} == {(n.min() + 1, n.max() + 1)}
    model = optimize(n, Composite(Binomial(40, key="k"), Binomial(60, key="k"))).model
    assert [f.p for f in model.factors] == [pytest.approx(n.sum() / (50 * 100), rel=1e-13)] * 2


def test_one_gamma_for_two_columns_is_that_of_their_rows_together():
    """Its features are taken about a reference near the mean, which must be the same for both."""
    x = columns()
    model = optimize(x, Composite(Gamma(key="k"), Gamma(key="k"))).model
    alone = optimize(x.ravel(), Gamma()).model
    for f in model.factors:
        assert (f.shape, f.rate) == (pytest.approx(alone.shape, rel=1e-9), pytest.approx(alone.rate, rel=1e-9))


def test_one_table_for_two_columns_has_the_levels_of_both():
    rows = [("a", "b"), ("a", "c"), ("b", "b"), ("a", "a")]
    both = Record(x=Categorical(key="k"), y=Categorical(key="k"), columns={"x": ["0"], "y": ["1"]})
    model = optimize(rows, both).model
    for f in model.factors:
        assert f.levels == ("a", "b", "c")
        np.testing.assert_allclose(f.probabilities, [4 / 8, 3 / 8, 1 / 8], rtol=1e-14)


def test_a_key_below_a_key_is_refused():
    """Statistics that two ties sum would count twice."""
    inner = Categorical(key="in", pseudo_count=3)
    model = Mixture([Composite(inner, key="out"), Composite(inner, key="out"), Composite(inner)])
    with pytest.raises(ModelError, match="key 'in'.* is below a node of key 'out'"):
        optimize(list(zip("aabbbbcabb")), model, max_iter=1)
