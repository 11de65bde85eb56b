"""The shared M-step: every row has one owner, sums reach it, and what it found reaches everybody."""

from __future__ import annotations

import numpy as np
import pytest
from workload import difference

from mixle_mpi import Gaussian, Laplace, Mixture, MultivariateGaussian, Record, Uniform
from mixle_mpi.contract.blocks import unit_range
from mixle_mpi.contract.cuts import ALONE, EVERYONE, Groups, Holders
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Layout, Matrix
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.owners import Owners, shared_slices
from mixle_mpi.execution.threads import run_on_threads

SUM, MIN, MAX = Combine.SUM, Combine.MIN, Combine.MAX


def matrix(name, n, params, stats, alone=None, **options):
    held = np.full(n, ALONE) if alone is None else np.where(alone, ALONE, EVERYONE)
    return Matrix(name, np.arange(n), n, Holders(held, Groups(2)), params, stats, **options)


LAYOUT = Layout([
    matrix("few", 3, {"a": (2,)}, {"w": (SUM, ()), "low": (MIN, ())}),
    matrix("packed", 5, {"cov": (3, 3)}, {"w": (SUM, (4,)), "high": (MAX, ())}, packed=6),
    matrix("none", 0, {"a": ()}, {"w": (SUM, ())}),
    matrix("all", 2, {}, {"w": (SUM, ())}, everywhere=True),
    matrix("tied", 2, {"t": ()}, {"w": (SUM, ())}),
    matrix("pooled", 1, {"p": ()}, {"s": (SUM, (3,))}, pooled=True),
])  # fmt: skip


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_sums_reach_the_owner_of_each_row_and_all_of_what_all_need(shards):
    def work(grid):
        owners = Owners(LAYOUT, {"tied"}, grid.data)
        stats = np.random.default_rng(grid.data.rank).normal(size=LAYOUT.num_stats)
        mine = stats.copy()
        owners.reduce(stats)
        return owners.own, mine, stats

    found = run_on_threads(shards, 1, work)
    everyone = [LAYOUT.stat_views(local) for _, local, _ in found]
    taken = {m.name: [] for m in LAYOUT.matrices}
    for own, _, stats in found:
        views = LAYOUT.stat_views(stats)
        for m in LAYOUT.matrices:
            taken[m.name] += list(own[m.name])
            for name, (how, _) in m.stats.items():
                if m.pooled:
                    continue
                reduced = {SUM: np.sum, MIN: np.min, MAX: np.max}[how]([v[m.name][name] for v in everyone], axis=0)
                rows = own[m.name]
                assert np.allclose(views[m.name][name][rows], reduced[rows], rtol=1e-14)
    for m in LAYOUT.matrices:
        copies = shards if m.name in ("all", "tied", "pooled") else 1
        assert sorted(taken[m.name]) == sorted(list(range(len(m.rows))) * copies)


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_what_owners_found_reaches_all(shards):
    """Packed rows in place of the parameters, which `complete` brings when they are asked for."""
    truth = np.random.default_rng(0).normal(size=LAYOUT.num_params)
    packed_truth = np.random.default_rng(1).normal(size=LAYOUT.num_packed)

    def work(grid):
        owners = Owners(LAYOUT, {"tied"}, grid.data)
        theta, packed = np.full(LAYOUT.num_params, np.nan), np.full(LAYOUT.num_packed, np.nan)
        for views, of in ((LAYOUT.param_views, (theta, truth)),):
            for name, fields in views(of[0]).items():
                for field, view in fields.items():
                    view[owners.own[name]] = views(of[1])[name][field][owners.own[name]]
        for name, view in LAYOUT.packed_views(packed).items():
            view[owners.own[name]] = LAYOUT.packed_views(packed_truth)[name][owners.own[name]]
        owners.gather(theta, packed)
        hidden = np.isnan(theta).sum()
        owners.complete(theta)
        return owners.own["packed"], hidden, theta, packed

    for own, hidden, theta, packed in run_on_threads(shards, 1, work):
        assert hidden == (5 - len(own)) * 9
        assert np.array_equal(theta, truth) and np.array_equal(packed, packed_truth)


def test_the_last_data_shard_has_the_most_rows_of_every_matrix():
    """What plans count as the busiest: the sum of the roundings up is somebody's."""
    for n in range(40):
        for shards in range(1, 12):
            parts = [b - a for a, b in (unit_range(d, shards, n) for d in range(shards))]
            assert parts[-1] == max(parts) == -(-n // shards) and sum(parts) == n


def test_alone_every_row_is_own_and_nothing_is_sent():
    owners = Owners(LAYOUT, (), Alone())
    assert {name: len(rows) for name, rows in owners.own.items()} == {m.name: len(m.rows) for m in LAYOUT.matrices}
    stats = np.arange(float(LAYOUT.num_stats))
    owners.reduce(stats)
    assert np.array_equal(stats, np.arange(float(LAYOUT.num_stats)))


def test_rows_that_several_model_shards_hold_are_sent_once_in_one_form():
    layout = Layout([
        matrix("a", 3, {"a": (2,)}, {}, [True, True, True]),
        matrix("b", 3, {"p": (3,)}, {}, [False, True, False]),
        matrix("c", 2, {"q": (4,)}, {}, [False, False], packed=5),
    ])  # fmt: skip
    assert shared_slices(layout, [EVERYONE]) == [([slice(6, 9), slice(12, 15)], [slice(0, 10)])]


@pytest.mark.parametrize("structure", ["full", "tied"])
@pytest.mark.parametrize("shape", [(4, 1), (2, 2), (3, 2)])
def test_a_covariance_stays_with_its_owner_until_it_is_saved(shape, structure):
    """Members per rank a share of all; what is sent is not above an Allreduce; parameters as in serial."""
    d, k, n, iterations = 5, 8, 400, 6
    data = np.random.default_rng(0).normal(size=(n, d)) + np.arange(n)[:, None] % 3
    model = Mixture(MultivariateGaussian(structure=structure), k)
    serial = fit(data, model, serial_grid(), max_iter=iterations, tol=None)
    found = run_on_threads(*shape, lambda g: (g.coords, fit(data, model, g, max_iter=iterations, tol=None)))
    busiest = -(-k // shape[1])
    busiest = -(-busiest // shape[0])
    assert max(r.counts.maximized for _, r in found) == iterations * busiest
    assert sum(r.counts.maximized for _, r in found) == iterations * k
    for (_, _), result in found:
        levels, parameters = difference(result, serial)
        assert levels < 1e-12 and parameters < 1e-8
    row = 1 + d + d * (d + 1) // 2
    pooled = (1 + d * (d + 1) // 2) * (structure == "tied")
    sent = sum(r.payload["data"].bytes for _, r in found)
    passes, shards = iterations + 1, shape[0]
    dealt = k * (row + 1)  # statistics, and the count; parameters are as many, packed, and the weight
    assert sent == 8 * (passes * shards * (dealt + shape[1] * (1 + pooled)) + iterations * k * (row + 1))
    moved = dealt + k * (row + 1)  # times (shards - 1) / shards; an Allreduce moves 2 dealt
    assert moved <= 2 * dealt


@pytest.mark.parametrize("model", [
    Mixture(Record(a=Uniform(), b=Gaussian()), 3),
    Mixture(Laplace(), 3),
    Mixture(Record(a=Gaussian(key="one"), b=Gaussian()), 4),
    MultivariateGaussian(2, key="alone"),
    Gaussian(0.0, 1.0, fixed=True),
], ids=["bounds", "search", "keyed", "keyed root", "fixed"])  # fmt: skip
def test_what_cannot_be_shared_is_maximised_everywhere(model):
    rng = np.random.default_rng(3)
    data = {"a": rng.normal(size=211), "b": rng.exponential(size=211)}
    data = data if any(isinstance(n, Record) for n in model.walk()) else rng.normal(size=(211, model.width or 1))
    serial = fit(data, model, serial_grid(), max_iter=5, tol=None)
    for result in run_on_threads(3, 1, lambda g: fit(data, model, g, max_iter=5, tol=None)):
        levels, parameters = difference(result, serial)
        assert levels < 1e-12 and parameters < 1e-8
