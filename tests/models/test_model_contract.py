"""Trees of models against EM in plain Python, and what combinators promise."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from plain_em import plain, step
from trees import TREES, N, rows_of

from mixle_mpi import (
    Bernoulli,
    Composite,
    DataError,
    Exponential,
    Gaussian,
    Mixture,
    ModelError,
    Optional,
    Poisson,
    Record,
    load,
    optimize,
)  # fmt: skip

every = pytest.mark.parametrize("name", TREES)
ITERATIONS = 10


def pair(name):
    model, data = TREES[name]
    rows = rows_of(data)
    width = len(rows[0])
    return model, data, rows, plain(model, list(range(width)) if isinstance(rows[0], tuple) else list(rows[0]))


def parameters(node, rows):
    columns = list(range(len(rows[0]))) if isinstance(rows[0], tuple) else list(rows[0])
    return np.array(plain(node, columns).parameters())


def close(a, b, relative):
    return (np.abs(a - b) <= relative * np.maximum(np.abs(b), 1e-3)).all()


@every
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_em_equals_plain_em(name, weighted):
    model, data, rows, reference = pair(name)
    weights = np.random.default_rng(2).choice([0.0, 0.5, 1.0, 3.0], N) if weighted else np.ones(N)
    result = optimize(data, model, max_iter=ITERATIONS, tol=None, weights=weights if weighted else None)
    expected = [step(reference, rows, weights) for _ in range(ITERATIONS)]
    end = copy.deepcopy(reference)
    expected.append(step(end, rows, weights))
    size = max(np.abs(expected).max(), N)
    assert result.n_iter == ITERATIONS
    assert np.abs(np.array(result.history) - expected).max() <= 1e-11 * size
    assert close(parameters(result.model, rows), np.array(reference.parameters()), 1e-8)
    assert np.diff(expected).max() > 1e-6 or name == "gaussian" or ITERATIONS < 2


@every
def test_log_density_and_posteriors_equal_plain(name):
    model, data, rows, reference = pair(name)
    expected = np.array([reference.density(row) for row in rows])
    np.testing.assert_allclose(model.log_density(data), expected, rtol=1e-12, atol=1e-11)
    if isinstance(model, Mixture):
        got = model.posterior(data)
        np.testing.assert_allclose(got.sum(axis=1), 1, rtol=0, atol=1e-12)
        np.testing.assert_allclose(got, [reference.posterior(row) for row in rows], rtol=1e-9, atol=1e-12)


@every
def test_a_fitted_tree_is_saved_and_read_to_the_bit(name, tmp_path):
    model, data, _, _ = pair(name)
    fitted = optimize(data, model, max_iter=2, tol=None)
    fitted.model.save(tmp_path)
    again = load(tmp_path)
    assert again.log_density(data).tobytes() == fitted.model.log_density(data).tobytes()
    assert abs(again.log_density(data).sum() - fitted.log_likelihood) <= 1e-12 * max(abs(fitted.log_likelihood), N)
    assert repr(again) == repr(fitted.model)


@every
def test_a_fitted_tree_written_again_by_hand_is_the_same_model(name):
    """The parameters in the user's units are the model; nothing is lost when they are copied."""
    from mixle_mpi.models.specification import build, describe

    model, data, _, _ = pair(name)
    fitted = optimize(data, model, max_iter=2, tol=None).model
    copied = build(describe(fitted))
    np.testing.assert_allclose(copied.log_density(data), fitted.log_density(data), rtol=1e-9, atol=1e-9)


@every
def test_samples_are_rows_of_the_model(name):
    model, _, _, _ = pair(name)
    assert len(model.sample(0)) == 0
    rows = model.sample(7, seed=3)
    assert len(rows) == 7
    assert repr(rows) == repr(model.sample(7, seed=3))
    assert np.isfinite(model.log_density(model.sample(200))).all()


@every
def test_estimation_from_nothing_never_falls(name):
    """The structure alone, without parameters, is fitted from the default start."""
    from mixle_mpi.models.specification import build, describe

    model, data, _, _ = pair(name)
    result = optimize(data, build(describe(model, parameters=False)), max_iter=8, tol=None, seed=4)
    assert len(result.history) == 9
    if name != "pseudo-counts":
        assert np.diff(result.history).min() >= -1e-11 * max(abs(result.log_likelihood), N)
    again = optimize(data, build(describe(model, parameters=False)), max_iter=8, tol=None, seed=4)
    assert again.history == result.history


# -- mixtures ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "composite", "long table alone", "full vectors", "record", "optional"])
def test_a_mixture_of_one_is_its_child(name):
    model, data, rows, _ = pair(name)
    alone = optimize(data, model, max_iter=5, tol=None)
    wrapped = optimize(data, Mixture([model], weights=[1.0]), max_iter=5, tol=None)
    np.testing.assert_allclose(wrapped.history, alone.history, rtol=1e-13)
    assert close(parameters(wrapped.model.components[0], rows), parameters(alone.model, rows), 1e-11)
    assert wrapped.model.weights.tolist() == [1.0]
    assert wrapped.n_parameters == alone.n_parameters


def test_copies_of_one_component_are_a_list_of_them():
    data = TREES["mixture of gaussians"][1]
    a = optimize(data, Mixture(Gaussian(), 3), max_iter=6, tol=None, seed=1)
    b = optimize(data, Mixture([Gaussian(), Gaussian(), Gaussian()]), max_iter=6, tol=None, seed=1)
    same = Gaussian()
    c = optimize(data, Mixture([same] * 3), max_iter=6, tol=None, seed=1)
    assert a.history == b.history == c.history
    assert [m.mean for m in a.model.components] == [m.mean for m in b.model.components]
    assert len({m.mean for m in c.model.components}) == 3, "copies have parameters of their own"


def test_nested_mixtures_of_equal_parameters_are_one_mixture():
    data = TREES["mixture of mixtures"][1]
    inner = Mixture([Gaussian(-1.0, 1.0), Gaussian(2.0, 1.0)], weights=[0.3, 0.7])
    nested = optimize(data, Mixture([inner, inner], weights=[0.25, 0.75]), max_iter=8, tol=None)
    flat = optimize(data, inner, max_iter=8, tol=None)
    np.testing.assert_allclose(nested.history, flat.history, rtol=1e-12)
    for outer in nested.model.components:
        for a, b in zip(outer.components, flat.model.components):
            assert abs(a.mean - b.mean) < 1e-10 and abs(a.variance - b.variance) < 1e-10
    np.testing.assert_allclose(nested.model.weights, [0.25, 0.75], rtol=1e-12)


def test_equal_components_stay_equal():
    data = TREES["mixture of gaussians"][1]
    model = optimize(data, Mixture([Gaussian(0.0, 2.0)] * 4, weights=[0.25] * 4), max_iter=5, tol=None).model
    alone = optimize(data, Gaussian(0.0, 2.0), max_iter=5, tol=None).model
    for c in model.components:
        assert abs(c.mean - alone.mean) < 1e-12 and abs(c.variance - alone.variance) < 1e-12
    np.testing.assert_allclose(model.weights, 0.25, rtol=1e-13)


def test_the_order_of_components_is_the_users():
    data = TREES["interleaved families"][1]
    kinds = [Gaussian(-2.0, 1.5), Exponential(0.5), Gaussian(3.0, 1.5)]
    straight = optimize(data, Mixture(kinds, weights=[0.2, 0.5, 0.3]), max_iter=4, tol=None).model
    turned = optimize(data, Mixture(kinds[::-1], weights=[0.3, 0.5, 0.2]), max_iter=4, tol=None).model
    np.testing.assert_allclose(turned.weights, straight.weights[::-1], rtol=1e-11)
    np.testing.assert_allclose(turned.posterior(data), straight.posterior(data)[:, ::-1], atol=1e-10)
    assert [type(c) for c in straight.components] == [Gaussian, Exponential, Gaussian]


def test_fixed_weights_stay():
    data = TREES["mixture of gaussians"][1]
    model = optimize(data, Mixture(Gaussian(), 2, weights=[0.3, 0.7], fixed=True), max_iter=5).model
    assert model.weights.tolist() == [0.3, 0.7]
    assert model.num_parameters == 4


def test_a_weight_of_zero_stays_zero():
    data = TREES["mixture of gaussians"][1]
    with pytest.warns(UserWarning, match="component_1"):
        result = optimize(data, Mixture([Gaussian(0.0, 1.0), Gaussian(5.0, 1.0)], weights=[1.0, 0.0]), max_iter=3)
    assert result.model.weights.tolist() == [1.0, 0.0]
    assert (result.model.components[1].mean, result.model.components[1].variance) == (5.0, 1.0)


def test_components_of_a_fitted_mixture_are_a_sequence():
    model = optimize(TREES["mixture of gaussians"][1], Mixture(Gaussian(), 3), max_iter=2).model
    assert len(model.components) == 3
    assert model.components[-1] is model.components[2]
    assert [c.mean for c in model.components[1:]] == [model.components[1].mean, model.components[2].mean]
    assert len(list(model.components)) == 3
    with pytest.raises(IndexError):
        model.components[3]
    assert type(model.components[0].mean) is float


# -- posteriors ----------------------------------------------------------------------------------------


def test_posterior_of_a_mixture_inside_another_root():
    model, data, rows, reference = pair("composite of mixtures")
    for factor, path in enumerate(("factor_0", "factor_1")):
        inner = reference.factors[factor]
        np.testing.assert_allclose(model.posterior(data, path=path), [inner.posterior(r) for r in rows], atol=1e-12)
    with pytest.raises(ModelError, match="factor_0"):
        model.posterior(data, path="factor_9")


def test_posterior_of_a_mixture_inside_a_mixture_is_not_weighted_by_the_outer_one():
    model, data, rows, reference = pair("mixtures of different depth")
    got = model.posterior(data, path="component_1")
    np.testing.assert_allclose(got.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(got, [reference.components[1].posterior(r) for r in rows], atol=1e-12)


def test_posterior_of_one_member_of_copies():
    model, data, rows, reference = pair("mixture of composites of mixtures")
    for outer in (0, 1):
        for factor in (0, 1):
            inner = reference.components[outer].factors[factor]
            path = f"component_{outer}/factor_{factor}"
            np.testing.assert_allclose(model.posterior(data, path=path), [inner.posterior(r) for r in rows], atol=1e-12)
    fitted = optimize(data, Mixture(Composite(Mixture(Gaussian(), 2), Poisson()), 3), max_iter=4, tol=None).model
    for k, component in enumerate(fitted.components):
        own = component.factors[0]
        parts = np.stack([c.log_density([r[0] for r in rows]) for c in own.components], axis=1) + np.log(own.weights)
        expected = np.exp(parts - np.logaddexp.reduce(parts, axis=1, keepdims=True))
        np.testing.assert_allclose(fitted.posterior(data, path=f"component_{k}/factor_0"), expected, atol=1e-11)
    for wrong in ("component_*/factor_0", "component_3/factor_0", "component_1/factor_1", "component_1"):
        with pytest.raises(ModelError, match="no mixture at"):
            fitted.posterior(data, path=wrong)


def test_posterior_where_the_mixture_is_not_observed_is_its_weights():
    model, data, rows, reference = pair("optional of a mixture")
    got = model.posterior(data, path="factor_0/of")
    inner = reference.factors[0]
    expected = [inner.of.weights if inner.is_missing(r) else inner.of.posterior(r) for r in rows]
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_posterior_of_an_impossible_row_is_nan_and_its_density_minus_infinity():
    model = Mixture([Exponential(1.0), Poisson(2.0)], weights=[0.5, 0.5])
    assert model.log_density([-1.0, 1.0])[0] == -np.inf
    got = model.posterior([-1.0, 1.0])
    assert np.isnan(got[0]).all() and abs(got[1].sum() - 1) < 1e-12


# -- rows outside the support ----------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [Bernoulli(1.0), Bernoulli(0.0), Poisson(1e-5), Exponential(2.0)], ids=repr)
def test_rows_outside_the_support_of_a_component_give_it_nothing(inner):
    x = np.array([-5.0, -0.5, 5.5, -1e200, 1e200])
    got = Mixture([inner, Gaussian(0.0, 1.0)], weights=[0.5, 0.5]).log_density(x)
    outside = Gaussian(0.0, 1.0).log_density(x) + np.log(0.5)
    inside = inner.log_density(x) > -np.inf
    np.testing.assert_allclose(got[~inside], outside[~inside], rtol=1e-12)
    assert inside.sum() == (2 if isinstance(inner, Exponential) else 0)


def test_a_poisson_component_of_zeros_beside_negative_rows():
    """Its rate goes to 0, and log 0 times a negative row must not become a score of +1e300."""
    x = np.r_[np.zeros(50), -3.5, -4.5]
    result = optimize(x, Mixture([Poisson(1.0), Gaussian(-4.0, 1.0)], weights=[0.5, 0.5]), max_iter=20)
    assert result.model.components[0].rate == 0.0
    expected = 50 * np.log(50 / 52) + 2 * np.log(2 / 52) + 2 * (-0.5 * np.log(2 * np.pi * 0.25) - 0.5)
    assert abs(result.log_likelihood - expected) < 1e-9


# -- what constructors and data refuse ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Mixture(Gaussian()), ["how many components"]),
        (lambda: Mixture(Gaussian(), 0), ["components = 0"]),
        (lambda: Mixture([]), ["non-empty"]),
        (lambda: Mixture([Gaussian(), 3]), ["list of models"]),
        (lambda: Mixture(Gaussian(), 2, weights=[0.5, 0.6]), ["0.6", "add up to 1"]),
        (lambda: Mixture(Gaussian(), 2, weights=[1.0]), ["(1,)", "2 components"]),
        (lambda: Mixture(Gaussian(), 2, weights=[1.5, -0.5]), ["-0.5"]),
        (lambda: Mixture(Gaussian(), 2, fixed=True), ["fixed=True needs weights"]),
        (lambda: Composite(), ["no factors"]),
        (lambda: Composite(3), ["3"]),
        (lambda: Record(), ["no fields"]),
        (lambda: Record(x=Gaussian(), columns={"y": ["a"]}), ["'y'"]),
        (lambda: Optional(3), ["3"]),
        (lambda: Optional(Gaussian(), 1.5), ["1.5"]),
        (lambda: Gaussian(0, -1), ["variance = -1", "positive"]),
        (lambda: Gaussian(np.nan, 1), ["not finite"]),
        (lambda: Gaussian("a", 1), ["'a'", "not a number"]),
        (lambda: Bernoulli(2), ["p = 2", "[0, 1]"]),
        (lambda: Poisson([1, 2]), ["1 dimensions"]),
    ],
)
def test_refused_models(make, words):
    with pytest.raises(ModelError) as refused:
        make()
    for word in words:
        assert word in str(refused.value)


def test_components_that_read_different_numbers_of_columns_are_refused_when_data_come():
    mixed = Mixture([Gaussian(), Composite(Gaussian(), Gaussian())])
    with pytest.raises(ModelError, match="gaussian reads 1 column in order, but there are 2"):
        optimize([[1.0, 2.0], [3.0, 4.0]], mixed)


def test_absent_parameters_are_refused_where_they_are_needed():
    for act in (lambda m: m.log_density([1.0]), lambda m: m.sample(1)):
        with pytest.raises(ModelError, match="absent"):
            act(Mixture(Gaussian(), 1))
    with pytest.raises(ModelError, match="fit it first"):
        Gaussian(0, 1).save("/nonexistent/place")


def test_optional_of_a_composite_refuses_half_missing_rows():
    with pytest.raises(DataError, match="row 1.*column '1'"):
        optimize([(1.0, 2.0), (1.0, None), (None, None)], Optional(Composite(Gaussian(), Gaussian())))
