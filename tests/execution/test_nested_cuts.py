"""Cuts of several nodes at once: who holds what, the answer of one rank, and counted is planned."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from counting import MODELS, mismatches, table, vector
from hypothesis import given, settings
from hypothesis import strategies as st

from mixle_mpi import (
    Categorical,
    Composite,
    Exponential,
    Gaussian,
    HiddenMarkov,
    LatentDirichletAllocation,
    Mixture,
    Optional,
    Poisson,
    Record,
    Resources,
    Uniform,
    balance_plan,
)
from mixle_mpi.contract.cuts import EVERYONE, RangedCuts
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.planning.paths import cut_at, nested_path
from mixle_mpi.planning.profile import profile_of

RNG = np.random.default_rng(11)
STEPS = [RNG.normal(size=n) + 3 * (RNG.random(n) < 0.4) for n in RNG.integers(0, 12, 30)]
DOCUMENTS = [{str(w): int(c) for w, c in zip(RNG.choice(list("abcdefgh"), 3, False), RNG.integers(1, 5, 3))}
             for _ in range(24)]  # fmt: skip
WAITS = [(float(a), int(b), float(c)) for a, b, c in
         zip(RNG.normal(size=90) * 3, RNG.poisson(3, 90), RNG.exponential(size=90))]  # fmt: skip

# name -> model, rows, cuts
TREES = {
    "three deep": (Mixture(Composite(Gaussian(), Mixture(Composite(Poisson(), Exponential()), 2)), 3), WAITS,
                   ["**1", "**2", "**3"]),
    "below one component": (Mixture(Composite(Gaussian(), Mixture(Composite(Poisson(), Exponential()), 3)), 2), WAITS,
                            ["component_1/**", "component_0/factor_1/**"]),
    "states": (HiddenMarkov(Mixture(Gaussian(), 2), 3), STEPS, ["**"]),
    "few long sequences": (HiddenMarkov(Mixture(Gaussian(), 2), 4), [np.concatenate(STEPS)], ["**"]),
    "mixture of chains": (Mixture(HiddenMarkov(Mixture(Gaussian(), 2), 3, length=Poisson()), 2), STEPS, ["**1", "**"]),
    "topics": (Mixture(LatentDirichletAllocation(3), 2), DOCUMENTS, ["**"]),
    "learned alpha": (Mixture(LatentDirichletAllocation(3, learn_alpha="symmetric"), 2), DOCUMENTS, ["**"]),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 2), (1, 3), (2, 2), (1, 5), (2, 4)])
@pytest.mark.parametrize("name", TREES)
def test_the_answer_is_that_of_one_rank(name, shape):
    model, data, cuts = TREES[name]
    options = {"max_iter": 3, "tol": None, "seed": 1}
    alone = fit(data, model, serial_grid(), **options)
    size = max(abs(alone.log_likelihood), len(data))
    for cut in cuts:
        found = run_on_threads(*shape, lambda g, c=cut: fit(data, model, g, cut=c, **options))
        assert len({r.model.state.theta.tobytes() for r in found}) == 1, "all ranks have the same bytes"
        assert np.abs(np.array(found[0].history) - alone.history).max() <= 1e-12 * size, cut
        np.testing.assert_allclose(found[0].model.state.theta, alone.model.state.theta, rtol=1e-9, atol=1e-9)


COUNTED = {
    "two mixtures": (Record(x=Mixture(Gaussian(), 8), y=Mixture(Gaussian(), 8)), ["**1"]),
    "factors": (MODELS["factors"][0], ["**1", "**2"]),
    "tied below": (MODELS["tied below"][0], ["**1"]),
    "unlike components": (
        Mixture([Mixture(vector(2, "x", "y", structure="tied"), 3), vector(2, "x", "y"),
                 Mixture(vector(2, "x", "y"), 4), Record(x=Mixture(Gaussian(), 2), y=Gaussian())]), ["**1", "**2"],
    ),
    "narrow tiles": (
        Record(x=Mixture(Gaussian(), 1500), z=Mixture(Exponential(), 700),
               u=Optional(Mixture(Gaussian(), 300), estimate_missing=True)), ["**"],
    ),
    "bounds": (Mixture(Record(u=Optional(Mixture(Uniform(), 3)), x=Gaussian(), kind=Categorical()), 4), ["**"]),
}  # fmt: skip


# many tiles take long
SHAPES = {name: [(1, 3), (2, 3)] if name == "narrow tiles" else [(1, 2), (1, 3), (2, 3), (1, 5)] for name in COUNTED}


@pytest.mark.parametrize("name, shape", [(name, shape) for name in COUNTED for shape in SHAPES[name]])
def test_what_is_counted_is_what_was_planned(name, shape):
    model, cuts = COUNTED[name]
    for cut in cuts:
        found = run_on_threads(
            *shape, lambda g, c=cut: (g.coords, fit(table(), model, g, max_iter=2, tol=None, cut=c))
        )
        assert not mismatches(model, shape, cut, found), cut


def test_two_mixtures_of_8_keep_16_ranks_busy_with_one_row():
    each = np.full(8, 1 / 8)
    model = Composite(*(Mixture([Gaussian(k - 3.0, 1.0 + k) for k in range(8)], weights=each) for _ in range(2)))
    plan = balance_plan(model, Resources.local(16), n_data=1)
    assert (plan.data_parallel, plan.model_parallel, plan.workers_used) == (1, 16, 16)
    row, cut = np.array([[0.5, 2.5]]), plan.extra["cut"]
    alone = fit(row, model, serial_grid(), max_iter=3, tol=None)
    found = run_on_threads(1, 16, lambda g: fit(row, model, g, cut=cut, max_iter=3, tol=None))
    assert [r.counts.unit_rows for r in found] == [alone.counts.unit_rows // 16] * 16
    for result in found:
        np.testing.assert_allclose(result.history, alone.history, rtol=1e-12)
        np.testing.assert_allclose(result.model.state.theta, alone.model.state.theta, rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), shards=st.integers(1, 9), data=st.data())
def test_shards_agree_on_who_holds_and_who_answers(sizes, shards, data):
    borders = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    inner = sorted(data.draw(st.lists(st.integers(0, borders[-1]), min_size=shards - 1, max_size=shards - 1)))
    bounds = (0, *inner, borders[-1])
    cuts = [RangedCuts(shards, k, bounds) for k in range(shards)]
    answered = np.zeros(len(sizes), int)
    for own, (a, b) in zip(cuts, pairwise(bounds)):
        low, first, high = own.units_of(own.groups.shard, borders)
        places = [u for u in range(len(sizes)) if a < b and borders[u] < b and a < borders[u + 1]]
        assert list(range(low, high)) == places
        answered[first:high] += 1
        group = own.group(borders, own.groups.ranks[EVERYONE], np.zeros(1, np.int64))
        assert group.answered[group.place + 1] - group.answered[group.place] == high - first
        assert group.answered == cuts[0].group(borders, own.groups.ranks[EVERYONE], np.zeros(1, np.int64)).answered
    assert (answered == 1).all(), "each unit has one shard that answers for it"


def test_paths_of_nested_cuts():
    assert [nested_path(p) for p in ("", "a/b", "**", "a/**", "a/b/**2", "**9", "a/**x")] == [
        ("", 0), ("a/b", 0), ("", 4), ("a", 4), ("a/b", 2), ("**9", 0), ("a/**x", 0)]  # fmt: skip
    profile = profile_of(Record(x=Mixture(Gaussian(), 3), y=Gaussian(), z=Mixture(Mixture(Gaussian(), 2), 2)))
    assert [(n.path, list(n.borders)) for n in cut_at(profile, "**1").nodes] == [
        ("", [0, 3, 4, 6]), ("x", [0, 1, 2, 3]), ("z", [4, 5, 6])]  # fmt: skip
    assert [(n.path, list(n.borders)) for n in cut_at(profile, "**").nodes] == [
        ("", [0, 3, 4, 8]), ("x", [0, 1, 2, 3]), ("z", [4, 6, 8]), ("z/component_0", [4, 5, 6]),
        ("z/component_1", [6, 7, 8])]  # fmt: skip
    assert cut_at(profile, "**").path == "**2", "named after the deepest that there is"
    for path in ("x/**", "y/**", "w/**"):
        with pytest.raises(ModelError, match=path.replace("*", r"\*")):
            cut_at(profile, path)


def test_nodes_of_one_key_are_not_cut_apart():
    tied = Mixture(Gaussian(), 4, key="one")
    profile = profile_of(Record(x=tied, y=tied, z=Mixture(Gaussian(), 3)))
    assert [n.path for n in cut_at(profile, "**").nodes] == ["", "z"]
