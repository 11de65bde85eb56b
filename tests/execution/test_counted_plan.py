"""Counted is planned: what ranks send, and the rows, units and shapes that kernels see, exactly, on threads; with even
borders, and with those for devices of unequal speed."""

from __future__ import annotations

import pytest
from counting import GRIDS, MODELS, N, mismatches, table

from mixle_mpi import DeviceSpec, Resources
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.choose import asked
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.em import fit, fit_loaded
from mixle_mpi.execution.load import deal, read
from mixle_mpi.execution.threads import run_on_threads


@pytest.mark.parametrize("shape", GRIDS)
@pytest.mark.parametrize("name", MODELS)
def test_what_is_counted_is_what_was_planned(name, shape):
    model, cuts = MODELS[name]
    for cut in cuts if shape[1] > 1 else [None]:
        found = run_on_threads(
            *shape, lambda g, c=cut: (g.coords, fit(table(), model, g, max_iter=2, tol=None, cut=c))
        )
        assert not mismatches(model, shape, cut, found), cut


SPEEDS = 4.0, 1.0, 2.5, 1.0, 0.5, 1.0


@pytest.mark.parametrize("shape", [(3, 1), (1, 3), (2, 2), (3, 2)])
@pytest.mark.parametrize("name", ["scalars", "full", "tied below", "factors", "families"])
def test_unequal_devices_are_counted_as_planned(name, shape):
    """Wide shards and narrow ones, of rows and of units."""
    model, cuts = MODELS[name]
    cut, data = cuts[-1] if shape[1] > 1 else None, table()
    devices = [DeviceSpec(f"r{k}", throughput=t) for k, t in enumerate(SPEEDS[: shape[0] * shape[1]])]
    choice = asked(read(data, model, Alone()).model, N, Resources.from_specs(devices), shape, cut)
    assert choice.row_bounds is not None or choice.bounds is not None

    def work(grid):
        coords = [divmod(rank, shape[1]) for rank in range(grid.world.size)]
        loaded = deal(read(data, model, grid.world), grid.world, coords, shape[0], choice.row_bounds)
        clock = Clock()
        clock.watch(grid)
        return grid.coords, fit_loaded(loaded, model, grid, clock, cut=cut, bounds=choice.bounds, max_iter=2, tol=None)

    assert not mismatches(model, shape, cut, run_on_threads(*shape, work), choice.plan)
