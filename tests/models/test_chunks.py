"""Sequences that are divided in time over data shards, against one rank."""

from __future__ import annotations

import numpy as np
import pytest

from mixle_mpi import Categorical, Gaussian, HiddenMarkov, Mixture, Poisson, optimize
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.fitted import state_of
from mixle_mpi.execution.threads import run_on_threads


def steps(n: int, states: int = 4, stay: float = 0.9, seed: int = 0) -> np.ndarray:
    """Numbers around places that a chain visits."""
    rng = np.random.default_rng(seed)
    at = np.empty(n, np.int64)
    for t in range(n):
        at[t] = at[t - 1] if t and rng.random() < stay else rng.integers(states)
    return rng.normal(3.0 * at)


def assert_equal(found, alone, n: int) -> None:
    scale = max(abs(alone.log_likelihood), n)
    assert np.abs(np.array(found.history) - alone.history).max() < 1e-12 * scale
    np.testing.assert_allclose(state_of(found.model).theta, state_of(alone.model).theta, atol=1e-8)
    assert found.bic == pytest.approx(alone.bic, rel=1e-12)


def on_shards(shards: int, data, model, max_iter: int) -> list:
    return run_on_threads(shards, 1, lambda grid: fit(data, model, grid, max_iter=max_iter, tol=None))


MODELS = {
    "gaussian": HiddenMarkov(Gaussian(), 4),
    "length": HiddenMarkov(Gaussian(), 3, length=Poisson()),
    "mixture": HiddenMarkov(Mixture(Gaussian(), 2), 2),
    "terminal": HiddenMarkov(Gaussian(), 3, terminal=[1]),
}


@pytest.mark.parametrize("shards", [2, 3, 4])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lengths", [(900,), (500, 0, 40)])
def test_chunks_equal_serial(name, shards, lengths):
    if len(lengths) >= shards:
        shards = len(lengths) + 1
    data = [steps(n, seed=n) for n in lengths]
    alone = optimize(data, MODELS[name], max_iter=5, tol=None)
    for found in on_shards(shards, data, MODELS[name], 5):
        assert_equal(found, alone, sum(lengths))


@pytest.mark.parametrize("shards", [2, 3, 5, 7])
def test_a_filter_forgets(shards):
    """What is worked out again is a few steps a chunk, forwards and backwards, whatever the length."""
    data = [steps(6000, 3)]
    found = on_shards(shards, data, HiddenMarkov(Gaussian(), 3), 2)
    passes = found[0].counts.passes
    again = [result.counts.repaired / passes for result in found]
    assert all(0 < n < 600 for n in again), again


@pytest.mark.parametrize("shards", [2, 3, 5, 7])
def test_what_never_forgets_is_composed(shards):
    """States that are never left: the start matters to the end, and every chunk is an operator."""
    data = [np.random.default_rng(3).normal(size=240)]
    slow = HiddenMarkov([Gaussian(0.0, 1.0), Gaussian(0.02, 1.0)], initial=[0.5, 0.5], transition=np.eye(2))
    blind = HiddenMarkov([Categorical(["a", "b"], [0.5, 0.5]), Categorical(["a", "b"], [0.5 + 1e-4, 0.5 - 1e-4])],
                         initial=[0.3, 0.7], transition=[[1.0, 0.0], [1e-9, 1.0 - 1e-9]])  # fmt: skip
    letters = [list(np.random.default_rng(1).choice(["a", "b"], 240))]
    for x, model in ((data, slow), (letters, blind)):
        alone = optimize(x, model, max_iter=2, tol=None)
        results = on_shards(shards, x, model, 2)
        for found in results:
            assert_equal(found, alone, 240)
        for found in results[1:-1]:  # to the end or back in each of three passes; how the outer ones go is rounding
            assert found.counts.repaired >= 3 * (240 // shards)


def test_fewer_steps_than_shards_and_none():
    for data in ([np.array([1.0, 2.0])], [np.array([3.0]), np.array([])]):
        model = HiddenMarkov([Gaussian(0.0, 1.0), Gaussian(2.0, 1.0)], initial=[0.5, 0.5], transition=np.eye(2))
        alone = optimize(data, model, max_iter=0, tol=None)
        for found in on_shards(4, data, model, 0):
            assert found.log_likelihood == pytest.approx(alone.log_likelihood, rel=1e-13)


@pytest.mark.parametrize("shards", [3, 5, 7])
@pytest.mark.parametrize("at", [0, 3, 100, 118])
def test_a_sequence_of_probability_zero_counts_once(shards, at):
    """Wherever its impossible step is: one row is left out, and the rest is as if it were not there."""
    letters = [Categorical(["a", "b", "c"], p) for p in ([0.5, 0.5, 0.0], [0.2, 0.8, 0.0])]
    model = HiddenMarkov(letters, initial=[0.5, 0.5], transition=[[0.9, 0.1], [0.2, 0.8]])
    bad = ["a", "b"] * 60
    bad[at] = "c"
    options = {"max_iter": 2, "tol": None, "impossible": "skip"}
    alone = optimize([bad, ["a"] * 4], model, **options)
    for found in run_on_threads(shards, 1, lambda grid: fit([bad, ["a"] * 4], model, grid, **options)):
        assert found.impossible == alone.impossible == 1
        np.testing.assert_allclose(found.history, alone.history, rtol=1e-13)


SLOW = {
    "left to right": ([1.0, 0.0, 0.0], [[0.97, 0.03, 0.0], [0.0, 0.97, 0.03], [0.0, 0.0, 1.0]]),
    "never left": ([0.3, 0.3, 0.4], np.eye(3)),
    "hardly ever left": ([0.3, 0.3, 0.4], np.eye(3) * (1.0 - 3e-25) + 1e-25),
    "two blocks": ([0.5, 0.2, 0.3], [[0.6, 0.4, 0.0], [0.3, 0.7, 0.0], [0.0, 0.0, 1.0]]),
}


@pytest.mark.parametrize("shards", [2, 4, 7])
@pytest.mark.parametrize("chain", SLOW)
def test_small_probabilities_matter_where_states_are_not_refreshed(chain, shards):
    """A state that seems lost when chunks meet may be all that is left later: nothing is agreed on before it agrees."""
    initial, transition = SLOW[chain]
    model = HiddenMarkov([Gaussian(m, 1.0) for m in (0.0, 1.0, 2.0)], initial=initial, transition=transition)
    rng = np.random.default_rng(shards)
    for x in (np.repeat([0.0, 1.0], [120, 160]), rng.normal(np.repeat([1.0, 0.0, 2.0], 90)), rng.normal(1.0, 1.0, 300)):
        alone = optimize([x], model, max_iter=3, tol=None)
        for found in on_shards(shards, [x], model, 3):
            assert found.status != "decreased"
            assert_equal(found, alone, len(x))


@pytest.mark.parametrize("shards", [2, 3, 5, 7])
def test_operators_keep_what_is_far_below(shards):
    """Twelve nats a step for the state that the sequence cannot be in, over hundreds of steps."""
    x = np.random.default_rng(0).normal(np.repeat([0.0, 5.0], [100, 500]))
    model = HiddenMarkov([Gaussian(0.0, 1.0), Gaussian(5.0, 1.0)], initial=[1.0, 0.0], transition=np.eye(2))
    alone = optimize([x], model, max_iter=2, tol=None)
    for found in on_shards(shards, [x], model, 2):
        assert_equal(found, alone, len(x))
