"""What every family must do, on every example of the table in `examples.py`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from examples import EXAMPLES
from mixle_mpi import (
    Gaussian,
    GaussianProcess,
    Laplace,
    Mixture,
    ModelError,
    MultivariateGaussian,
    StudentT,
    load,
    optimize,
)
from mixle_mpi.contract.fields import Combine, interval, positive, psd, real, simplex
from mixle_mpi.data.encode import EncodedRows
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.fitted import state_of
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load as load_rows
from mixle_mpi.models.registry import FAMILIES

every = pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)


def rows_of(example, n=200, seed=3):
    return example.draw(np.random.default_rng(seed), n)


def executor(example, data, weights=None, model=None):
    """An executor of the example at its parameters, after one pass over the data."""
    made = load_rows(data, model or example.model(), serial_grid(), weights=weights)
    result = Executor(made.model, made.rows, serial_grid(), None, made.weights)
    assert result.given()
    return result


def passed(run: Executor, possible=True):
    """The log likelihood of one pass; the statistics are in `run.stats`."""
    found = run.e_step()
    assert possible is False or found.impossible == 0
    return -np.inf if found.impossible else found.log_likelihood


def shapes_of(node):
    """The shape of every parameter, shared ones too."""
    return node.param_shapes(False) | node.param_shapes(True)


def fields_of(run, flat):
    """Parameters (1, *shape) of the one member by name, views of the flat buffer."""
    views = run.layout.param_views(flat)
    return {n: v for fields in (run.bank.path, f"{run.bank.path}#shared") for n, v in views.get(fields, {}).items()}


def in_users_units(node, fields):
    return node.decode_values({name: value[0] for name, value in fields.items()})


def test_every_registered_family_has_examples():
    assert {e.kind for e in EXAMPLES} == set(FAMILIES)


@every
def test_log_density_is_scipys(example):
    data = rows_of(example, 500)
    got, expected = example.model().log_density(data), example.log_density(data)
    relative, absolute = example.tolerance
    assert np.abs(got - expected).max() <= absolute + relative * np.abs(expected).max()
    assert (np.abs(got - expected) <= absolute + relative * np.abs(expected)).all()


@every
def test_total_mass_is_one(example):
    points, weights = example.mass()
    assert abs(weights @ np.exp(example.model().log_density(points)) - 1) < 1e-10


@every
def test_statistics_add(example):
    made = load_rows(rows_of(example), example.model(), serial_grid())
    values, likelihoods = [], []
    for a, b in ((0, 77), (77, 200), (0, 200)):
        part = EncodedRows(a, b - a, {k: v[..., a:b] for k, v in made.rows.arrays.items()})
        run = Executor(made.model, part, serial_grid(), None)
        run.given()
        likelihoods.append(passed(run))
        values.append(run.stats.copy())
    size = np.abs(values[0]) + np.abs(values[1])
    together = values[0] + values[1]
    for combine, bound in ((Combine.MIN, np.minimum), (Combine.MAX, np.maximum)):
        own = run.layout.segments[combine]
        together[own] = bound(values[0][own], values[1][own])
        assert np.array_equal(together[own], values[2][own])
    assert (np.abs(together - values[2]) <= 1e-13 * np.maximum(size, 200)).all()
    assert abs(likelihoods[0] + likelihoods[1] - likelihoods[2]) <= 1e-12 * max(abs(likelihoods[2]), 200)


@every
def test_weight_two_is_the_row_twice_and_weight_zero_no_row(example):
    rows = rows_of(example, 100)
    twice = [*rows, *rows[:40]]
    weights = np.r_[np.full(40, 2.0), np.ones(60), np.zeros(40)]
    a, b = executor(example, twice), executor(example, twice, weights)
    assert abs(passed(a) - passed(b)) <= 1e-13 * max(abs(passed(a)), 140)
    assert (np.abs(a.stats - b.stats) <= 1e-13 * np.maximum(np.abs(a.stats), 140)).all()


@every
def test_rows_of_weight_zero_change_no_bit(example):
    made = load_rows(rows_of(example, 120), example.model(), serial_grid())
    part = EncodedRows(0, 100, {k: v[..., :100] for k, v in made.rows.arrays.items()})
    without = Executor(made.model, part, serial_grid(), None)
    zeroed = Executor(made.model, made.rows, serial_grid(), None, np.r_[np.ones(100), np.zeros(20)])
    for run in (without, zeroed):
        run.given()
        run.found = passed(run)
    assert abs(without.found - zeroed.found) <= 1e-13 * max(abs(without.found), 100)
    assert (np.abs(without.stats - zeroed.stats) <= 1e-13 * np.maximum(np.abs(without.stats), 100)).all()


@every
def test_maximize_is_a_maximum(example):
    rng = np.random.default_rng(11)
    data, weights = rows_of(example, 300), np.linspace(0.5, 2.0, 300)
    run = executor(example, data, weights)
    node, old = run.bank.node, fields_of(run, run.theta.copy())
    passed(run)
    run.reduce_stats()
    run.search()
    assert run.maximize() is None
    best = run.new.copy()

    def objective(theta):
        if example.expected is not None:
            new = in_users_units(node, fields_of(run, theta))
            return float(weights @ example.expected(in_users_units(node, old), new, data))
        run.theta[:] = theta
        run.publish()
        return passed(run, possible=False) + run.log_prior()

    top = objective(best)
    assert np.isfinite(top)
    for scale in (1e-1, 1e-2, 1e-3):
        for _ in range(6):
            moved = best.copy()
            fields = fields_of(run, moved)
            for name, shape in shapes_of(node).items():
                constraint = node.params[name].constraint
                free = constraint.to_free(fields[name][0])
                free += scale * rng.standard_normal(free.shape)
                limits = example.limits.get(name, (-np.inf, np.inf))
                fields[name][0] = np.clip(constraint.from_free(free, shape), *limits)
            assert objective(moved) <= top + 1e-11 * max(abs(top), 300)
    assert objective(moved) < top - 1e-12 * abs(top), "perturbations must be felt"


@every
def test_em_never_falls(example):
    result = optimize(rows_of(example, 150), Mixture(example.estimator(), 3), max_iter=15, tol=None, seed=2)
    rises = np.diff(result.history)
    if example.options.get("pseudo_count"):
        assert result.status == "max_iter"  # the log likelihood with the log prior never fell
    else:
        assert len(rises) == 15
        assert rises.min() >= -1e-11 * max(abs(result.log_likelihood), 150)


@every
def test_fixed_keeps_its_parameters(example):
    data = rows_of(example)
    result = optimize(data, example.model(fixed=True), max_iter=3, tol=None)
    assert result.n_parameters == 0
    assert len(set(result.history)) == 1
    for name, value in example.model().values.items():
        np.testing.assert_allclose(result.model.values[name], value, rtol=1e-14)
    mixed = optimize(data, Mixture([example.model(fixed=True), example.model()], weights=[0.5, 0.5]), max_iter=3)
    for name, value in example.model().values.items():
        np.testing.assert_allclose(mixed.model.components[0].values[name], value, rtol=1e-14)
        assert not np.array_equal(mixed.model.components[1].values[name], value)


@every
def test_fixed_needs_all_parameters(example):
    with pytest.raises(ModelError, match="fixed=True needs"):
        example.kind(fixed=True, **example.options)


def valid(constraint, value):
    value = np.asarray(value, float)
    assert np.isfinite(value).all()
    if constraint.name == "positive":
        assert (value > 0).all()
    elif constraint.name == "interval":
        assert ((value >= 0) & (value <= 1)).all()
    elif constraint.name == "simplex":
        assert (value >= 0).all() and np.allclose(value.sum(-1), 1, atol=1e-12)
    elif constraint.name == "psd":
        np.linalg.cholesky(value)


@every
def test_default_and_soften_are_valid_parameters(example):
    run = executor(example, rows_of(example))
    node = run.bank.node
    start = node.default()
    assert set(start) == set(node.params)
    one = {k: np.asarray(v, float)[None].copy() for k, v in start.items()}
    for name, field in node.params.items():
        assert one[name].shape[1:] == shapes_of(node)[name]
        valid(field.constraint, one[name])
    for name, value in node.soften(one).items():
        valid(node.params[name].constraint, value)


@every
def test_a_saved_model_is_the_same_to_the_bit(example, tmp_path):
    data = rows_of(example)
    fitted = optimize(data, Mixture(example.estimator(), 2), max_iter=4, tol=None).model
    fitted.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert state_of(again).theta.tobytes() == state_of(fitted).theta.tobytes()
    assert again.log_density(data).tobytes() == fitted.log_density(data).tobytes()
    assert again.posterior(data).tobytes() == fitted.posterior(data).tobytes()
    assert repr(again) == repr(fitted)
    assert again.num_parameters == fitted.num_parameters


@every
def test_sampling(example):
    model = example.model()
    assert len(model.sample(0)) == 0
    seven = model.sample(7, seed=5)
    assert len(seven) == 7
    assert np.array_equal(seven, model.sample(7, seed=5))
    assert not np.array_equal(model.sample(5000, seed=5), model.sample(5000, seed=6))
    draws = model.sample(20000, seed=1)
    for moment, mean, variance in example.moments:
        error = np.mean(moment(draws)) - mean
        assert abs(error) < 5 * np.sqrt(variance / 20000)
    assert np.isfinite(model.log_density(draws)).all()


@every
def test_a_fit_of_many_draws_is_near_the_truth(example):
    """Twice the gain of the maximum over the truth is chi-squared with as many degrees as parameters."""
    data = example.draw(np.random.default_rng(8), 20000)
    model = optimize(data, example.model() if example.slow else example.estimator()).model
    gain = model.log_density(data).sum() - example.log_density(data).sum()
    least = -0.1 if example.options.get("pseudo_count") else -1e-6
    free = model.num_parameters
    assert least <= gain <= 0.5 * (free + 6 * np.sqrt(2 * free))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_full_covariance_that_is_diagonal_equals_the_diagonal_structure(offset):
    rng = np.random.default_rng(4)
    mean, variance = np.array([1.0, -2.0, 0.5]) + offset, np.array([2.0, 0.5, 1.0])
    x = mean + rng.standard_normal((300, 3)) * np.sqrt(variance)
    full = MultivariateGaussian(3, mean, np.diag(variance))
    diagonal = MultivariateGaussian(3, mean, variance, structure="diagonal")
    np.testing.assert_allclose(full.log_density(x), diagonal.log_density(x), rtol=0, atol=1e-11)
    apart = sum(Gaussian(m, v).log_density(x[:, j]) for j, (m, v) in enumerate(zip(mean, variance)))
    np.testing.assert_allclose(full.log_density(x), apart, rtol=0, atol=3e-11)
    # and rows that have no correlation at all: the maximum of the full structure is diagonal
    corners = np.array([[a, b, c] for a in (-1.0, 1.0) for b in (-2.0, 2.0) for c in (0.0, 3.0)]) + offset
    a = optimize(corners, MultivariateGaussian(3)).model
    b = optimize(corners, MultivariateGaussian(3, structure="diagonal")).model
    np.testing.assert_allclose(a.covariance, np.diag(b.covariance), rtol=1e-13, atol=1e-13)
    assert np.array_equal(a.mean, b.mean)


@pytest.mark.parametrize(
    "field, shape, value",
    [
        (real("d"), (3,), [1.0, -2.0, 0.0]),
        (positive(), (), 0.3),
        (positive("d"), (3,), [1e-8, 1.0, 1e8]),
        (interval(), (), 0.2),
        (simplex("k"), (4,), [0.1, 0.2, 0.3, 0.4]),
        (simplex("k"), (1,), [1.0]),
        (psd("d", "d"), (3, 3), [[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]]),
        (psd("d", "d"), (1, 1), [[2.5]]),
    ],
)
def test_constraints_map_to_free_coordinates_and_back(field, shape, value):
    constraint = field.constraint
    free = constraint.to_free(np.array(value))
    assert free.shape == (constraint.num_free(shape),)
    np.testing.assert_allclose(constraint.from_free(free, shape), value, rtol=1e-13, atol=1e-15)
    rng = np.random.default_rng(0)
    for _ in range(20):
        there = rng.standard_normal(free.shape) * 2
        back = constraint.from_free(there, shape)
        assert back.shape == shape
        valid(constraint, back)
        np.testing.assert_allclose(constraint.to_free(back), there, rtol=1e-9, atol=1e-11)


@every
def test_the_density_of_a_row_does_not_depend_on_the_rows_beside_it(example):
    """Scored with rows far away, a row keeps its digits."""
    data = rows_of(example, 50)
    alone = example.model().log_density(data)
    if example.kind in (Gaussian, GaussianProcess, Laplace, MultivariateGaussian, StudentT):
        far = np.concatenate([np.full((60, *np.shape(data)[1:]), 1e9), data, np.full((1, *np.shape(data)[1:]), -1e12)])
        beside = example.model().log_density(far)[60:-1]
    else:
        beside = example.model().log_density([*data, *data, *data[::-1]])[50:100]
    relative, absolute = example.tolerance
    assert (np.abs(beside - alone) <= absolute + relative * np.abs(alone)).all()


@pytest.mark.parametrize("offset", [0.0, 10.0, 100.0, 300.0, 1e3, 3e3, 1e4, 1e5, 1e6, 1e8, 1e12])
def test_natural_and_residual_form_meet_without_a_loss(offset):
    """Whichever form is chosen at this distance from the origin, the digits are kept."""
    rng = np.random.default_rng(6)
    x = offset + rng.standard_normal((400, 2))
    one = Gaussian(offset, 1.0).log_density(x[:, 0])
    np.testing.assert_allclose(one, stats.norm.logpdf(x[:, 0] - offset), rtol=0, atol=1e-11)
    covariance = np.array([[1.0, 0.5], [0.5, 1.0]])
    expected = stats.multivariate_normal.logpdf(x - offset, np.zeros(2), covariance)
    both = MultivariateGaussian(2, [offset] * 2, covariance).log_density(x)
    np.testing.assert_allclose(both, expected, rtol=0, atol=1e-11)
    # members far apart in one bank: each chooses for itself
    mixture = Mixture([Gaussian(0.0, 1.0), Gaussian(offset, 1.0), Gaussian(-3.0, 1e-6)], weights=[0.25, 0.5, 0.25])
    rows = np.r_[x[:, 0], rng.standard_normal(50), -3 + 1e-3 * rng.standard_normal(50)]
    parts = [(0.25, 0.0, 1.0), (0.5, offset, 1.0), (0.25, -3.0, 1e-3)]
    apart = np.logaddexp.reduce([np.log(w) + stats.norm.logpdf((rows - m) / s) - np.log(s) for w, m, s in parts])
    np.testing.assert_allclose(mixture.log_density(rows), apart, rtol=0, atol=1e-11)
