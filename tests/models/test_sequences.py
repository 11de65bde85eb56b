"""Sequences and hidden Markov models against the enumeration of all paths, and against what they reduce to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from chains import CUTS, TREES, sequences

from mixle_mpi import (
    Categorical,
    Composite,
    Gaussian,
    HiddenMarkov,
    Mixture,
    Optional,
    Poisson,
    Record,
    Sequence,
    load,
    optimize,
)
from mixle_mpi.contract.errors import DataError, ModelError, NumericalError
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.fitted import state_of
from mixle_mpi.execution.shard import cut_paths
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.models.sequence import Steps


def random_chain(rng, states: int, zeros: bool) -> tuple[np.ndarray, np.ndarray]:
    """Initial and transition probabilities, some of them 0 with `zeros`."""
    initial, transition = rng.dirichlet(np.ones(states)), rng.dirichlet(np.ones(states), size=states)
    if zeros and states > 1:
        transition[rng.random((states, states)) < 0.3] = 0.0
        transition[np.arange(states), rng.integers(0, states, states)] += 0.1
        transition /= transition.sum(axis=1, keepdims=True)
        initial[rng.integers(0, states)] = 0.0
        initial /= initial.sum()
    return initial, transition


def enumerated(initial, transition, densities, end):
    """Likelihood, posteriors (steps, states), expected pairs (states, states) and the best path of one sequence, by
    all paths; densities (steps, states)."""
    steps, states = densities.shape
    posterior, pairs = np.zeros((steps, states)), np.zeros((states, states))
    total, best = 0.0, (-1.0, ())
    for path in itertools.product(range(states), repeat=steps):
        p = initial[path[0]] * np.prod([densities[t, s] for t, s in enumerate(path)]) * end[path[-1]]
        p *= np.prod([transition[a, b] for a, b in itertools.pairwise(path)])
        total += p
        best = max(best, (p, path), key=lambda found: found[0])
        for t, s in enumerate(path):
            posterior[t, s] += p
        for a, b in itertools.pairwise(path):
            pairs[a, b] += p
    return total, posterior, pairs, best[1]


@pytest.mark.parametrize("seed", range(50))
def test_recursions_equal_the_enumeration_of_all_paths(seed):
    rng = np.random.default_rng(seed)
    states = int(rng.integers(1, 4))
    initial, transition = random_chain(rng, states, zeros=seed % 3 == 0)
    means = rng.normal(scale=2.0, size=states)
    terminal = sorted(set(rng.integers(0, states, 2).tolist())) if seed % 5 == 1 else None
    model = HiddenMarkov([Gaussian(m, 1.5) for m in means], initial=initial, transition=transition, terminal=terminal)
    data = [rng.normal(scale=2.0, size=int(rng.integers(1, 6))) for _ in range(5)]
    expected, starts, pairs = [], np.zeros(states), np.zeros((states, states))
    posteriors, paths, forecasts = [], [], []
    for x in data:
        densities = np.exp(-((x[:, None] - means) ** 2) / 3.0) / np.sqrt(3.0 * np.pi)
        total, posterior, both, path = enumerated(initial, transition, densities, model.end)
        expected.append(np.log(total) if total > 0 else -np.inf)
        anywhere, last, _, _ = enumerated(initial, transition, densities, np.ones(states))  # it did not end there
        forecasts.append(last[-1] / anywhere @ transition if anywhere > 0 else np.full(states, np.nan))
        if total > 0:
            posteriors.append(posterior / total)
            starts += posterior[0] / total
            pairs += both / total
            paths.append(path)
        else:
            posteriors.append(np.full_like(posterior, np.nan))
    found = model.log_density(data)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(model.posterior(data), np.concatenate(posteriors), atol=1e-12)
    np.testing.assert_allclose(model.forecast(data), forecasts, atol=1e-12)
    possible = [x for x, value in zip(data, expected) if np.isfinite(value)]
    if not possible:
        return
    for own, path in zip(model.viterbi(possible), paths):
        assert own.tolist() == list(path)
    fitted = optimize(possible, model, max_iter=1, tol=None).model
    np.testing.assert_allclose(fitted.initial, starts / starts.sum(), atol=1e-12)
    left = pairs.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.transition, np.where(left > 0, pairs / np.where(left > 0, left, 1), transition),
                               atol=1e-12)  # fmt: skip
    assert (fitted.transition[transition == 0] == 0).all()


@pytest.mark.parametrize("times", [1, 12])
@pytest.mark.parametrize("states", [1, 2, 3, 6, 7, 8, 23, 24, 31])
def test_recursions_of_any_width_equal_plain_ones(states, times):
    """Narrow and wide matrices, few and many sequences at a time, against matrices multiplied step by step."""
    rng = np.random.default_rng(states)
    initial, transition = random_chain(rng, states, zeros=False)
    means = rng.normal(scale=3.0, size=states)
    model = HiddenMarkov([Gaussian(m, 1.0) for m in means], initial=initial, transition=transition)
    data = [rng.normal(scale=3.0, size=n) for n in (9, 1, 0, 4, 9, 7, 2, 9) * times]
    pairs, posteriors, logs = np.zeros((states, states)), [], []
    for x in data:
        density = np.exp(-0.5 * (x[:, None] - means) ** 2) / np.sqrt(2.0 * np.pi)
        before, after = np.empty_like(density), np.ones_like(density)
        for t in range(len(x)):
            before[t] = (before[t - 1] @ transition if t else initial) * density[t]
        for t in range(len(x) - 2, -1, -1):
            after[t] = transition @ (density[t + 1] * after[t + 1])
        total = before[-1].sum() if len(x) else 1.0
        logs.append(np.log(total))
        posteriors.append(before * after / total)
        for t in range(1, len(x)):
            pairs += transition * np.outer(before[t - 1], density[t] * after[t]) / total
    np.testing.assert_allclose(model.log_density(data), logs, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(model.posterior(data), np.concatenate(posteriors), atol=1e-12)
    fitted = optimize(data, model, max_iter=1, tol=None).model
    np.testing.assert_allclose(fitted.transition, pairs / pairs.sum(axis=1, keepdims=True), atol=1e-11)


def test_ragged_sequences_d03():
    emissions = [Categorical(levels=[0, 1], probabilities=p) for p in ([0.9, 0.1], [0.3, 0.7])]
    model = HiddenMarkov(emissions, initial=[0.6, 0.4], transition=[[0.7, 0.3], [0.2, 0.8]])
    data = [[0, 1, 1], [], [1], [0, 0]]
    result = optimize(data, model, max_iter=1, tol=None)
    assert result.history[0] == pytest.approx(-4.055740656, abs=1e-9)
    fitted = result.model
    np.testing.assert_allclose(fitted.initial, [0.57331172, 0.42668828], atol=1e-8)
    np.testing.assert_allclose(fitted.transition, [[0.54257147, 0.45742853], [0.06333933, 0.93666067]], atol=1e-8)
    table = [e.probabilities for e in fitted.emissions]
    np.testing.assert_allclose(table, [[0.87801175, 0.12198825], [0.19152243, 0.80847757]], atol=1e-8)


def test_long_sequences_n06():
    even = [Categorical(levels=[0, 1], probabilities=[0.5, 0.5])] * 2
    model = HiddenMarkov(even, initial=[0.5, 0.5], transition=[[0.5, 0.5], [0.5, 0.5]])
    rng = np.random.default_rng(0)
    assert model.log_density([rng.integers(0, 2, 5000)])[0] == pytest.approx(-3465.735903, abs=1e-6)
    assert model.log_density([rng.integers(0, 2, 10**6)])[0] == pytest.approx(-693147.180560, abs=1e-5)
    sharp = HiddenMarkov([Gaussian(7.0, 1e-6)], initial=[1.0], transition=[[1.0]])
    x = [np.full(1000, 7.0)]
    assert sharp.log_density(x)[0] == pytest.approx(5988.816746, abs=1e-6)
    assert (sharp.posterior(x) == 1.0).all()


def test_one_state_is_its_emission():
    data = sequences()
    chain = optimize(data, HiddenMarkov(Gaussian(), 1), max_iter=2, tol=None)
    steps = optimize(data, Sequence(Gaussian()), max_iter=2, tol=None)
    plain = optimize(np.concatenate(data), Gaussian(), max_iter=2, tol=None)
    assert chain.log_likelihood == pytest.approx(plain.log_likelihood, rel=1e-13)
    assert steps.log_likelihood == pytest.approx(plain.log_likelihood, rel=1e-13)
    assert chain.bic == pytest.approx(plain.bic, rel=1e-12)  # counted are steps


def test_equal_rows_are_a_mixture():
    data = sequences()
    weights, means = np.array([0.5, 0.2, 0.3]), [0.0, 4.0, 8.0]
    emissions = [Gaussian(m, 1.0) for m in means]
    chain = HiddenMarkov(emissions, initial=weights, transition=np.tile(weights, (3, 1)))
    mixture = Mixture(emissions, weights=weights)
    flat = np.concatenate(data)
    assert chain.log_density(data).sum() == pytest.approx(mixture.log_density(flat).sum(), rel=1e-13)
    np.testing.assert_allclose(chain.posterior(data), mixture.posterior(flat), atol=1e-13)


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("shape", [(2, 1), (3, 1), (1, 2), (2, 2), (1, 3), (1, 4)])
def test_grids_equal_serial(name, shape):
    rows, model = TREES[name]
    data = rows()
    alone = optimize(data, model, max_iter=6, tol=None)
    assert np.diff(alone.history).min() > -1e-9
    if shape[1] > 1 and not cut_paths(model):
        return
    together = run_on_threads(*shape, lambda grid: optimize_on(grid, data, model))
    scale = max(abs(alone.log_likelihood), len(data))
    for found in together:
        assert np.abs(np.array(found.history) - alone.history).max() < 1e-12 * scale
        np.testing.assert_allclose(parameters(found.model), parameters(alone.model), atol=1e-8)


def parameters(model) -> np.ndarray:
    """All parameters in one vector."""
    return state_of(model).theta


@pytest.mark.parametrize("name, cut", [(name, cut) for name, cuts in CUTS.items() for cut in cuts])
def test_every_cut_equals_serial(name, cut):
    rows, model = TREES[name]
    data = rows()
    alone = optimize(data, model, max_iter=4, tol=None)
    for shape in [(1, 2), (2, 3)]:
        (found, *_) = run_on_threads(*shape, lambda grid: optimize_on(grid, data, model, 4, cut))
        scale = max(abs(alone.log_likelihood), len(data))
        assert np.abs(np.array(found.history) - alone.history).max() < 1e-12 * scale
        np.testing.assert_allclose(parameters(found.model), parameters(alone.model), atol=1e-8)


def optimize_on(grid, data, model, max_iter=6, cut=None):
    return fit(data, model, grid, max_iter=max_iter, tol=None, cut=cut)


@pytest.mark.parametrize("name", TREES)
def test_weights_saving_and_sampling(name, tmp_path):
    rows, model = TREES[name]
    data = rows()
    weights = np.ones(len(data))
    weights[:5] = 2.0
    fitted = optimize(data, model, max_iter=3, tol=None).model
    twice = optimize(data, fitted, max_iter=2, tol=None, weights=weights)
    again = optimize([*data, *data[:5]], fitted, max_iter=2, tol=None)
    np.testing.assert_allclose(twice.history, again.history, rtol=1e-12)
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.log_density(data), fitted.log_density(data))
    chain = [n for n in model.walk() if isinstance(n, Steps)]
    if all(n.length is not None for n in chain):
        drawn = loaded.sample(20, seed=1)
        assert len(drawn) == 20 and np.isfinite(loaded.log_density(drawn)).all()


def test_columns_keep_their_order_beside_sequences():
    """A composite takes columns by position: a sequence first, a number after it, and a vector of steps."""
    words = [["a", "b"], [], ["b"]]
    model = Composite(Sequence(Categorical(["a", "b"], [0.25, 0.75])), Gaussian(1.0, 2.0))
    numbers = [0.5, 1.0, -3.0]
    expected = model.factors[0].log_density(words) + model.factors[1].log_density(np.array(numbers))
    np.testing.assert_allclose(model.log_density(list(zip(words, numbers))), expected, rtol=1e-14)
    with pytest.raises(DataError, match="row 1 is not a list or tuple of 2 columns"):
        model.log_density([(["a"], 1.0), (["b"],)])


def test_each_rank_may_bring_its_own_sequences():
    """Ranks of 1, 0 and 2 sequences, as one process with all of them."""
    data = [[1.0, 2.0, 8.0], [2.5, 1.5], [7.0, 9.0]]
    model = HiddenMarkov([Gaussian(1.0, 1.0), Gaussian(8.0, 1.0)], initial=[0.5, 0.5],
                         transition=[[0.9, 0.1], [0.2, 0.8]])  # fmt: skip
    alone = optimize(data, model, max_iter=3, tol=None)
    own = [data[:1], [], data[1:]]
    for found in run_on_threads(3, 1, lambda g: fit(own[g.world.rank], model, g, local=True, max_iter=3, tol=None)):
        np.testing.assert_allclose(found.history, alone.history, rtol=1e-13)


def test_a_sequence_of_probability_zero_has_no_path():
    letters = [Categorical(["a", "b"], p) for p in ([0.9, 0.1], [0.2, 0.8])]
    model = HiddenMarkov(letters, initial=[0.5, 0.5], transition=[[0.9, 0.1], [0.1, 0.9]])
    data = ["ab", "zebra", "b"]
    assert np.isfinite(model.log_density(data)).tolist() == [True, False, True]
    assert [path.min() >= 0 for path in model.viterbi(data)] == [True, False, True]
    assert (model.viterbi(data)[1] == -1).all() and np.isnan(model.posterior(data)[2:7]).all()


@pytest.mark.parametrize(
    ("data", "model", "message"),
    [
        (np.array([1.0, 2.0]), HiddenMarkov(Gaussian(), 2), "row 0: 1.0 is not a .*; for one sequence give a list"),
        ([[1.0], 2.0], HiddenMarkov(Gaussian(), 2), "row 1: 2.0 is not a sequence"),
        ([[1.0], [2.0, np.inf]], HiddenMarkov(Gaussian(), 2), "row 1 .*step 1, column '0': inf is not finite"),
        ([[1.0], [2.0, None]], HiddenMarkov(Gaussian(), 2), "row 1 .*step 1, column '0': the value is missing"),
        ([[1.0], ["a"]], HiddenMarkov(Gaussian(), 2), "row 1, step 0, column '0': 'a' is not a number"),
        ([[], []], HiddenMarkov(Gaussian(), 2), "nothing to fit"),
        ([[[1.0, 2.0]]], Sequence(Sequence(Gaussian())), "steps are not sequences themselves"),
    ],
)
def test_refusals_name_row_and_step(data, model, message):
    with pytest.raises(ValueError, match=message):
        optimize(data, model)


def test_a_state_out_of_reach_hides_no_other():
    """However well it would explain a step: on one rank, in chunks, by states, one sequence and many."""
    model = HiddenMarkov([Gaussian(0.0, 1.0), Gaussian(100.0, 1.0)], initial=[1.0, 0.0], transition=np.eye(2))
    x, alone = np.array([100.0, 0.0, 100.0]), Gaussian(0.0, 1.0)
    for times in (1, 40):
        np.testing.assert_allclose(model.log_density([x] * times), alone.log_density(x).sum(), rtol=1e-14)
        np.testing.assert_array_equal(model.posterior([x] * times), [[1.0, 0.0]] * 3 * times)
    long = np.concatenate([np.zeros(30), np.full(30, 100.0)])
    serial = optimize([long], model, max_iter=1, tol=None)
    for found in run_on_threads(3, 1, lambda grid: fit([long], model, grid, max_iter=1, tol=None)):
        np.testing.assert_allclose(found.history, serial.history, rtol=1e-13)
    states = 520  # so many that the recursion is divided
    initial, transition = np.eye(states)[0], np.full((states, states), 1.0 / states)
    transition[0] = initial
    wide = HiddenMarkov([Gaussian(0.0, 1.0)] + [Gaussian(37.9, 1.0)] * (states - 1), initial=initial,
                        transition=transition)  # fmt: skip
    y = np.zeros(40)
    y[20] = 38.5
    for found in run_on_threads(1, 2, lambda grid: fit([y], wide, grid, max_iter=0, tol=None, cut="")):
        assert found.log_likelihood == pytest.approx(alone.log_density(y).sum(), rel=1e-13)


def test_what_cannot_be_followed_is_said():
    """A state that falls behind by more than numbers can hold, and is the likeliest in the end."""
    model = HiddenMarkov([Gaussian(m, 1.0) for m in (0.0, 1.0, 2.0)], initial=[1.0, 0.0, 0.0],
                         transition=[[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]])  # fmt: skip
    with pytest.raises(NumericalError, match="more than 700 nats behind"):
        optimize([np.concatenate([np.ones(1500), np.zeros(1500)])], model, max_iter=2, tol=None)


def test_posteriors_inside_other_models():
    """Of a chain in a component that a row is not of, below something missing, and of mixtures of steps."""
    near = HiddenMarkov([Gaussian(0.0, 1.0), Gaussian(3.0, 1.0)], initial=[0.5, 0.5],
                        transition=[[0.9, 0.1], [0.2, 0.8]])  # fmt: skip
    far = HiddenMarkov([Gaussian(40.0, 1.0), Gaussian(43.0, 1.0)], initial=[0.5, 0.5], transition=np.eye(2))
    x = [[0.0, 3.0] * 15, [40.0, 43.0] * 20]
    np.testing.assert_array_equal(Mixture([near, far], weights=[0.5, 0.5]).posterior(x, path="component_0"),
                                  near.posterior(x))  # fmt: skip
    rows = [{"a": 1.0, "x": [1.0, 2.0]}, {"a": None, "x": [0.0, 3.0, 3.0]}, {"a": 0.5, "x": [3.0]}]
    inside = Optional(Record(a=Gaussian(0.0, 1.0), x=near))
    np.testing.assert_array_equal(inside.posterior(rows, path="of/x"), near.posterior([r["x"] for r in rows]))
    two = Mixture([Gaussian(0.0, 1.0), Gaussian(5.0, 1.0)], weights=[0.5, 0.5])
    steps = HiddenMarkov([two, two], initial=[0.5, 0.5], transition=np.eye(2))
    found = steps.posterior([[0.0, 5.0, 2.0], [1.0]], path="state_0")
    np.testing.assert_allclose(found, two.posterior([0.0, 5.0, 2.0, 1.0]), atol=1e-14)
    assert near.posterior([]).shape == (0, 2)


def test_samples_end_where_sequences_may_end():
    labels = [Categorical(["a", "b"], p) for p in ([1.0, 0.0], [0.0, 1.0])]
    model = HiddenMarkov(labels, initial=[0.5, 0.5], transition=[[0.5, 0.5], [0.1, 0.9]], terminal=[0],
                         length=Poisson(4.0))  # fmt: skip
    drawn = model.sample(3000, seed=1)
    assert np.isfinite(model.log_density(drawn)).all()
    pairs = [x for x in drawn if len(x) == 2]  # p(aa) = 0.25, p(ba) = 0.05
    assert np.mean([x[0] == "a" for x in pairs]) == pytest.approx(5 / 6, abs=0.06)
    closed = HiddenMarkov(labels, initial=[0.0, 1.0], transition=np.eye(2), terminal=[0], length=Poisson(4.0))
    with pytest.raises(ModelError, match="no path of . steps ends in a terminal state"):
        closed.sample(5)


@pytest.mark.parametrize("model, data", [
    (HiddenMarkov(Gaussian(), 2, initial=[0.5, 0.5], transition=[[0.9, 0.1], [0.1, 0.9]], fixed=True), [[1.0, 2.0]]),
    (Mixture(Mixture(Categorical(), 2), 2, weights=[0.3, 0.7], fixed=True), list("abba")),
    (Mixture([Categorical(["a", "b"], [0.5, 0.5], fixed=True), Categorical()]), list("abba")),
])  # fmt: skip
def test_what_is_fixed_can_be_saved(model, data, tmp_path):
    fitted = optimize(data, model, max_iter=3, tol=None).model
    fitted.save(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).log_density(data), fitted.log_density(data))
