"""What is sent and what kernels see equals what follows from the layout and the grid."""

from __future__ import annotations

import numpy as np
import pytest
from workload import rows, trees

from mixle_mpi import Gaussian, Laplace, Mixture, Poisson, Record
from mixle_mpi.contract.blocks import shard_rows, unit_range
from mixle_mpi.contract.family import Family
from mixle_mpi.execution.axis import Alone, Traffic
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.execution.shard import compile_tree, cuts_of, layout_of
from mixle_mpi.execution.threads import ThreadAxis, run_on_threads
from mixle_mpi.execution.tiles import TILES_IN_FLIGHT, tile_rows, tile_widths

N, ITERATIONS = 203, 2
PASSES = ITERATIONS + 1
HEADER = 6 * 8


def run(shape, model, cut=None, data=None):
    data = rows(N) if data is None else data
    return run_on_threads(*shape, lambda g: (g.coords, fit(data, model, g, max_iter=ITERATIONS, tol=None, cut=cut)))


@pytest.mark.parametrize("shape", [(2, 1), (3, 1), (1, 2), (2, 2), (1, 5), (3, 2)])
def test_a_cut_mixture_sends_statistics_headers_and_pairs(shape):
    """Data axis: statistics a pass, own parameters an M-step; world: the header; model axis: (maximum, sum) a row."""
    model = Mixture(Gaussian(), 5)
    data = np.random.default_rng(0).normal(size=N)
    for (d, m), result in run(shape, model, data=data):
        start, stop = shard_rows(d, shape[0], N)
        sent = result.payload
        wide, deep = shape[0] > 1, shape[1] > 1
        held = np.diff(unit_range(m, shape[1], 5))[0]
        own = np.diff(unit_range(d, shape[0], int(held)))[0]
        assert result.statistics_bytes == 8 * (held * 4 + 1)
        assert result.counts.maximized == ITERATIONS * own
        gathered = ITERATIONS * own * 3 * 8  # mean, variance, weight
        assert sent["data"] == Traffic((2 * PASSES + ITERATIONS) * wide,
                                       wide * (PASSES * result.statistics_bytes + gathered))  # fmt: skip
        assert sent["world"] == Traffic(PASSES, PASSES * HEADER)
        pairs = PASSES * 2 * 1 * (stop - start) * 8
        assert sent["model"].bytes == deep * pairs
        assert sent["model"].objects == 0
        assert result.counts.passes == PASSES and result.counts.rows == PASSES * (stop - start)


def test_no_shard_sends_more_than_its_part():
    """With components cut in two, each shard holds and sums the statistics of its own components."""
    model = Mixture(Gaussian(), 6)
    data = np.random.default_rng(1).normal(size=N)
    whole = fit(data, model, serial_grid(), max_iter=1, tol=None).statistics_bytes
    parts = {m: result.statistics_bytes for (_d, m), result in run((2, 2), model, data=data)}
    total = 8  # the total weight, which both hold
    assert sum(parts.values()) == whole + total


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 2), (1, 3)])
@pytest.mark.parametrize("name", trees())
def test_densities_are_evaluated_once_each(name, shape):
    """Added up over the ranks: rows x parameter sets of all leaves, and again what several shards hold."""
    model, cuts = trees()[name]
    if shape[1] > 1 and name == "atomic":
        return
    for cut in cuts if shape[1] > 1 else [None]:
        found = run(shape, model, cut)
        passes = found[0][1].counts.passes  # more than one an iteration where a family searches
        assert passes >= PASSES
        bank = None
        expected = 0
        for (d, m), _ in found:

            def held(grid, cut=cut, model=model):
                loaded = load(rows(N), model, grid)
                return Executor(loaded.model, loaded.rows, grid, cut if cut is not None else chosen(model, grid)).bank

            if bank is None:
                bank = run_on_threads(*shape, held)
            start, stop = shard_rows(d, shape[0], N)
            leaves = sum(b.size for b in bank[d * shape[1] + m].walk() if isinstance(b.node, Family))
            expected += passes * (stop - start) * leaves
        assert sum(result.counts.unit_rows for _, result in found) == expected
        assert sum(result.counts.rows for _, result in found) == passes * N * shape[1]
        if shape[1] == 1:
            loaded = load(rows(N), model, serial_grid())
            whole = compile_tree(loaded.model, None, True)
            leaves = sum(b.size for b in whole.walk() if isinstance(b.node, Family))
            assert expected == passes * N * leaves
            assert found[0][1].statistics_bytes == layout_of(whole).empty_stats().nbytes


def chosen(model, grid):
    from mixle_mpi.execution.em import chosen_cut

    return chosen_cut(model, grid.shape, None)


def test_tiles_and_their_messages_are_counted():
    """80000 rows in tiles of at most tile_rows, each with a message on the model axis."""
    n, model = 80000, Mixture(Gaussian(), 64)
    data = np.random.default_rng(2).normal(size=n)
    found = run((1, 2), model, data=data)
    bound = load(data, model, serial_grid()).model
    size = tile_rows(tile_widths(compile_tree(bound, cuts_of(bound, "", 0, 2), False), Alone())[0])
    tiles = -(-n // size)
    assert tiles > 2 * TILES_IN_FLIGHT
    for _, result in found:
        assert (result.counts.tiles, result.counts.tile_rows) == (PASSES * tiles, size)
        assert result.payload["model"].bytes == PASSES * 2 * n * 8
        assert result.payload["model"].messages == PASSES * tiles
        assert result.counts.unit_rows == PASSES * n * 32


def test_a_search_is_counted_too():
    """The Laplace median asks for more passes: a flag over the grid before each, the histograms over the data axis."""
    data = np.random.default_rng(3).normal(size=N)
    for _, result in run((2, 1), Laplace(), data=data):
        assert result.counts.passes > PASSES
        extra = result.counts.passes - PASSES
        assert result.payload["world"].messages == PASSES + ITERATIONS + extra
        assert result.payload["data"].messages >= PASSES + extra


def test_one_process_sends_nothing():
    result = fit(rows(N), Mixture(Record(b=Poisson()), 2), serial_grid(), max_iter=2, tol=None)
    assert all(sent == Traffic() for sent in result.payload.values())
    assert result.counts.rows == 3 * N


def test_axes_count_what_is_given_to_them():
    def work(grid):
        axis = grid.world
        assert isinstance(axis, ThreadAxis)
        axis.allreduce(np.zeros(5))
        axis.allgather_array(np.zeros((2, 3)))
        axis.bcast(np.zeros(4, np.int32))
        axis.alltoall([np.zeros(1), np.zeros(2)])
        axis.allgather("text")
        axis.barrier()
        return axis.traffic

    assert run_on_threads(2, 1, work) == [Traffic(4, 5 * 8 + 6 * 8 + 16 + 24, 1)] * 2
    alone = Alone()
    alone.allreduce(np.zeros(5))
    alone.allgather(1)
    assert alone.traffic == Traffic()
