"""Passes that look for what an M-step needs: the weighted median of a Laplace, on one rank and on many."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from mixle_mpi import Composite, Gaussian, Laplace, Mixture, Optional, Poisson, optimize
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.execution.threads import run_on_threads

GRIDS = [(1, 1), (2, 1), (1, 2), (2, 2), (3, 1), (1, 4)]
MOST_PASSES = 8  # 64 bits, 10 at a time, and one to sum the distances


def lower_median(x, w):
    """In exact arithmetic; what rounding can decide is a tie, and ties go to the lower value."""
    order = np.argsort(x, kind="stable")
    weights = [Fraction(float(v)) for v in w[order]]
    half, below = sum(weights) * (Fraction(1, 2) - Fraction(1, 10**12)), Fraction(0)
    for i, v in zip(order, weights):
        below += v
        if below >= half and v > 0:
            return float(x[i])
    raise AssertionError("no weight")


def counted(monkeypatch):
    """The number of passes of each search."""
    passes = []
    original = Executor.search

    def search(self):
        found = original(self)
        passes.append(found)
        return found

    monkeypatch.setattr(Executor, "search", search)
    return passes


def data(seed, n):
    rng = np.random.default_rng(seed)
    x = [rng.normal(size=n), np.round(rng.normal(size=n) * 2), rng.standard_cauchy(n) * 1e6, 1e7 + rng.normal(size=n),
         10.0 ** rng.uniform(-40, 40, n) * rng.choice([-1, 1], n)][seed % 5]  # fmt: skip
    w = [rng.random(n), np.ones(n), np.full(n, 0.1), rng.choice([0.0, 0.1, 0.2, 0.3], n), rng.exponential(size=n) ** 3][
        (seed // 5) % 5
    ]
    w[0] = max(w[0], 0.1)
    return x, w


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (3, 1)])
def test_the_location_is_the_lower_weighted_median_exactly(monkeypatch, shape):
    passes = counted(monkeypatch)
    for seed in range(50):
        x, w = data(seed, [1, 2, 7, 40, 101][seed % 5 if seed < 25 else 4 - seed % 5])
        options = {"weights": w, "max_iter": 1, "tol": None}
        for result in run_on_threads(*shape, lambda g, x=x, o=options: fit(x, Laplace(), g, **o)):
            used = w > 0
            expected = lower_median(x, w)
            # a column is shifted and scaled by powers of two: every digit comes back, but for numbers near 1e-300
            assert result.model.loc == expected, f"seed {seed}"
            distance = (w[used] @ np.abs(x[used] - expected)) / w.sum()
            if distance > 1e-4 * np.ptp(x):
                assert result.model.scale == pytest.approx(distance, rel=1e-12)
    assert 0 < max(passes) <= MOST_PASSES


def test_in_a_mixture_each_component_has_the_median_of_its_posterior_weights(monkeypatch):
    passes = counted(monkeypatch)
    rng = np.random.default_rng(3)
    x = np.r_[rng.laplace(-4, 1, 60), rng.laplace(0, 0.3, 50), rng.laplace(5, 2, 41)]
    w = rng.random(151)
    start = Mixture([Laplace(-2.0, 1.0), Laplace(1.0, 2.0), Gaussian(3.0, 4.0), Laplace(6.0, 0.5)], weights=[0.25] * 4)
    r = start.posterior(x) * w[:, None]
    for shape in GRIDS:
        for result in run_on_threads(*shape, lambda g: fit(x, start, g, weights=w, max_iter=1, tol=None)):
            for k in (0, 1, 3):
                loc = lower_median(x, r[:, k])
                assert result.model.components[k].loc == loc
                scale = r[:, k] @ np.abs(x - loc) / r[:, k].sum()
                assert result.model.components[k].scale == pytest.approx(scale, rel=1e-11)
    assert 0 < max(passes) <= MOST_PASSES


@pytest.mark.parametrize(
    "model, cuts",
    [
        (Mixture(Laplace(), 4), [""]),
        (Mixture(Composite(Laplace(), Poisson()), 3), ["", "component_*", "component_1"]),
        (Mixture(Composite(Mixture(Laplace(), 3), Poisson()), 2), ["", "component_*/factor_0", "component_0/factor_0"]),
        (Mixture(Composite(Optional(Laplace()), Poisson()), 2), ["", "component_*"]),
        (Mixture([Composite(leaf, Poisson()) for leaf in (Laplace(), Gaussian(), Laplace())]), [""]),
    ],
    ids=["copies", "composites", "nested", "missing", "beside others"],
)
def test_searches_on_grids_and_cuts_equal_serial(model, cuts):
    rng = np.random.default_rng(7)
    x, n = np.r_[rng.laplace(-4, 1, 60), rng.laplace(3, 0.3, 50)], rng.poisson(3, 110)
    rows = x if model.width == 1 else [(None if i % 9 == 0 and "optional" in repr(model) else a, b)
                                       for i, (a, b) in enumerate(zip(x.tolist(), n.tolist()))]  # fmt: skip
    serial = optimize(rows, model, max_iter=8, tol=None, seed=1)
    assert np.diff(serial.history).min() >= -1e-10
    for shape in GRIDS[1:]:
        for cut in cuts if shape[1] > 1 else [None]:
            results = run_on_threads(*shape, lambda g, c=cut: fit(rows, model, g, max_iter=8, tol=None, seed=1, cut=c))
            for result in results:
                np.testing.assert_allclose(result.history, serial.history, rtol=1e-12)
                np.testing.assert_allclose(result.model.state.theta, serial.model.state.theta, rtol=1e-8, atol=1e-8)


def test_a_median_that_does_not_move_needs_no_pass(monkeypatch):
    passes = counted(monkeypatch)
    x = np.random.default_rng(0).normal(size=101)
    result = optimize(x, Laplace(float(np.median(x)), 1.0), max_iter=5, tol=None)
    assert passes[-5:] == [0] * 5  # before them, what is compiled may be tried at other parameters
    assert result.model.loc == np.median(x)
    passes.clear()
    assert optimize(x, Laplace(0.3, 1.0, fixed=True), max_iter=2).model.loc == 0.3
    assert set(passes) == {0}


def test_other_models_search_nothing(monkeypatch):
    passes = counted(monkeypatch)
    optimize(np.arange(9.0), Mixture(Gaussian(), 2), max_iter=3, tol=None)
    assert set(passes) <= {0}


def test_the_memory_of_a_search_does_not_grow_with_the_rows():
    """Ten times the rows in the same memory, over that of the encoded rows: all of it is allocated before."""
    grown = []
    for n in (60_000, 600_000):
        x = np.random.default_rng(0).normal(size=n)
        model = Mixture([Laplace(-0.5, 1.0), Laplace(0.7, 0.5)], weights=[0.5, 0.5])
        made = load(x, model, serial_grid())
        run = Executor(made.model, made.rows, serial_grid(), None)
        assert run.given()
        run.e_step()
        run.reduce_stats()
        tracemalloc.start()
        assert 0 < run.search() <= MOST_PASSES
        grown.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert grown[1] < 1.2 * grown[0] + 50_000, grown
    assert grown[1] < 600_000 * 8 / 2
