"""Backend "mp": processes that meet in shared memory, and how they end."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from mixle_mpi import (
    Composite,
    DataError,
    Gaussian,
    HiddenMarkov,
    Mixture,
    ModelError,
    ModelParallelEstimator,
    Optional,
    optimize,
)
from mixle_mpi.execution.backends.mp import count_of
from mixle_mpi.execution.processes import WorkerLost, run_on_processes

pytestmark = pytest.mark.launched
RNG = np.random.default_rng(3)
DATA = RNG.normal(size=(301, 2)) + 4.0 * RNG.integers(0, 3, (301, 1))
MODEL = Mixture(Composite(Gaussian(), Gaussian()), 3)


def segments() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("psm_")}


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = segments()
    yield
    assert multiprocessing.active_children() == []
    assert segments() <= before


def collectives(world, job, tell):
    """Every collective of a group, with arrays that go in several rounds, beside what is expected of it."""
    big, size, rank = job, world.size, world.rank
    found = {}
    array = big * (rank + 1)
    world.allreduce(array)
    found["allreduce"] = np.array_equal(array, big * sum(range(1, size + 1)))
    low = np.array([rank, -rank])
    world.allreduce(low, "min")
    found["min"] = low.tolist() == [0, 1 - size]
    counts = [len(big) // size + (k < len(big) % size) for k in range(size)]
    start = sum(counts[:rank])
    part = world.reduce_scatter(big * (rank + 1), counts)
    found["reduce_scatter"] = np.array_equal(part, (big * sum(range(1, size + 1)))[start : start + counts[rank]])
    own = big[start : start + counts[rank]]
    found["allgather_parts"] = np.array_equal(world.allgather_parts(own.copy(), counts), big)
    found["allgather_array"] = np.array_equal(world.allgather_array(np.array([rank, 7])), [[k, 7] for k in range(size)])
    found["allgather"] = world.allgather({"rank": rank, "text": "x" * (1 << 19) * rank}) == [
        {"rank": k, "text": "x" * (1 << 19) * k} for k in range(size)
    ]
    copy = big.copy() if rank == size - 1 else np.zeros_like(big)
    world.bcast(copy, size - 1)
    found["bcast"] = np.array_equal(copy, big)
    got = world.alltoall([np.full(100 * k + rank, 10 * rank + k) for k in range(size)])
    found["alltoall"] = all(np.array_equal(g, np.full(100 * rank + k, 10 * k + rank)) for k, g in enumerate(got))
    came = world.exchange(big * (rank + 1), counts, [counts[rank]] * size, size * len(big))
    found["exchange"] = np.array_equal(came, np.concatenate([own * (k + 1) for k in range(size)]))
    for devices in ((2,), (0,)), ((1, 2),):  # ranks that were idle come back
        grid = world.arranged(devices)
        if grid is not None:
            total = np.array([1.0])
            for axis in grid:
                axis.allreduce(total)
            found[str(devices)] = total[0] == 2.0 * len(devices) * len(devices[0])
        found["arrived"] = world.arrive(60.0)
    world.meet()
    found["readonly"] = not big.flags.writeable
    return world.allgather(found)


def test_every_collective_of_processes_gives_what_it_should():
    everyone = run_on_processes(3, collectives, np.arange(100_000) / 8.0)
    assert [name for found in everyone for name, right in found.items() if not right] == []
    assert len(everyone) == 3 and len(everyone[2]) == 13


def test_a_refusal_is_raised_here_with_its_type_and_message(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,y\n1.0,2.0\n3.0,oops\n")
    messages = []
    for backend in ({}, {"backend": "mp", "workers": 2}):
        with pytest.raises(DataError) as caught:
            optimize(path, MODEL, **backend)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and "oops" in messages[0]


def test_a_process_that_is_killed_ends_the_fit_and_is_named():
    killed = []

    def callback(iteration):
        if iteration.n_iter == 2:
            (process,) = [p for p in multiprocessing.active_children() if p.name.endswith("rank 1")]
            os.kill(process.pid, signal.SIGKILL)
            killed.append(time.monotonic())

    with pytest.raises(WorkerLost, match=r"rank 1 of 2 processes .* signal 9 \(SIGKILL\)"):
        optimize(DATA, MODEL, backend="mp", workers=2, grid="2x1", tol=None, max_iter=10**7, callback=callback)
    assert time.monotonic() - killed[0] < 5.0


def test_a_process_that_the_plan_has_no_use_for_waits():
    found = optimize([3.5], Gaussian(min_variance=1.0), backend="mp", workers=2)
    assert found.grid == (1, 1) and found.plan.workers_used == 1 and found.model.mean == 3.5
    with pytest.raises(DataError, match="nothing to fit"):
        optimize([None], Optional(Gaussian()), backend="mp", workers=2)


@pytest.fixture
def interruptible():
    """What is started in the background may be told to ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_the_processes(interruptible):
    def callback(iteration):
        if iteration.n_iter == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        optimize(DATA, MODEL, backend="mp", workers=1, tol=None, max_iter=10**7, callback=callback)


def test_a_checkpoint_is_gone_on_from(tmp_path):
    expected = optimize(DATA, MODEL, max_iter=6, tol=None)
    optimize(DATA, MODEL, max_iter=3, tol=None, checkpoint=tmp_path)
    found = optimize(DATA, MODEL, backend="mp", grid=(1, 1), max_iter=6, tol=None, checkpoint=tmp_path, resume=True)
    assert found.n_iter == 6 and np.allclose(found.history, expected.history, rtol=1e-13)


WITHOUT_GUARD = """
import numpy as np
from mixle_mpi import Gaussian, optimize
optimize(np.arange(9.0), Gaussian(), backend="mp", workers=2)
"""
WITH_GUARD = """
import numpy as np
from mixle_mpi import Gaussian, HiddenMarkov, Mixture, optimize
if __name__ == "__main__":
    seen = []
    x = [np.arange(5.0) + k for k in range(4)]
    result = optimize(x, HiddenMarkov(Gaussian(), 2), backend="mp", workers=2, grid="1x2", callback=seen.append)
    print(result.grid, len(seen) == len(result.history), result.plan is not None, result.seconds["score"] > 0)
"""


def test_a_script_without_a_guard_is_told_so_and_one_with_it_leaves_no_warnings(python, tmp_path):
    Path(tmp_path / "without.py").write_text(WITHOUT_GUARD)
    run = python("without.py", cwd=tmp_path)
    assert run.code == 1 and "ModelError" in run.err and 'if __name__ == "__main__"' in run.err
    assert run.err.count("Traceback") == 1
    Path(tmp_path / "guarded.py").write_text(WITH_GUARD)
    run = python("-W", "error", "guarded.py", cwd=tmp_path)
    assert (run.code, run.out, run.err) == (0, "(1, 2) True True True\n", "")


def test_fit_runs_on_processes(python, tmp_path):
    words = ["-m", "mixle_mpi.fit", "--demo", "--backend", "mp", "--out", tmp_path / "out"]
    run = python(*words, "--workers", 2, "--grid", "2x1", "--every", 5)
    assert run.code == 0, run.err
    assert "2 processes without MPI" in run.out and "grid 2 x 1" in run.out
    assert "converged after 15 iterations: log likelihood -6225.688768" in run.out
    run = python(*words, "--workers", 3, "--grid", "2x1", "--overwrite")
    assert run.code == 2 and run.err == "mixle_mpi.fit: error: grid: 2 x 1 = 2 processes, but workers = 3\n"


def test_how_many_processes():
    cpus = len(os.sched_getaffinity(0))
    assert count_of(None, "auto", None) == cpus and count_of(3, "auto", None) == 3 and count_of(None, "2x3", None) == 6
    assert count_of(5, "auto", 2) == 4 and count_of(None, "auto", cpus + 1) == cpus + 1
    for workers, grid, shards, says in [
        (0, "auto", None, "workers = 0"), (True, "auto", None, "workers = True"), (2, "auto", 3, "num_workers = 3"),
        (4, "2x3", None, "2 x 3 = 6 processes, but workers = 4"),
    ]:  # fmt: skip
        with pytest.raises(ModelError, match=says):
            count_of(workers, grid, shards)


@pytest.mark.parametrize("options, says", [
    ({"backend": "mp", "rows": "local"}, "rows = \"local\""),
    ({"backend": "local", "workers": 2}, "workers = 2"),
    ({"backend": "mpi", "workers": 2}, "workers = 2"),
    ({"backend": "pm"}, "choose one of local, mpi, mp, spark"),
    ({"backend": "mp", "resume": True}, "checkpoint"),
    ({"backend": "mp", "grid": (2, 1), "tune": True}, "tune chooses among grids"),
])  # fmt: skip
def test_options_that_a_backend_cannot_use_are_refused(options, says):
    with pytest.raises(ModelError, match=says):
        optimize(DATA, MODEL, **options)


def test_a_model_parallel_estimator_runs_on_processes():
    x = [RNG.normal(size=n) + 3.0 * (k % 2) for k, n in enumerate([5, 0, 17, 3])]
    model = HiddenMarkov(Gaussian(), 3)
    expected = optimize(x, model, max_iter=5, tol=None)
    with pytest.warns(UserWarning, match="not converged after 5 iterations"):  # of rank 0
        found = optimize(x, ModelParallelEstimator(model, 2), backend="mp", workers=3, max_iter=5, tol=0.0)
    assert found.grid == (1, 2) and found.plan.model_parallel == 2
    assert np.abs(np.array(found.history) - expected.history).max() <= 1e-12 * max(abs(expected.log_likelihood), 25)
