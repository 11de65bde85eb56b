"""Compiling and loading kernels: timed apart, rehearsed before the first pass, from a cache that may be read-only."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from workload import rows, trees

from mixle_mpi import Gaussian, LatentDirichletAllocation, Mixture, MultivariateGaussian, StudentT
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.execution.shard import cut_paths
from mixle_mpi.execution.warm import rehearse, small
from mixle_mpi.kernels.compiling import compile_seconds, kernels_compiled, working_time


@pytest.mark.timed
def test_compiling_is_timed_and_the_other_clock_stands_still():
    from numba import njit

    @njit
    def twice(x):
        return x + x

    before, made, worked, began = compile_seconds(), kernels_compiled(), working_time(), time.perf_counter()
    assert twice(2.0) == 4.0
    wall, spent, worked = time.perf_counter() - began, compile_seconds() - before, working_time() - worked
    assert kernels_compiled() == made + 1
    assert 0.5 * wall < spent < wall and worked == pytest.approx(wall - spent, abs=0.01)
    twice(3.0)
    assert compile_seconds() - before == spent


@pytest.mark.timed
def test_phases_add_up_to_the_wall_time_with_a_kernel_compiled_in_the_middle():
    from numba import njit

    @njit
    def thrice(x):
        return x + x + x

    clock = Clock()
    thrice(1.0)
    time.sleep(0.02)
    clock.lap("score")
    time.sleep(0.01)
    seconds = clock.seconds()
    assert sum(seconds.values()) == pytest.approx(clock.total(), rel=0.01)
    assert 0.02 <= seconds["score"] < 0.05 and seconds["compile"] > 0.02 and seconds["other"] >= 0.01


CUTS = [(name, n) for name, (model, *_) in trees().items() for n in (1, 2) if n == 1 or cut_paths(model)]


@pytest.mark.parametrize("name, model_shards", CUTS)
def test_a_rehearsal_leaves_nothing_to_compile(name, model_shards, python):
    """In a process of its own: after the rehearsal of the model, whole or cut, the fit loads and compiles no kernel."""
    script = f"""
import sys, threading, warnings
sys.path.insert(0, {str(__file__.rsplit("/", 1)[0])!r})
warnings.simplefilter("ignore")
from workload import rows, trees
from mixle_mpi.execution import em, warm
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.threads import ThreadAxis, run_on_threads
from mixle_mpi.kernels.compiling import compile_seconds
ThreadAxis.node = lambda axis: axis  # one leads, and all go on together
kept, after = em.warm, threading.local()
def warm_and_mark(executor):
    kept(executor)
    after.seconds = compile_seconds()
em.warm = warm_and_mark
def work(grid):
    fit(rows(), trees()[{name!r}][0], grid, max_iter=6, tol=None)
    return compile_seconds() - after.seconds
print(max(run_on_threads(1, {model_shards}, work)))
"""
    run = python("-c", script, timeout=120)
    assert run.code == 0, run.err
    assert float(run.out) < 1e-3


def test_every_form_is_rehearsed_for_the_other_ranks():
    """With it, members that need the residual form meet compiled kernels."""
    from mixle_mpi.kernels import gaussian

    for model, kernel in [
        (Gaussian(), gaussian.diagonal_moments),
        (MultivariateGaussian(2), gaussian.full_moments),
    ]:
        x = np.random.default_rng(0).normal(size=(40, 2))[:, : model.width or 2]
        loaded = load(x, Mixture(model, 3), serial_grid())
        rehearse(Executor(loaded.model, loaded.rows, serial_grid(), None), every_form=True)
        signatures = list(kernel.signatures)
        assert signatures
        fit(x + 1e9, Mixture(model, 3), serial_grid(), max_iter=1, tol=None)
        far = np.concatenate([x, x + 1e7])
        fit(far, Mixture(model, 2), serial_grid(), max_iter=3, tol=None)
        assert list(kernel.signatures) == signatures


def test_the_rehearsed_tree_is_small():
    model = small(Mixture([Gaussian(), StudentT(), Gaussian(), Mixture(Gaussian(), 900)]))
    assert [c.type_name() for c in model.components] == ["gaussian", "student_t", "mixture"]
    assert model.components[2].num_components == 2 and model.weights is None


def test_a_rehearsal_changes_nothing():
    data, model = rows(), trees()["deep"][0]
    loaded = load(data, model, serial_grid())
    kept = {key: value.copy() for key, value in loaded.rows.arrays.items() if isinstance(value, np.ndarray)}
    rehearse(Executor(loaded.model, loaded.rows, serial_grid(), None), every_form=True)
    for key, value in kept.items():
        np.testing.assert_array_equal(loaded.rows.arrays[key], value)


def test_rehearsal_holds_two_topics_only():
    counts = csr_matrix(np.ones((4, 20_000)))
    model = LatentDirichletAllocation(100, 20_000, topic_prior=0.1)
    grid = serial_grid()
    found = load(counts, model, grid)
    executor = Executor(found.model, found.rows, grid, None)
    assert small(found.model).num_topics == 2
    rehearse(executor, every_form=False)  # kernels are there
    tracemalloc.start()
    try:
        rehearse(executor, every_form=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < executor.theta.nbytes / 2
