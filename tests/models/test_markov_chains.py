"""Markov chains of any order against products and counts in plain Python, and what they refuse."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from chains import texts

from mixle_mpi import (
    Categorical,
    DeviceSpec,
    Gaussian,
    HiddenMarkov,
    MarkovChain,
    Mixture,
    ModelError,
    Optional,
    Poisson,
    Record,
    Resources,
    Sequence,
    balance_plan,
    load,
    optimize,
    size_model_tree,
)
from mixle_mpi.commands.fit import main
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.fitted import state_of
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load as load_data
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.models.specification import build, describe
from mixle_mpi.planning.balance import plan_on
from mixle_mpi.planning.payload import in_run
from mixle_mpi.report.model import column_lines, model_lines


def tables(rng, levels: int, order: int, zeros: float = 0.0) -> list[np.ndarray]:
    """Random probabilities of each of the first steps and of later ones, some of them 0."""
    found = []
    for k in range(order + 1):
        p = rng.dirichlet(np.ones(levels), size=(levels,) * k)
        p[rng.random(p.shape) < zeros] = 0.0
        p[..., 0] += 0.01
        found.append(p / p.sum(axis=-1, keepdims=True))
    return found


def chain(parts, labels, **options) -> MarkovChain:
    first = parts[0] if len(parts) == 2 else parts[:-1]
    return MarkovChain(labels, first, parts[-1], order=len(parts) - 1, **options)


def log_density(parts, x) -> float:
    """Of one sequence of level numbers, one step after another."""
    order, total = len(parts) - 1, 0.0
    for t in range(len(x)):
        known = min(t, order)
        p = parts[known][(*x[t - known : t], x[t])]
        total += math.log(p) if p > 0 else -math.inf
    return total


def drawn(rng, n: int, levels: int, mean: float = 6.0) -> list[list[int]]:
    """Sequences of level numbers; among them an empty one and one of one step."""
    return [[], [0], *(rng.integers(0, levels, rng.poisson(mean)).tolist() for _ in range(n - 2))]


def counts_of(data, levels: int, order: int, weights) -> list[np.ndarray]:
    """How often each label follows each context, (levels,) * (k + 1) for each number k of labels before."""
    found = [np.zeros((levels,) * (k + 1)) for k in range(order + 1)]
    for x, w in zip(data, weights):
        for t in range(len(x)):
            known = min(t, order)
            found[known][tuple(x[t - known : t + 1])] += w
    return found


@pytest.mark.parametrize("order, levels", [(1, 1), (1, 2), (1, 7), (2, 1), (2, 3), (2, 6), (3, 2), (3, 4), (5, 2)])
@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_log_density_is_a_product(order, levels, zeros):
    rng = np.random.default_rng(order * 10 + levels)
    parts, data = tables(rng, levels, order, zeros), drawn(rng, 40, levels)
    expected = [log_density(parts, x) for x in data]
    found = chain(parts, list(range(levels))).log_density(data)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)
    assert found[0] == 0.0


def test_levels_are_sorted_with_their_probabilities():
    parts = tables(np.random.default_rng(0), 3, 2)
    model = chain(parts, ["b", "c", "a"])
    assert model.levels == ("a", "b", "c")
    words = {"b": 0, "c": 1, "a": 2}
    data = ["", "b", "ca", "abcabca", "ccccba"]
    expected = [log_density(parts, [words[v] for v in x]) for x in data]
    np.testing.assert_allclose(model.log_density(data), expected, rtol=1e-13)
    assert model.transition[2, 0, 1] == parts[2][1, 2, 0] and model.initial[1][0, 1] == parts[1][2, 0]


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("pseudo", [0.0, 0.5])
def test_the_fit_of_one_chain_is_its_counts(order, pseudo):
    rng, levels = np.random.default_rng(order), 3
    parts = tables(rng, levels, order, 0.3)
    data = [[], *map(list, chain(parts, [0, 1, 2], length=Poisson(3.0)).sample(10, seed=order))]
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], len(data))
    start = chain(parts, [0, 1, 2], pseudo_count=pseudo)
    result = optimize(data, start, weights=weights, max_iter=1, tol=None)
    counts = counts_of(data, levels, order, weights)
    assert order == 1 or any((c.sum(axis=-1) == 0).any() for c in counts), "some contexts are never seen"
    assert pseudo or any((p[c > 0] < 1).any() and (p == 0).any() for p, c in zip(parts, counts))
    for found, old, count in zip(result.model.parts, start.parts, counts):
        own = count + pseudo
        total = own.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(found, np.where(total > 0, own / np.maximum(total, 1e-9), old), rtol=1e-14)
    expected = sum(w * log_density(result.model.parts, x) for w, x in zip(weights, data) if w)
    assert result.log_likelihood == pytest.approx(expected, rel=1e-13)
    assert result.n_parameters == sum(levels**k for k in range(order + 1)) * (levels - 1)
    steps = sum(w * len(x) for w, x in zip(weights, data))
    assert result.bic == pytest.approx(-2 * expected + result.n_parameters * math.log(steps), rel=1e-12)


@pytest.mark.parametrize("order, pseudo", [(1, 0.0), (1, 0.7), (2, 0.0)])
def test_em_of_a_mixture_equals_plain_em(order, pseudo):
    """Five iterations, with expected counts in NumPy."""
    rng, levels, k = np.random.default_rng(3), 3, 3
    data = drawn(rng, 40, levels)
    parts, shares = [tables(rng, levels, order) for _ in range(k)], np.array([0.2, 0.5, 0.3])
    labels = ["x", "y", "z"]
    model = Mixture([chain(p, labels, pseudo_count=pseudo) for p in parts], weights=shares)
    named = [[labels[i] for i in x] for x in data]
    result = optimize(named, model, max_iter=5, tol=None)
    history = []
    for _ in range(6):
        terms = np.log(shares) + np.array([[log_density(p, x) for p in parts] for x in data])
        total = np.logaddexp.reduce(terms, axis=1, keepdims=True)
        history.append(total.sum())
        before = parts, shares
        resp = np.exp(terms - total)
        shares = resp.mean(axis=0)
        fresh = [[c + pseudo for c in counts_of(data, levels, order, w)] for w in resp.T]
        parts = [[np.where(c.sum(-1, keepdims=True) > 0, c / np.maximum(c.sum(-1, keepdims=True), 1e-300), old)
                  for c, old in zip(own, olds)] for own, olds in zip(fresh, parts)]  # fmt: skip
    np.testing.assert_allclose(result.history, history, rtol=1e-12)
    np.testing.assert_allclose(result.model.weights, before[1], rtol=1e-10)
    for component, expected in zip(result.model.components, before[0]):
        for found, p in zip(component.parts, expected):
            np.testing.assert_allclose(found, p, rtol=1e-10, atol=1e-14)
    assert result.n_parameters == k * (sum(levels**j for j in range(order + 1)) * (levels - 1)) + k - 1


def test_a_chain_of_known_order_is_recovered():
    rng = np.random.default_rng(11)
    parts = tables(rng, 3, 2)
    truth = chain(parts, ["a", "b", "c"], length=Poisson(200.0))
    data = truth.sample(600, seed=2)
    assert np.mean([len(x) for x in data]) == pytest.approx(200, abs=2)
    fits = {order: optimize(data, MarkovChain(order=order, length=Poisson())) for order in (1, 2, 3)}
    assert min(fits, key=lambda order: fits[order].bic) == 2
    found = fits[2].model
    assert found.levels == ("a", "b", "c") and fits[2].n_iter <= 2
    np.testing.assert_allclose(found.transition, parts[2], atol=0.03)
    np.testing.assert_allclose(found.initial[0], parts[0], atol=0.06)
    np.testing.assert_allclose(found.initial[1], parts[1], atol=0.12)


def test_a_mixture_from_nothing_finds_the_kinds_of_texts():
    """Components start apart, for every way to start, and the rows that they explain are those that were drawn."""
    data = [x for x in texts(200) if len(x) > 6]
    stays = [sum(a == b for a, b in itertools.pairwise(x)) / (len(x) - 1) > 0.55 for x in data]
    for init in ("auto", "random"):
        result = optimize(data, Mixture(MarkovChain(), 2), init=init, seed=1)
        assert result.converged
        first = result.model.posterior(data)[:, 0] > 0.5
        agree = np.mean(first == np.array(stays))
        assert max(agree, 1 - agree) > 0.95
    with pytest.raises(ModelError, match="no numeric column; use 'random'"):
        optimize(data, Mixture(MarkovChain(), 2), init="kmeans++")


def test_a_hidden_markov_model_that_shows_its_states_is_a_markov_chain():
    rng, levels = np.random.default_rng(5), ["a", "b", "c", "d"]
    parts = tables(rng, 4, 1, 0.2)
    shown = [Categorical(levels, row) for row in np.eye(4)]
    hidden = HiddenMarkov(shown, initial=parts[0], transition=parts[1])
    data = texts(30)
    np.testing.assert_allclose(chain(parts, levels).log_density(data), hidden.log_density(data), rtol=1e-12, atol=1e-13)
    assert np.isfinite(hidden.log_density(data)).any() and np.isinf(hidden.log_density(data)).any()
    possible = [x for x, own in zip(data, hidden.log_density(data)) if np.isfinite(own)]
    a = optimize(possible, chain(parts, levels), max_iter=1, tol=None).model
    b = optimize(possible, hidden, max_iter=1, tol=None).model
    np.testing.assert_allclose(a.initial, b.initial, atol=1e-14)
    np.testing.assert_allclose(a.transition, b.transition, atol=1e-14)


def test_equal_rows_are_independent_steps():
    p = np.array([0.2, 0.3, 0.1, 0.4])
    model = MarkovChain(list("abcd"), [p, np.tile(p, (4, 1))], np.tile(p, (4, 4, 1)), order=2)
    data = texts(30)
    steps = Sequence(Categorical(list("abcd"), p))
    np.testing.assert_allclose(model.log_density(data), steps.log_density(data), rtol=1e-13)


@pytest.mark.parametrize("order", [1, 2])
def test_a_weight_of_two_is_the_row_twice(order):
    data = texts(30)
    model = Mixture(MarkovChain(order=order, pseudo_count=0.3), 2)
    start = optimize(data, model, max_iter=1, tol=None).model
    weights = np.ones(30)
    weights[::3] = 2.0
    weights[1] = 0.0
    repeated = [x for i, x in enumerate(data) for _ in range(int(weights[i]))]
    a = optimize(data, start, weights=weights, max_iter=3, tol=None)
    b = optimize(repeated, start, max_iter=3, tol=None)
    np.testing.assert_allclose(a.history, b.history, rtol=1e-13)
    np.testing.assert_allclose(state_of(a.model).theta, state_of(b.model).theta, rtol=1e-11, atol=1e-14)


def test_labels_that_are_no_level_have_probability_zero():
    parts = tables(np.random.default_rng(1), 2, 2)
    model = chain(parts, [1, 2])
    data = [[1, 2, 1], [3], [1, 3, 1, 2, 2], [1, 1, 2, 2, 9], []]
    assert np.isfinite(model.log_density(data)).tolist() == [True, False, False, False, True]
    known = [x for x in data if set(x) <= {1, 2}]
    with pytest.raises(ValueError, match="row 1"):
        optimize(data, model, max_iter=2)
    skipped = optimize(data, model, max_iter=2, tol=None, impossible="skip")
    np.testing.assert_allclose(skipped.history, optimize(known, model, max_iter=2, tol=None).history, rtol=1e-14)
    # beside a model that explains them they leave the counts of the chain alone
    both = Mixture([model, HiddenMarkov([Categorical([1, 2], [0.5, 0.5], default=0.01)], initial=[1.0],
                                        transition=[[1.0]])], weights=[0.5, 0.5])  # fmt: skip
    assert np.isfinite(both.log_density(data)).all()
    posterior = both.posterior(data)
    assert (posterior[1:4, 0] == 0).all() and (posterior[[0, 4], 0] > 0).all()
    fitted = optimize(data, both, max_iter=1, tol=None).model.components[0]
    expected = counts_of([[0, 1, 0]], 2, 2, [posterior[0, 0]])
    for found, old, count in zip(fitted.parts, parts, expected):
        total = count.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(found, np.where(total > 0, count / np.maximum(total, 1e-9), old), rtol=1e-12)


def test_short_sequences_and_lengths():
    model = MarkovChain(["a", "b"], [0.25, 0.75], [[0.5, 0.5], [0.9, 0.1]], length=Poisson(2.0))
    found = model.log_density(["", "b", "ba"])
    poisson = [-2.0 + n * math.log(2.0) - math.lgamma(n + 1) for n in range(3)]
    np.testing.assert_allclose(found, np.add(poisson, [0.0, math.log(0.75), math.log(0.75 * 0.9)]), rtol=1e-13)
    fitted = optimize(["", "a", "b", ""], MarkovChain(order=3, length=Poisson())).model
    assert fitted.initial[0].tolist() == [0.5, 0.5] and fitted.length.rate == 0.5
    mixed = optimize([*["ab"] * 9, *["ababab" * 5] * 9], MarkovChain(length=Mixture(Poisson(), 2)), seed=1).model
    assert sorted(c.rate for c in mixed.length.components) == pytest.approx([2.0, 30.0], abs=0.1)


def test_fixed_and_keyed_chains():
    data = texts(40)
    p = tables(np.random.default_rng(2), 4, 1)
    fixed = chain(p, list("abcd"), fixed=True)
    result = optimize(data, Mixture([fixed, MarkovChain()]), max_iter=5)
    assert result.n_parameters == 5 * 3 + 1
    np.testing.assert_array_equal(result.model.components[0].transition, p[1])
    tied = optimize([(x, float(len(x))) for x in data],
                    Mixture([Record({"x": MarkovChain(key="k"), "n": Gaussian()}, columns={"x": ["0"], "n": ["1"]})
                             for _ in range(2)]), max_iter=3, tol=None)  # fmt: skip
    first, second = (c.fields["x"].transition for c in tied.model.components)
    np.testing.assert_array_equal(first, second)
    assert tied.n_parameters == 5 * 3 + 2 * 2 + 1


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 3)])
def test_the_prior_of_a_key_counts_once(shape):
    """Of all copies together, whatever shards hold them; without a key each chain has its own."""
    parts, data = tables(np.random.default_rng(9), 3, 2), ["ab", "cab", ""] * 3
    one = 2.0 * sum(np.log(p).sum() for p in parts)
    for key, times in (("k", 1), (None, 3)):
        components = [chain(parts, list("abc"), pseudo_count=2.0, key=key)] * 3
        model = Mixture(components, weights=[0.2, 0.3, 0.5])

        def prior(grid, model=model):
            loaded = load_data(data, model, grid)
            run = Executor(loaded.model, loaded.rows, grid, "" if shape[1] > 1 else None)
            assert run.given()
            run.publish()
            return grid.coords[0], run.log_prior()

        found = run_on_threads(*shape, prior)
        assert sum(value for row, value in found if row == 0) == pytest.approx(times * one, rel=1e-13)
    tied = Mixture([chain(parts, list("abc"), pseudo_count=5.0, key="k")] * 3, weights=[0.2, 0.3, 0.5])
    assert optimize(data, tied, max_iter=4, tol=None).status == "max_iter"


def test_a_fitted_chain_is_saved_described_and_shown(tmp_path):
    data = [[int(v) for v in rng_row] for rng_row in np.random.default_rng(4).integers(1, 4, (30, 6))]
    model = Record(path=Optional(MarkovChain(order=2, pseudo_count=0.5, length=Poisson())), x=Gaussian())
    rows = [{"path": x, "x": float(i)} for i, x in enumerate(data)]
    fitted = optimize(rows, model).model
    fitted.save(tmp_path)
    again = load(tmp_path)
    assert again.log_density(rows).tobytes() == fitted.log_density(rows).tobytes()
    assert describe(again) == describe(fitted) and again.num_parameters == fitted.num_parameters == 13 * 2 + 1 + 2
    copied = build(json.loads(json.dumps(describe(fitted))))
    np.testing.assert_allclose(copied.log_density(rows), fitted.log_density(rows), rtol=1e-12)
    lines = "\n".join(model_lines(fitted))
    chain_ = fitted.fields["path"].of
    assert "path: Markov chain of order 2 of 3 labels" in lines and "after 3, 1: " in lines and "length: " in lines
    assert f"{chain_.initial[0].max():.3f}" in lines and "... after 1 more" in lines
    assert "path: 3 categories: 1, 2, 3" in column_lines(fitted)
    sampled = again.sample(5, seed=1)
    assert set(sampled[0]) == {"path", "x"} and np.isfinite(again.log_density(sampled)).all()


def test_a_fit_goes_on_from_its_checkpoint(tmp_path):
    data, start = texts(40), [chain(tables(np.random.default_rng(k), 4, 2), list("abcd")) for k in range(2)]
    model = Mixture(start, weights=[0.4, 0.6])
    straight = optimize(data, model, max_iter=6, tol=None)
    optimize(data, model, max_iter=3, tol=None, checkpoint=tmp_path)
    resumed = optimize(data, model, max_iter=6, tol=None, checkpoint=tmp_path, resume=True)
    assert resumed.history == straight.history
    other = Mixture([start[0], chain(start[0].parts, list("abcd"))], weights=[0.4, 0.6])
    with pytest.raises(ValueError, match="parameters given"):
        optimize(data, other, max_iter=6, tol=None, checkpoint=tmp_path, resume=True)


def test_what_a_plan_says_is_what_a_fit_holds():
    """Parameters and statistics of tables, from declared costs and from the layout."""
    for order, levels in [(1, 4), (2, 4), (3, 2)]:
        cells = levels * sum(levels**k for k in range(order + 1))
        model = MarkovChain(list("abcdefgh"[:levels]), order=order)
        assert size_model_tree(model).own_param_bytes == 8 * cells
        fitted = optimize([list("abcd"[:levels])] * 3, model, max_iter=1, tol=None)
        assert len(state_of(fitted.model).theta) == cells
        assert fitted.statistics_bytes == 8 * cells
    short, long = (balance_plan(Record(p=MarkovChain(order=k)), Resources.local(1), n_data=10) for k in (1, 2))
    assert {"length of p": 100, "levels of p": 16}.items() <= short.extra["assumed"].items()
    assert short.fits and long.fits
    largest = MarkovChain([0, 1], order=29)
    assert size_model_tree(largest).own_param_bytes == 8 * (2**31 - 2)
    small = Resources.from_specs([DeviceSpec("a", memory_bytes=2**30)])
    assert not balance_plan(largest, small, n_data=10).fits and balance_plan(MarkovChain(), small, n_data=10).fits


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 2), (2, 2), (3, 2)])
def test_what_ranks_send_is_what_was_planned(shape):
    """Bytes of all axes, of texts of one length."""
    rng = np.random.default_rng(8)
    data, model = ["".join(rng.choice(list("abc"), 4)) for _ in range(203)], Mixture(MarkovChain(order=2), 5)
    bound = load_data(data, model, serial_grid()).model
    plan = plan_on(bound, Resources.local(shape[0] * shape[1]), n_data=len(data), shape=shape,
                   cut="" if shape[1] > 1 else None)  # fmt: skip
    found = run_on_threads(*shape, lambda grid: fit(data, model, grid, max_iter=3, tol=None))
    for axis, sums in in_run(plan.extra["payload"], found[0].counts.passes, found[0].n_iter).items():
        assert sum(r.payload[axis].bytes for r in found) == sums["bytes"], axis
    assert sum(r.payload["data"].bytes for r in found) > 0 or shape[0] == 1


def test_the_command_fits_lists_of_parquet(tmp_path, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = texts(60)
    table = pa.table({"word": [list(x) for x in data], "n": [float(len(x)) for x in data]})
    pq.write_table(table, tmp_path / "w.parquet", row_group_size=17)
    (tmp_path / "run.toml").write_text("""
[data]
path = "w.parquet"
[model]
type = "mixture"
components = 2
[model.component]
type = "record"
[model.component.fields]
word = { type = "markov_chain", pseudo_count = 0.5, length = { type = "poisson" } }
n = { type = "gaussian" }
[fit]
max_iter = 30
""")
    out = tmp_path / "out"
    assert main([str(tmp_path / "run.toml"), "--out", str(out), "--dry-run"]) == 0
    assert "word" in capsys.readouterr().out
    assert main([str(tmp_path / "run.toml"), "--out", str(out)]) == 0
    assert "word: Markov chain of 4 labels" in capsys.readouterr().out
    fitted = load(out)
    result = json.loads((out / "result.json").read_text())
    component = Record(word=MarkovChain(pseudo_count=0.5, length=Poisson()), n=Gaussian())
    rows = [{"word": x, "n": float(len(x))} for x in data]
    expected = optimize(rows, Mixture(component, 2), max_iter=30)
    assert result["log_likelihood"] == pytest.approx(expected.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(fitted.log_density(rows), expected.model.log_density(rows), rtol=1e-10)
    assert result["n_parameters"] == 2 * (5 * 3 + 1 + 2) + 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MarkovChain(order=0), "markov_chain: order = 0 is not a number >= 1"),
        (lambda: MarkovChain(order=1.5), "markov_chain: order = 1.5"),
        (lambda: MarkovChain(order=10**9), "markov_chain: order = 1000000000 is more than 29"),
        (lambda: MarkovChain("ab"), "markov_chain: levels = 'ab' is not a list of labels"),
        (lambda: MarkovChain(["a", "a"]), "markov_chain: levels .* are empty or not distinct"),
        (lambda: MarkovChain(initial=[1.0]), "initial and transition need levels"),
        (lambda: MarkovChain(["a", "b"], [1.0]), r"initial of shape \(1,\), not \(2,\)"),
        (lambda: MarkovChain(["a", "b"], 0.5), "initial = 0.5 is not a list of probabilities"),
        (lambda: MarkovChain(["a", "b"], [0.5, 0.6]), "initial is not a set of probabilities"),
        (lambda: MarkovChain(["a", "b"], [0.5, 0.5], [[1, 0], [0.5, 0.4]]), r"transition\[1\] is not a set of"),
        (lambda: MarkovChain(["a", "b"], [0.5, 0.5], order=2), "initial has 2 arrays|initial.0. of shape"),
        (lambda: MarkovChain(["a", "b"], [[0.5, 0.5]], order=2), "initial has 1 arrays, not 2"),
        (lambda: MarkovChain(["a", "b"], transition=[["x", 1], [0, 1]]), "transition = .* are not numbers"),
        (lambda: MarkovChain(pseudo_count=-1), "pseudo_count = -1"),
        (lambda: MarkovChain(length=3), "length = 3 is not a model"),
        (lambda: MarkovChain(["a"], fixed=True), "fixed=True needs levels, initial and transition"),
        (lambda: MarkovChain(list(range(50)), order=6), "order 6 with 50 levels has 7.9.*e.11 probabilities"),
        (lambda: build({"type": "markov_chain", "ordre": 2}), "markov_chain has no key 'ordre'; did you mean 'order'"),
        (lambda: build({"type": "markov_chain", "length": {"type": "poison"}}), "length: .*did you mean 'poisson'"),
        (lambda: optimize([["a", "b"], ["a", None]], MarkovChain()),
         "row 1 .*step 1, column '0': .* missing; a markov_chain needs all labels; a hidden_markov"),
        (lambda: optimize([["a", "b"], ["a", None]], Optional(MarkovChain())), "row 1 .*step 1"),
        (lambda: optimize(["ab", "ba"], Mixture([HiddenMarkov(Optional(Categorical()), 2), MarkovChain()])).model
         .log_density([["a", None]]), "row 0 .*step 1.*markov_chain needs all labels"),
        (lambda: optimize(["ab"], Sequence(MarkovChain())), "steps are not sequences themselves"),
        (lambda: optimize([[("a", 1.0)]], MarkovChain()), "markov_chain reads 1 column in order, but there are 2"),
        (lambda: optimize(["abcdefghijklmnopqrstuvwxyz"], MarkovChain(order=7)), "order 7 with 26 levels"),
        (lambda: MarkovChain(["a"], [1.0], [[1.0]]).sample(2), "give length"),
        (lambda: MarkovChain(["a"], length=Poisson(1.0)).sample(2), "fit the model first"),
        (lambda: optimize(["ab", "b"], Mixture([MarkovChain(["a", "b"]), MarkovChain(["b"])])), "different levels"),
        (lambda: optimize(["a", "b"], Mixture([Categorical(["a", "b"]), Categorical(["b", "c"])])),
         "column '0': its models declare different levels"),
        (lambda: optimize(["", ""], MarkovChain()), "nothing to fit"),
    ],
)  # fmt: skip
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()
