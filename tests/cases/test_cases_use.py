"""The cases of `cases.md` about convergence, criteria, sampling, saved models and options."""

from __future__ import annotations

import json
import math
import warnings
from itertools import pairwise

import numpy as np
import pytest

from mixle_mpi import (
    Categorical,
    Composite,
    DataError,
    Exponential,
    Gaussian,
    Mixture,
    ModelError,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    load,
    optimize,
)  # fmt: skip
from mixle_mpi.execution.result import Judge


def two_groups(n=300, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 3))
    x[: n // 3] += 4
    return x


def judged(history, tol=1e-6, effective=10.0, prior=None):
    judge = Judge(tol, effective)
    prior = prior or [0.0] * len(history)
    return [judge.add(value, p) for value, p in zip(history, prior)]


# -- U01 -----------------------------------------------------------------------------------------------


def test_u01_a_fall_is_called_decreased_and_never_converged():
    assert judged([-10.0, -9.0, -9.5]) == [None, None, "decreased"]
    assert judged([-10.0, -9.0, -9.5], tol=None) == [None, None, "decreased"]
    assert judged([-10.0, -9.0, -9.5], tol=1.0) == [None, "converged", "decreased"]
    assert judged([-10.0, -9.0, -9.0 - 2e-9], tol=1.0)[2] == "decreased"


def test_u01_rounding_is_no_fall():
    assert judged([-10.0, -9.0, -9.0 - 1e-10])[2] == "converged"
    assert judged([-10.0, -9.0, -9.0 - 5e-10], tol=None)[2] is None
    assert judged([-1e9, -9e8, -9e8 - 0.05], tol=None)[2] is None
    assert judged([-1e9, -9e8, -9e8 - 0.2], tol=None)[2] == "decreased"


def test_u01_a_prior_may_pay_for_a_fall_of_the_log_likelihood():
    assert judged([-10.0, -9.0, -9.5], tol=None, prior=[0.0, 0.0, 1.0])[2] is None
    assert judged([-10.0, -9.0, -8.5], tol=None, prior=[0.0, 0.0, -1.0])[2] == "decreased"


def test_u01_convergence_is_per_observation():
    assert judged([-10.0, -10.0 + 9e-6], tol=1e-6, effective=10.0)[1] == "converged"
    assert judged([-10.0, -10.0 + 11e-6], tol=1e-6, effective=10.0)[1] is None
    assert judged([-10.0, -10.0], tol=None)[1] is None
    assert judged([-1e6, -1e6 + 1e-9], tol=0.0)[1] == "converged"


@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_u01_a_log_likelihood_that_is_no_number_is_a_failure(bad):
    assert judged([-10.0, bad])[1] == "failed"
    assert judged([bad])[0] == "failed"


def test_u01_the_saved_model_has_the_log_likelihood_of_the_result(tmp_path):
    x = two_groups()
    for iterations in (0, 1, 200):
        result = optimize(x, Mixture(MultivariateGaussian(3), 2), max_iter=iterations, seed=1)
        assert len(result.history) == result.n_iter + 1
        assert result.history[-1] == result.log_likelihood
        assert result.status == ("converged" if iterations == 200 else "max_iter")
        assert result.converged == (iterations == 200)
        result.model.save(tmp_path / str(iterations))
        again = load(tmp_path / str(iterations)).log_density(x).sum()
        assert abs(again - result.log_likelihood) <= 1e-12 * max(abs(again), 300)


def test_u01_max_iter_reached_is_not_converged():
    result = optimize(two_groups(), Mixture(MultivariateGaussian(3), 3), max_iter=2)
    assert (result.status, result.converged, result.n_iter, len(result.history)) == ("max_iter", False, 2, 3)


def test_u01_no_iteration_is_the_start():
    start = Mixture([Gaussian(0.0, 1.0), Gaussian(4.0, 1.0)], weights=[0.5, 0.5])
    x = two_groups()[:, 0]
    result = optimize(x, start, max_iter=0)
    assert result.n_iter == 0 and len(result.history) == 1
    assert abs(result.log_likelihood - start.log_density(x).sum()) < 1e-9
    assert [c.mean for c in result.model.components] == [0.0, 4.0]


def test_u01_the_callback_sees_every_entry():
    seen = []
    x = two_groups()[:, 0]
    result = optimize(x, Mixture(Gaussian(), 2), max_iter=6, tol=None, callback=seen.append)
    assert [s.n_iter for s in seen] == list(range(7))
    assert [s.log_likelihood for s in seen] == result.history
    assert seen[0].change is None
    for before, after in pairwise(seen):
        assert abs(after.change - (after.log_likelihood - before.log_likelihood) / len(x)) < 1e-15
        assert abs(after.per_row - after.log_likelihood / len(x)) < 1e-15
        assert after.seconds >= before.seconds >= 0


# -- U02 -----------------------------------------------------------------------------------------------


def free(model, data):
    return optimize(data, model, max_iter=1, tol=None)


@pytest.mark.parametrize(
    "model, expected",
    [
        (Mixture(MultivariateGaussian(3), 2), 19),
        (Mixture(MultivariateGaussian(3, structure="diagonal"), 2), 13),
        (Mixture(MultivariateGaussian(3, structure="tied"), 2), 13),
        (Mixture(MultivariateGaussian(3, structure="spherical"), 2), 9),
        (Mixture(Mixture(MultivariateGaussian(3, structure="tied"), 2), 3), 2 + 3 * 13),
        (Mixture(Composite(Gaussian(), Gaussian(), Gaussian()), 2), 13),
        (MultivariateGaussian(3), 9),
        (Mixture([MultivariateGaussian(3), MultivariateGaussian(3, structure="diagonal")]), 1 + 9 + 6),
        (Mixture(MultivariateGaussian(3), 2, weights=[0.5, 0.5], fixed=True), 18),
        (Composite(Mixture(Gaussian(), 4), MultivariateGaussian(2)), 11 + 5),
        (Composite(Optional(Gaussian()), Optional(Gaussian(), estimate_missing=True), Optional(Gaussian(), 0.5)), 7),
        (Mixture([Composite(Gaussian(0, 1, fixed=True), Gaussian(), Gaussian())] * 2), 1 + 8),
        (Mixture(Composite(Mixture(Gaussian(), 2), Gaussian(), Gaussian()), 3), 2 + 3 * (1 + 4 + 4)),
    ],
)
def test_u02_free_parameters(model, expected):
    result = free(model, two_groups())
    assert result.n_parameters == result.model.num_parameters == expected


def test_u02_free_parameters_of_the_other_families():
    rows = [("a", 1.0, 2), ("b", 2.0, 0), ("c", 0.5, 1)] * 5
    assert free(Composite(Categorical(), Exponential(), Poisson()), rows).n_parameters == 2 + 1 + 1
    assert free(Mixture(Composite(Categorical(), Exponential(), Poisson()), 3), rows).n_parameters == 2 + 3 * 4


def test_u02_bic_and_aic():
    result = optimize([0.0, 1.0, 2.0, 3.0], Gaussian())
    assert abs(result.log_likelihood - -6.122041235) < 5e-10
    assert abs(result.bic - 15.016671193) < 5e-10
    assert abs(result.aic - 16.244082471) < 5e-10
    one = optimize([0.0, 1.0, 2.0, 3.0], Mixture(Gaussian(), 1))
    assert abs(one.bic - 15.016671193) < 5e-10


# -- U04 -----------------------------------------------------------------------------------------------


TEN = Mixture([Gaussian(float(k), 0.01) for k in range(10)], weights=np.arange(1, 11) / 55)


def test_u04_exactly_as_many_rows_as_asked():
    for n in (0, 1, 7, 1000):
        assert TEN.sample(n).shape == (n,)
    assert TEN.sample(np.int64(3)).shape == (3,)
    assert MultivariateGaussian(2, [0.0, 0.0], np.eye(2)).sample(0).shape == (0, 2)
    assert Composite(Gaussian(0, 1), Poisson(2)).sample(0).shape == (0, 2)
    for bad in (-1, 1.5, "7", True):
        with pytest.raises(ModelError, match="n = "):
            TEN.sample(bad)


def test_u04_the_seed_says_what_is_drawn():
    assert np.array_equal(TEN.sample(7, seed=3), TEN.sample(7, seed=3))
    assert not np.array_equal(TEN.sample(7, seed=3), TEN.sample(7, seed=4))


def test_u04_components_are_drawn_by_their_weights_and_in_no_order():
    which = np.round(TEN.sample(20000, seed=1)).clip(0, 9).astype(int)
    share, weights = np.bincount(which, minlength=10) / 20000, np.arange(1, 11) / 55
    assert (np.abs(share - weights) < 5 * np.sqrt(weights * (1 - weights) / 20000) + 1e-3).all()
    assert abs(np.corrcoef(which[:-1], which[1:])[0, 1]) < 5 / math.sqrt(20000)


def test_u04_missing_rows_are_drawn_as_often_as_they_should():
    draws = np.array(Composite(Gaussian(0, 1), Optional(Poisson(3), 0.3)).sample(20000), float)
    assert abs(np.isnan(draws[:, 1]).mean() - 0.3) < 5 * math.sqrt(0.21 / 20000)
    labels = Optional(Categorical(["a", "b"], [0.5, 0.5]), 0.3).sample(1000)
    assert {None, "a", "b"} == set(labels)
    assert not any(v is None for v in Optional(Categorical(["a"], [1.0])).sample(50))


def test_u04_rows_come_in_the_form_that_the_model_takes():
    record = Record({"v": MultivariateGaussian(2, [0.0, 0.0], np.eye(2)), "w": Categorical(["a", "b"], [0.5, 0.5])},
                    columns={"v": ["x", "y"]})  # fmt: skip
    rows = record.sample(4)
    assert [sorted(r) for r in rows] == [["w", "x", "y"]] * 4
    assert np.isfinite(record.log_density(rows)).all()
    composite = Composite(MultivariateGaussian(2, [0.0, 0.0], np.eye(2)), Categorical(["a"], [1.0]))
    assert [(len(v), w) for v, w in composite.sample(2)] == [(2, "a")] * 2


# -- U06 -----------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    model = optimize([(0.1, "a"), (1.3, "b"), (2.7, "a"), (3.1, None)],
                     Mixture(Composite(Gaussian(), Optional(Categorical(), 0.25)), 2), max_iter=3, tol=None).model
    model.save(tmp_path / "m")
    return tmp_path / "m", model


def test_u06_json_with_a_schema_number_and_npz(saved):
    directory, model = saved
    assert sorted(p.name for p in directory.iterdir()) == ["model.json", "model.npz"]
    document = json.loads((directory / "model.json").read_text())
    assert document["schema"] == 1 and document["model"]["type"] == "mixture"
    with np.load(directory / "model.npz", allow_pickle=False) as arrays:
        total = sum(arrays[name].size for name in arrays.files)
        assert all(arrays[name].dtype == np.float64 for name in arrays.files)
    assert total == model.state.theta.size
    model.save(directory)  # once more, over the first
    assert repr(load(directory)) == repr(model)


@pytest.mark.parametrize("name", ["model.json", "model.npz"])
def test_u06_a_truncated_file_is_refused(saved, name):
    directory, _ = saved
    whole = (directory / name).read_bytes()
    for keep in (0, 1, len(whole) // 2, len(whole) - 1):
        (directory / name).write_bytes(whole[:keep])
        with pytest.raises(DataError, match=name):
            load(directory)
    (directory / name).write_bytes(whole)
    load(directory)


def test_u06_a_changed_file_is_refused(saved):
    directory, _ = saved
    raw = bytearray((directory / "model.npz").read_bytes())
    raw[len(raw) // 2] ^= 1
    (directory / "model.npz").write_bytes(raw)
    with pytest.raises(DataError, match=r"model\.npz"):
        load(directory)


def test_u06_another_schema_or_no_model_at_all_is_refused(saved):
    directory, _ = saved
    document = json.loads((directory / "model.json").read_text())
    partial = {k: v for k, v in document.items() if k != "encodings"}
    for changed in ({**document, "schema": 99}, partial, [], "text", {}):
        (directory / "model.json").write_text(json.dumps(changed))
        with pytest.raises(DataError, match=r"model\.json"):
            load(directory)


def test_u06_a_model_of_other_parameters_is_refused(saved):
    directory, _ = saved
    document = json.loads((directory / "model.json").read_text())
    document["model"]["components"] = 3
    (directory / "model.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match="parameters"):
        load(directory)


def test_u06_a_missing_file_is_an_oserror(saved, tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")
    (saved[0] / "model.npz").unlink()
    with pytest.raises(FileNotFoundError):
        load(saved[0])


def test_u06_loading_runs_no_pickle(saved, monkeypatch):
    import pickle

    def refuse(*_, **__):
        raise AssertionError("pickle was used")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    load(saved[0])


def test_u06_exact_numbers_survive(tmp_path):
    """Also those that decimal text would round, and levels of every type."""
    rng = np.random.default_rng(0)
    rows = [(float(v), w) for v, w in zip(1e8 + rng.normal(size=50) / 3, rng.choice([1, 2], 50).tolist())]
    rows[0] = (rows[0][0], "1")
    rows[1] = (rows[1][0], True)
    model = optimize(rows, Mixture(Composite(Gaussian(), Categorical()), 2), max_iter=5, tol=None).model
    model.save(tmp_path)
    again = load(tmp_path)
    assert again.state.theta.tobytes() == model.state.theta.tobytes()
    assert again.components[0].factors[1].levels == (True, 1, 2, "1")
    assert again.log_density(rows).tobytes() == model.log_density(rows).tobytes()


def test_u06_a_loaded_model_can_be_fitted_on(tmp_path):
    x = two_groups()
    model = Mixture(MultivariateGaussian(3), 2)
    optimize(x, model, max_iter=4, tol=None).model.save(tmp_path)
    on = optimize(x, load(tmp_path), max_iter=4, tol=None)
    straight = optimize(x, model, max_iter=8, tol=None)
    np.testing.assert_allclose(on.history, straight.history[4:], rtol=1e-12)


def test_a_part_of_a_fitted_model_is_a_model():
    x = two_groups()[:, 0]
    model = optimize(x, Mixture(Gaussian(), 2), max_iter=5).model
    part = model.components[1]
    expected = Gaussian(part.mean, part.variance).log_density(x)
    np.testing.assert_allclose(part.log_density(x), expected, rtol=1e-12, atol=1e-11)
    mixed = Mixture([part, Exponential(1.0)], weights=[0.5, 0.5])
    assert np.isfinite(mixed.log_density(x)).all()


# -- options ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, words",
    [
        ({"max_iter": -1}, "max_iter = -1"),
        ({"max_iter": 1.5}, "max_iter = 1.5"),
        ({"max_iter": True}, "max_iter = True"),
        ({"tol": -1e-3}, "tol = -0.001"),
        ({"tol": "none"}, "tol = 'none'"),
        ({"tol": float("nan")}, "tol = nan"),
        ({"starts": 0}, "starts = 0"),
        ({"init": "k-means"}, "init = 'k-means'"),
        ({"impossible": "ignore"}, "impossible = 'ignore'"),
        ({"rows": "mine"}, "rows = 'mine'"),
        ({"backend": "dask"}, "backend = 'dask'"),
        ({"grid": "2x2"}, "2 x 2 = 4, but 1"),
        ({"grid": "two"}, "grid = 'two'"),
        ({"grid": (0, 1)}, "at least 1"),
        ({"cut": "component_7"}, "component_7"),
        ({"seed": "a"}, "seed"),
    ],
)
def test_options_that_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        optimize([1.0, 2.0, 4.0], Mixture(Gaussian(), 2), **options)


def test_an_estimator_that_is_no_model_is_refused():
    for wrong in (Gaussian, None, "gaussian", [Gaussian()]):
        with pytest.raises(ModelError, match="is not a model"):
            optimize([1.0, 2.0], wrong)


@pytest.mark.parametrize("init", ["kmeans++", "random", "auto"])
def test_the_start_depends_on_the_seed_alone(init):
    x = two_groups()
    a, b, c = (optimize(x, Mixture(MultivariateGaussian(3), 4), max_iter=3, init=init, seed=s) for s in (1, 1, 2))
    assert a.history == b.history
    assert a.history != c.history
    assert repr(a.model) == repr(b.model)
    as_numpy = optimize(x, Mixture(MultivariateGaussian(3), 4), max_iter=3, init=init, seed=np.int64(1))
    assert as_numpy.history == a.history


def test_kmeans_needs_numbers():
    with pytest.raises(ModelError, match=r"kmeans\+\+.*no numeric column"):
        optimize(["a", "b", "a"], Mixture(Categorical(), 2), init="kmeans++")


def test_given_parameters_are_where_em_starts_though_others_are_absent():
    x = two_groups()[:, 0]
    result = optimize(x, Mixture([Gaussian(mean=100.0), Gaussian(mean=-100.0)], weights=[0.2, 0.8]), max_iter=0)
    assert [c.mean for c in result.model.components] == [100.0, -100.0]
    assert result.model.weights.tolist() == [0.2, 0.8]
    assert all(c.variance > 0 for c in result.model.components)


def test_a_fit_finds_groups_that_are_there():
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(m, 1, (200, 2)) for m in (-8, 0, 8)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = optimize(x, Mixture(MultivariateGaussian(2), 3), seed=0)
    assert result.converged
    order = np.argsort([c.mean[0] for c in result.model.components])
    assert (np.bincount(result.model.posterior(x).argmax(axis=1)[np.arange(600)], minlength=3) == 200).all()
    for k, m in zip(order, (-8, 0, 8)):
        np.testing.assert_allclose(result.model.components[k].mean, m, atol=0.4)


def test_equals_scikit_learn():
    from sklearn import mixture

    x = two_groups()
    means, variance = np.array([[0.0, 0, 0], [4.0, 4, 4]]), np.stack([np.eye(3)] * 2)
    theirs = mixture.GaussianMixture(
        2, weights_init=[0.5, 0.5], means_init=means, precisions_init=variance, reg_covar=0.0, max_iter=5, tol=0.0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.fit(x)
    start = Mixture([MultivariateGaussian(3, m, np.eye(3)) for m in means], weights=[0.5, 0.5])
    ours = optimize(x, start, max_iter=5, tol=None).model
    np.testing.assert_allclose(ours.weights, theirs.weights_, rtol=1e-10)
    for k, c in enumerate(ours.components):
        np.testing.assert_allclose(c.mean, theirs.means_[k], rtol=1e-9)
        np.testing.assert_allclose(c.covariance, theirs.covariances_[k], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(ours.log_density(x), theirs.score_samples(x), rtol=1e-9)
