"""A Gaussian process whose M-step is heavy: planned, dealt out and counted as planned."""

from __future__ import annotations

import numpy as np

from mixle_mpi import GaussianProcess, Mixture, MultivariateGaussian, Resources
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.choose import choose
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.planning.balance import plan_shape
from mixle_mpi.planning.paths import cut_at
from mixle_mpi.planning.payload import shard_costs
from mixle_mpi.planning.profile import profile_of

N, INPUTS, VECTORS, SHARDS = 150, 64, 60, 4


def test_a_heavy_process_has_a_shard_to_itself_and_counts_what_was_planned():
    times = np.linspace(0, 1, INPUTS)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(N, INPUTS)) + rng.integers(0, 9, (N, 1))
    data[:40] = np.sin(6 * (times + rng.random((40, 1)))) + 0.1 * rng.normal(size=(40, INPUTS))
    model = Mixture([GaussianProcess(times)] + [MultivariateGaussian(INPUTS, structure="spherical")] * VECTORS)
    bound = load(data, model, serial_grid()).model
    plan = plan_shape(bound, Resources.local(SHARDS), n_data=N, shape=(1, SHARDS), cut="")
    bounds = plan.extra["bounds"]
    assert bounds[:2] == [0, 1] and len(set(bounds)) == SHARDS + 1
    assert plan.extra["seconds"]["m_step"] > 0.5 * plan.extra["seconds"]["total"]
    asked = choose(bound, N, Alone(), Resources.local(SHARDS), shape=(1, SHARDS), cut="")
    assert asked.bounds == tuple(bounds)
    alike = Mixture(MultivariateGaussian(INPUTS), 9)
    even = choose(load(data, alike, serial_grid()).model, N, Alone(), Resources.local(SHARDS), shape=(1, SHARDS))
    assert even.bounds is None

    options = {"max_iter": 2, "tol": None}

    def work(grid):
        return grid.coords[1], fit(data, model, grid, cut="", bounds=tuple(bounds), **options)

    serial = fit(data, model, serial_grid(), **options)
    found = run_on_threads(1, SHARDS, work)
    held = [round(c.maximized) for c in shard_costs(cut_at(profile_of(bound), ""), 1, bounds)]
    assert held == np.diff(bounds).tolist() and held[0] == 1
    for shard, result in found:
        counts = result.counts
        assert counts.unit_rows == counts.passes * N * held[shard]
        assert counts.maximized == result.n_iter * held[shard]
        assert counts.searched == (result.n_iter if shard == 0 else 0)
        assert (counts.searches > 0) == (shard == 0)
        assert np.abs(np.array(result.history) - serial.history).max() <= 1e-10 * abs(serial.log_likelihood)
