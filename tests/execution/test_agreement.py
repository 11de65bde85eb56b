"""No rank decides alone (P04), and the number of ranks changes nothing (P05)."""

from __future__ import annotations

import hashlib
import threading

import numpy as np
import pytest
from workload import rows, trees

from mixle_mpi import Gaussian, Laplace, Mixture
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.grid import Grid, serial_grid
from mixle_mpi.execution.threads import ThreadAxis, run_on_threads

DATA = rows(120)
COLLECTIVES = ("allgather", "allreduce", "allgather_array", "bcast", "alltoall", "barrier")


class Recording:
    """An axis that writes down each call: name, dtype, shape and options of what every rank must do alike."""

    def __init__(self, axis: ThreadAxis, name: str, log: list):
        self._axis, self._name, self._log = axis, name, log

    def __getattr__(self, name):
        value = getattr(self._axis, name)
        if name not in COLLECTIVES:
            return value

        def call(*arguments, **options):
            what = [(a.dtype.str, a.shape) if isinstance(a, np.ndarray) else None for a in arguments[:1]]
            self._log.append((self._name, name, *what, *(a for a in arguments[1:] if isinstance(a, str))))
            return value(*arguments, **options)

        return call


def sequences(shape, work) -> list[list]:
    """The calls of each rank of a grid on the world, the data and the model axis."""

    def record(grid):
        log: list = []
        work(Grid(*(Recording(getattr(grid, a), a, log) for a in ("world", "data", "model"))))
        return log

    return run_on_threads(*shape, record)


def of(log, *axes):
    return [call for call in log if call[0] in axes]


def noisy(monkeypatch, which, size=1e-9):
    """One rank finds another log likelihood: each pass a different amount, in either direction."""
    original = Executor.e_step
    rng, lock = np.random.default_rng(0), threading.Lock()

    def e_step(self):
        found = original(self)
        if self.grid.world.rank == which:
            with lock:
                found.log_likelihood += size * rng.standard_normal()
        return found

    monkeypatch.setattr(Executor, "e_step", e_step)


@pytest.mark.parametrize("which, tol", [(0, 1e-11), (1, 1e-11), (3, 0.0)])
def test_noise_on_one_rank_never_desynchronises_p04(monkeypatch, which, tol):
    """The tolerance is as small as the noise, so that a rank which judged alone would stop at another iteration."""
    noisy(monkeypatch, which)
    x = [{"x": row["l"]} for row in DATA]
    results = []

    def work(grid):
        results.append(fit(x, Mixture(Laplace(), 3), grid, max_iter=30, tol=tol, starts=2))

    for shape in ((4, 1), (2, 2), (1, 4)):
        results.clear()
        logs = sequences(shape, work)
        assert len({tuple(r.history) for r in results}) == 1 and len({r.status for r in results}) == 1
        assert len({r.model.state.theta.tobytes() for r in results}) == 1
        assert len(logs[0]) > 40
        for rank, log in enumerate(logs):
            d, m = divmod(rank, shape[1])
            assert of(log, "world") == of(logs[0], "world")
            assert of(log, "world", "data") == of(logs[m], "world", "data"), "the ranks of one column"
            assert of(log, "world", "model") == of(logs[d * shape[1]], "world", "model"), "the ranks of one row"


@pytest.mark.parametrize("name", ["keyed", "numbers", "new leaves", "nested"])
def test_all_ranks_make_the_same_calls(name):
    model, cuts = trees()[name]
    for shape in ((2, 2), (1, 5), (3, 1)):
        cut = cuts[-1] if shape[1] > 1 else None
        logs = sequences(shape, lambda g, c=cut: fit(DATA, model, g, max_iter=3, tol=None, cut=c))
        for rank, log in enumerate(logs):
            d, m = divmod(rank, shape[1])
            assert of(log, "world") == of(logs[0], "world")
            assert of(log, "world", "data") == of(logs[m], "world", "data")
            assert of(log, "world", "model") == of(logs[d * shape[1]], "world", "model")


def test_nothing_is_pickled_inside_the_loop():
    """`allgather` carries objects: as many calls for many iterations as for few."""
    counts = []
    for iterations in (2, 9):
        logs = sequences((2, 2), lambda g, n=iterations: fit(DATA, trees()["keyed"][0], g, max_iter=n, tol=None))
        counts.append(sum(call[1] == "allgather" for call in logs[0]))
    assert counts[0] == counts[1] > 0


def digest(result):
    return hashlib.sha256(result.model.state.theta.tobytes() + np.array(result.history).tobytes()).hexdigest()


@pytest.mark.parametrize("name", ["mixture of records", "numbers"])
def test_the_number_of_ranks_changes_nothing_p05(name):
    """The same rows and seed on 1, 2, 3, 4, 8 ranks: L to 1e-12, parameters to 1e-8, and twice the same bytes."""
    data, model = rows(97, seed=4), trees()[name][0]
    serial = fit(data, model, serial_grid(), max_iter=4, tol=None, seed=2)
    scale = max(abs(serial.log_likelihood), 97)
    for shape in [(2, 1), (1, 3), (2, 2), (8, 1), (2, 4)]:
        twice = [run_on_threads(*shape, lambda g: fit(data, model, g, max_iter=4, tol=None, seed=2)) for _ in (0, 1)]
        assert len({digest(r) for results in twice for r in results}) == 1, f"{shape}: not the same bytes"
        got = twice[0][0]
        assert np.abs(np.array(got.history) - serial.history).max() <= 1e-12 * scale
        np.testing.assert_allclose(got.model.state.theta, serial.model.state.theta, rtol=1e-8, atol=1e-8)


def test_one_csv_on_several_grids_p05(tmp_path):
    x = np.random.default_rng(0).normal(size=50) + np.repeat([0.0, 5.0], 25)
    path = tmp_path / "x.csv"
    path.write_text("x\n" + "\n".join(map(repr, x.tolist())) + "\n")
    model, options = Mixture(Gaussian(), 3), {"max_iter": 8, "tol": None, "seed": 2}
    serial = fit(str(path), model, serial_grid(), **options)
    in_memory = fit(x, model, serial_grid(), **options)
    assert serial.history == in_memory.history
    for shape in [(2, 1), (3, 1), (2, 2), (8, 1)]:
        results = run_on_threads(*shape, lambda g: fit(str(path), model, g, **options))
        assert len({digest(r) for r in results}) == 1
        np.testing.assert_allclose(results[0].history, serial.history, rtol=1e-12)
