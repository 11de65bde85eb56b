"""Several starts: what is kept of each, which is returned, and what becomes of those that fail."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from mixle_mpi import (
    Composite,
    Gaussian,
    Laplace,
    Mixture,
    MultivariateGaussian,
    NumericalError,
    Poisson,
    load,
    optimize,
)  # fmt: skip
from mixle_mpi.execution import starts
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.starts import best_of, is_better
from mixle_mpi.execution.threads import run_on_threads

GRIDS = [(2, 1), (1, 2), (2, 2), (1, 5)]


def rows(n=160, seed=0):
    """Six groups on a line: four components end in different maxima."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) * 0.4 + rng.choice([0.0, 3.0, 5.0, 11.0, 14.0, 20.0], n)


MODEL = Mixture(Gaussian(), 4)


def several(starts=5, grid=None, model=MODEL, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"max_iter": 40, "tol": 1e-9, "init": "random", "seed": 3} | options
        return fit(rows(), model, grid or serial_grid(), starts=starts, **options)


def test_each_start_is_recorded_and_the_best_is_returned():
    result = several()
    assert [r["start"] for r in result.starts] == [0, 1, 2, 3, 4]
    ends = [r["history"][-1] for r in result.starts]
    assert len({round(v, 3) for v in ends}) > 1, "the starts must end in different maxima"
    assert result.best_start == int(np.argmax(ends)) and result.log_likelihood == max(ends)
    for k, record in enumerate(result.starts):
        alone = several(1, seed=3 + k)
        assert record["history"] == alone.history and record["status"] == alone.status
        assert record["n_iter"] == alone.n_iter == len(record["history"]) - 1
        assert alone.best_start == 0 and len(alone.starts) == 1
    best = result.starts[result.best_start]
    assert (result.history, result.n_iter, result.status) == (best["history"], best["n_iter"], best["status"])


def test_the_saved_model_is_the_best_one(tmp_path):
    result = several()
    result.model.save(tmp_path)
    again = load(tmp_path).log_density(rows()).sum()
    assert abs(again - max(r["history"][-1] for r in result.starts)) <= 1e-12 * max(abs(again), 160)


@pytest.mark.parametrize("shape", GRIDS)
def test_starts_are_the_same_on_every_grid(shape):
    serial = several()
    for result in run_on_threads(*shape, lambda g: several(grid=g)):
        assert result.best_start == serial.best_start
        for a, b in zip(result.starts, serial.starts):
            assert (a["status"], a["n_iter"]) == (b["status"], b["n_iter"])
            np.testing.assert_allclose(a["history"], b["history"], rtol=1e-12)
        np.testing.assert_allclose(result.model.state.theta, serial.model.state.theta, rtol=1e-8, atol=1e-8)


def failing(monkeypatch, which):
    """Let the M-step of some starts fail in their third iteration, on one rank of the grid only."""
    state: dict[int, list[int]] = {}  # the start that runs on a rank, and its M-steps so far
    original_start, original = starts.start, Executor.maximize

    def start(executor, *arguments):
        state[id(executor)] = [state.get(id(executor), [-1])[0] + 1, 0]
        return original_start(executor, *arguments)

    def maximize(self):
        own = state[id(self)]
        own[1] += 1
        if own[0] in which and own[1] == 3 and self.grid.world.rank == self.grid.world.size - 1:
            return NumericalError(f"start {own[0]} broke")
        return original(self)

    monkeypatch.setattr(starts, "start", start)
    monkeypatch.setattr(Executor, "maximize", maximize)


@pytest.mark.parametrize("shape", [(1, 1), *GRIDS])
def test_a_failed_start_is_marked_and_never_wins(monkeypatch, shape):
    undisturbed = several()
    failing(monkeypatch, {undisturbed.best_start, 0})
    for result in run_on_threads(*shape, lambda g: several(grid=g)):
        assert result.best_start not in (undisturbed.best_start, 0)
        for k, (a, b) in enumerate(zip(result.starts, undisturbed.starts)):
            if k in (undisturbed.best_start, 0):
                assert a["status"] == "failed" and a["message"] == f"start {k} broke"
                np.testing.assert_allclose(a["history"], b["history"][:3], rtol=1e-12)
            else:
                np.testing.assert_allclose(a["history"], b["history"], rtol=1e-12)
        rest = [r["history"][-1] for r in result.starts if r["status"] != "failed"]
        assert result.log_likelihood == max(rest) and result.status != "failed"
        assert abs(result.model.log_density(rows()).sum() - result.log_likelihood) <= 1e-12 * max(rest[0], 160)


@pytest.mark.parametrize("shape", [(1, 1), *GRIDS])
def test_when_all_starts_fail_the_last_message_is_raised_on_all_ranks(monkeypatch, shape):
    failing(monkeypatch, set(range(5)))

    def refused(grid):
        with pytest.raises(NumericalError, match="start 4 broke"):
            several(grid=grid)
        return True

    assert all(run_on_threads(*shape, refused))


def test_starts_that_collapse_without_a_floor():
    """Nothing is patched: equal rows far out make a covariance singular in some starts."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(60, 2)) * [1.0, 3.0], rng.normal(size=(40, 2)) + np.array([12.0, 0.0]),
                        np.tile([[6.0, 6.0]], (6, 1))])  # fmt: skip
    model = Mixture(MultivariateGaussian(2, min_variance=0.0), 4)
    results = run_on_threads(2, 1, lambda g: fit(x, model, g, starts=6, max_iter=15, tol=None))
    statuses = [r["status"] for r in results[0].starts]
    assert "failed" in statuses and "max_iter" in statuses, statuses
    assert statuses[results[0].best_start] == "max_iter"
    assert all("rank" in r["message"] for r in results[0].starts if r["status"] == "failed")
    assert [r["status"] for r in results[1].starts] == statuses


def test_a_component_that_starts_in_one_row_needs_no_floor_to_start():
    x = np.r_[np.random.default_rng(1).normal(size=30), 50.0]
    for family, data in ((Gaussian(min_variance=0.0), x), (MultivariateGaussian(1, min_variance=0.0), x)):
        result = optimize(data, Mixture(family, 2), max_iter=0, tol=None, init="kmeans++", seed=1)
        assert np.isfinite(result.log_likelihood)


def test_one_failed_start_of_a_model_that_searches(monkeypatch):
    """The pass that looks for the median is left in order: the next start is undisturbed."""
    model = Mixture(Laplace(), 3)
    undisturbed = several(3, model=model)
    failing(monkeypatch, {1})
    for result in run_on_threads(2, 2, lambda g: several(3, grid=g, model=model)):
        assert [r["status"] for r in result.starts][1] == "failed"
        for k in (0, 2):
            np.testing.assert_allclose(result.starts[k]["history"], undisturbed.starts[k]["history"], rtol=1e-12)


def test_callbacks_are_told_which_start_runs():
    seen = []
    data = list(zip(rows().tolist(), np.random.default_rng(0).poisson(3, 160).tolist()))
    model = Mixture(Composite(Gaussian(), Poisson()), 2)
    result = optimize(data, model, starts=3, max_iter=2, tol=None, callback=seen.append)
    assert [(s.start, s.n_iter) for s in seen] == [(k, i) for k in range(3) for i in range(3)]
    assert [s.log_likelihood for s in seen] == [v for r in result.starts for v in r["history"]]


def mirrored(n=40):
    """Rows on both sides of zero: with two components every maximum has a mirror image."""
    x = np.random.default_rng(4).normal(3.0, 1.0, n)
    return np.concatenate([x, -x])


@pytest.mark.parametrize("shape", [(1, 1), *GRIDS[:3]])
def test_starts_at_the_same_maximum_tie_and_the_first_is_the_best(shape):
    """Their likelihoods differ by rounding, which is another on every grid."""
    options = {"starts": 6, "max_iter": 60, "tol": None, "init": "kmeans++", "seed": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = run_on_threads(*shape, lambda g: fit(mirrored(), Mixture(Gaussian(), 2), g, **options))
    alone = [fit(mirrored(), Mixture(Gaussian(), 2), serial_grid(), seed=3 + k, init="kmeans++") for k in range(6)]
    first = {result.model.components[0].mean > 0 for result in alone}
    assert first == {True, False}, "starts must find mirror images"
    for result in results:
        ends = [r["history"][-1] for r in result.starts]
        assert max(ends) - min(ends) < 1e-10 * max(map(abs, ends)) and result.best_start == 0


def record(start: int, end: float, status: str = "converged") -> dict:
    return {"start": start, "history": [end], "status": status}


@pytest.mark.parametrize("seed", range(10))
def test_the_best_start_does_not_depend_on_the_order_nor_on_rounding(seed):
    rng = np.random.default_rng(seed)
    ends = rng.choice([-1000.0, -1000.0, -990.0, -985.0], 8)
    ended = [record(k, v * (1.0 + 1e-13 * rng.normal()), rng.choice(["converged", "max_iter", "failed", "decreased"]))
             for k, v in enumerate(ends.tolist())]  # fmt: skip
    sound = [of for of in ended if of["status"] in ("converged", "max_iter")] or [
        of for of in ended if of["status"] == "decreased"]  # fmt: skip
    expected = next((of for of in sound if of["history"][0] > max(o["history"][0] for o in sound) - 1.0), None)
    assert best_of(ended, 10.0) is expected
    best = None
    for of in rng.permutation(np.array(ended, dtype=object)):
        best = of if is_better(of, best, 10.0) else best
    assert best is expected


def test_a_difference_counts_from_rounding_on():
    a, b, n = record(0, -1000.0), record(1, -1000.0 + 2e-7), 10.0
    assert is_better(b, a, n) and not is_better(a, b, n)
    assert not is_better(record(1, -1000.0 + 5e-8), a, n) and is_better(a, record(1, -1000.0 + 5e-8), n)
    assert not is_better(b, a, 1e5), "rows count where they are more than nats"
