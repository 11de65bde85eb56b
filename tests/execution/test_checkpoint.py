"""Checkpoints: going on is to the bit, on any grid, whatever happened to the files; and when a fit is stopped."""

from __future__ import annotations

import itertools
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from workload import assert_same, rows, trees

from mixle_mpi import DataError, Gaussian, Mixture, ModelError, Optional, Poisson, Record, optimize
from mixle_mpi.execution import checkpoint
from mixle_mpi.execution.checkpoint import Checkpoint
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.stopping import Checkpoints, seconds_of
from mixle_mpi.execution.threads import run_on_threads

DATA = rows()
SMALL = Mixture(Record(a=Optional(Gaussian()), b=Poisson()), 3)


def stopped_after(calls: int):
    """A signal that comes in the given pass."""
    counter = itertools.count(1)
    return lambda: "SIGUSR1" if next(counter) >= calls else None


def run(grid, directory, model=SMALL, data=DATA, max_iter=12, tol=None, calls=10**9, watch=None, **options):
    watch = watch or Checkpoints(directory, every=1e9, resume=True, asked=stopped_after(calls))
    return fit(data, model, grid, max_iter=max_iter, tol=tol, watch=watch, **options)


def same_bits(result, reference) -> bool:
    return (
        result.history == reference.history
        and result.model.state.theta.tobytes() == reference.model.state.theta.tobytes()
        and (result.status, result.n_iter) == (reference.status, reference.n_iter)
    )


# -- going on --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", trees())
def test_a_stopped_fit_goes_on_to_the_bit(tmp_path, name):
    model = trees()[name][0]
    reference = fit(DATA, model, serial_grid(), max_iter=8, tol=None)
    first = run(serial_grid(), tmp_path, model, max_iter=8, calls=3)
    assert (first.status, first.n_iter, first.history) == ("stopped", 2, reference.history[:3])
    assert same_bits(run(serial_grid(), tmp_path, model, max_iter=8), reference)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 2), (3, 1)])
def test_the_same_grid_goes_on_to_the_bit(tmp_path, shape):
    reference = run_on_threads(*shape, lambda g: fit(DATA, SMALL, g, max_iter=12, tol=None))
    for calls in (2, 5):
        stopped = run_on_threads(*shape, lambda g, c=calls: run(g, tmp_path, calls=c))
        assert {r.status for r in stopped} == {"stopped"}
    for result, expected in zip(run_on_threads(*shape, lambda g: run(g, tmp_path)), reference):
        assert same_bits(result, expected)


@pytest.mark.parametrize(
    "name, cut", [("mixture of records", ""), ("deep", "component_*"), ("nested", "v/component_*")]
)
def test_any_grid_resumes_o03(tmp_path, name, cut):
    model = trees()[name][0]
    reference = fit(DATA, model, serial_grid(), max_iter=9, tol=None)
    for shape in ((2, 1), (1, 2), (3, 1), (2, 2)):
        run_on_threads(*shape, lambda g: run(g, tmp_path, model, max_iter=9, cut=cut, calls=2))
    result = run(serial_grid(), tmp_path, model, max_iter=9)
    assert result.n_iter == 9
    assert_same(result, reference)


def test_starts_before_are_kept(tmp_path):
    """Stopped in the second and in the third start, each on another grid; the best is not the last."""
    options = {"starts": 4, "init": "random", "max_iter": 6}
    reference = fit(DATA, SMALL, serial_grid(), tol=None, **options)
    run_on_threads(2, 1, lambda g: run(g, tmp_path, calls=9, **options))
    run_on_threads(1, 2, lambda g: run(g, tmp_path, calls=9, **options))
    result = run(serial_grid(), tmp_path, **options)
    assert_same(result, reference)
    assert result.best_start == reference.best_start
    assert [r["status"] for r in result.starts] == ["max_iter"] * 4
    for mine, theirs in zip(result.starts, reference.starts):
        np.testing.assert_allclose(mine["history"], theirs["history"], rtol=1e-12)
    assert same_bits(run(serial_grid(), tmp_path, **options), result)  # finished: the last pass is repeated


def test_more_iterations_after_the_end(tmp_path):
    reference = optimize(DATA, SMALL, max_iter=9, tol=None)
    assert optimize(DATA, SMALL, max_iter=4, tol=None, checkpoint=tmp_path, resume=True).n_iter == 4
    assert same_bits(optimize(DATA, SMALL, max_iter=9, tol=None, checkpoint=tmp_path, resume=True), reference)
    with pytest.raises(ModelError, match="holds a checkpoint"):
        optimize(DATA, SMALL, checkpoint=tmp_path)
    with pytest.raises(ModelError, match="need checkpoint"):
        optimize(DATA, SMALL, resume=True)


def test_every_zero_saves_each_iteration(tmp_path):
    seen = []

    def look(iteration):
        if iteration.n_iter:
            found = checkpoint.read(tmp_path)
            seen.append(found.document["state"]["n_iter"])

    optimize(DATA, SMALL, max_iter=4, tol=None, checkpoint=tmp_path, checkpoint_every=0, callback=look)
    assert seen == [1, 2, 3, 4]
    assert {p.name for p in tmp_path.iterdir()} == {"state.npz", "state_prev.npz"}


# -- what is refused -------------------------------------------------------------------------------


def changed(**cells) -> list[dict]:
    return [DATA[0] | cells, *DATA[1:]]


@pytest.mark.parametrize(
    "options, says",
    [
        ({"data": DATA[:-1]}, "rows is 202, but was 203"),
        ({"data": changed(a=1.25)}, "mean"),
        ({"data": changed(b=77)}, "is 77.0, but was"),
        ({"data": changed(a=None)}, "observed is"),
        ({"model": Mixture(Record(a=Optional(Gaussian()), b=Poisson()), 4)}, "model.components is 4, but was 3"),
        ({"model": Mixture(Record(a=Optional(Gaussian()), b=Gaussian()), 3)},
         "model.component.fields.b.type is gaussian, but was poisson"),
        ({"model": Mixture(Record(a=Optional(Gaussian(min_variance=0.5)), b=Poisson()), 3)}, "min_variance was added"),
        ({"model": Mixture(Record(a=Optional(Gaussian()), b=Poisson()), 3, weights=[0.5, 0.3, 0.2])},
         "the parameters given in the model differ"),
        ({"seed": 1}, "fit.seed is 1, but was 0"),
        ({"init": "random"}, "fit.init is random, but was auto"),
        ({"starts": 2}, "fit.starts is 2, but was 1"),
        ({"weights": np.full(203, 2.0)}, "effective rows is 406.0, but was 203.0"),
    ],
)  # fmt: skip
def test_another_run_is_refused_by_name(tmp_path, options, says):
    run(serial_grid(), tmp_path, calls=2)
    before = (tmp_path / "state.npz").read_bytes()
    for shape in ((1, 1), (2, 1)):

        def refused(grid):
            with pytest.raises(ModelError, match="the checkpoint of another run") as error:
                run(grid, tmp_path, **options)
            return str(error.value)

        assert all(says in text for text in run_on_threads(*shape, refused))
    assert (tmp_path / "state.npz").read_bytes() == before


def test_limits_tolerance_and_cut_may_change(tmp_path):
    run(serial_grid(), tmp_path, calls=2, max_iter=5)
    result = run(serial_grid(), tmp_path, max_iter=50, tol=1e-3)
    assert result.status == "converged"
    assert run(serial_grid(), tmp_path, max_iter=50, tol=1e-5, impossible="skip").n_iter > result.n_iter


# -- files -----------------------------------------------------------------------------------------


def example(number: int) -> Checkpoint:
    theta = {"": np.arange(6.0).reshape(2, 3) + number, "a/b#components": np.empty((0, 2))}
    return Checkpoint({"state": {"n_iter": number}, "run": {"x": "ü"}}, theta, {"": np.ones((1, 1))})


def number_of(directory) -> int:
    found = checkpoint.read(directory)
    assert found.theta[""][0, 0] == found.document["state"]["n_iter"] and found.theta["a/b#components"].shape == (0, 2)
    return found.document["state"]["n_iter"]


class Killed(BaseException):
    """What no handler catches, as a SIGKILL."""


@pytest.mark.parametrize("step", range(5))
def test_killed_at_any_step_the_directory_is_complete_o01(tmp_path, monkeypatch, step):
    """Before and after each system call that changes names or syncs."""
    checkpoint.write(tmp_path, example(1))
    checkpoint.write(tmp_path, example(2))
    calls = itertools.count()

    def killing(call):
        def killed(*words):
            if next(calls) == step:
                raise Killed
            return call(*words)

        return killed

    monkeypatch.setattr(os, "fsync", killing(os.fsync))
    monkeypatch.setattr(os, "replace", killing(os.replace))
    try:
        checkpoint.write(tmp_path, example(3))
    except Killed:
        assert step < 4
    monkeypatch.undo()
    assert number_of(tmp_path) == (2 if step < 3 else 3)
    checkpoint.write(tmp_path, example(4))
    assert number_of(tmp_path) == 4


def test_damage_falls_back_to_the_previous(tmp_path):
    """Cut off anywhere, or a bit turned over anywhere: the checkpoint before, or this one where nothing is hurt."""
    checkpoint.write(tmp_path, example(1))
    checkpoint.write(tmp_path, example(2))
    good = (tmp_path / "state.npz").read_bytes()
    for length in range(0, len(good), 97):
        (tmp_path / "state.npz").write_bytes(good[:length])
        found = checkpoint.read(tmp_path)
        assert found.path.name == "state_prev.npz" and "state.npz is truncated or damaged" in found.flaw
    passed_over = 0
    for at in range(0, len(good), 7):
        (tmp_path / "state.npz").write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        passed_over += bool(checkpoint.read(tmp_path).flaw)
        assert number_of(tmp_path) in (1, 2)
    assert passed_over > 0.5 * len(good) / 7
    (tmp_path / "state_prev.npz").write_bytes(good[:100])
    (tmp_path / "state.npz").write_bytes(good[:-30])
    with pytest.raises(DataError, match=r"no complete checkpoint: state.npz is .*; state_prev.npz is"):
        checkpoint.read(tmp_path)


def test_a_damaged_newest_is_warned_of_and_never_becomes_the_previous(tmp_path):
    reference = fit(DATA, SMALL, serial_grid(), max_iter=12, tol=None)
    run(serial_grid(), tmp_path, calls=3)
    run(serial_grid(), tmp_path, calls=3)
    previous = (tmp_path / "state_prev.npz").read_bytes()
    (tmp_path / "state.npz").write_bytes(b"PK nonsense")
    with pytest.warns(UserWarning, match=r"state.npz is truncated or damaged .* going on from state_prev.npz"):
        run(serial_grid(), tmp_path, calls=2)
    assert (tmp_path / "state_prev.npz").read_bytes() == previous
    assert same_bits(run(serial_grid(), tmp_path), reference)


def test_both_damaged_is_refused_on_all_ranks(tmp_path):
    (tmp_path / "state.npz").write_bytes(b"")
    (tmp_path / "state_prev.npz").write_bytes(b"x" * 1000)

    def refused(grid):
        with pytest.raises(DataError, match="no complete checkpoint"):
            run(grid, tmp_path)
        return True

    assert all(run_on_threads(2, 2, refused))


def test_a_failed_save_between_is_a_warning_and_the_last_one_an_error(tmp_path):
    """Real: the temporary file cannot be made. The checkpoint before stands."""
    reference = fit(DATA, SMALL, serial_grid(), max_iter=12, tol=None)
    run(serial_grid(), tmp_path, calls=3)
    before = (tmp_path / "state.npz").read_bytes()
    (tmp_path / "state.npz.part").mkdir()
    with pytest.warns(UserWarning, match="no checkpoint after iteration 3, the one before stands: .*directory"):
        watch = Checkpoints(tmp_path, every=0, resume=True)
        assert same_bits(run(serial_grid(), tmp_path, watch=watch), reference)

    def stopped(grid):
        with pytest.raises(IsADirectoryError):
            run(grid, tmp_path, calls=2)
        return True

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(run_on_threads(2, 2, stopped))
    assert (tmp_path / "state.npz").read_bytes() == before


# -- when ------------------------------------------------------------------------------------------


class Clock:
    """A clock that moves on by `step` seconds whenever it is looked at."""

    def __init__(self, step: float, start: float = 0.0):
        self.now, self.step = start, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_the_time_limit_counts_the_longest_iteration_and_the_checkpoint(tmp_path):
    now = [0.0]
    watch = Checkpoints(tmp_path, seconds=100.0, clock=lambda: now[0])
    asked = []
    for at, expected in ((50.0, (False, True)), (60.0, (False, True)), (75.0, (False, True)), (80.0, (False, True))):
        now[0] = at
        assert watch.wishes(0) == expected
    watch._cost, watch._is_saved = 4.0, True  # the longest iteration took 15, a checkpoint 4
    for at, stop in ((80.9, False), (81.1, True)):
        now[0] = at
        asked.append(watch.wishes(0)[0] == stop)
    assert all(asked) and watch.reason == "the time limit"


def test_clocks_that_differ_do_not_part_the_ranks_p04(tmp_path):
    """Rank 0's alone counts; the others' are hours ahead, or stand still."""

    def on(grid):
        rank = grid.world.rank
        clock = Clock(0.5 if rank == 0 else 0.0 if rank == 1 else 1e6, 1e7 * rank)
        return run(grid, tmp_path, watch=Checkpoints(tmp_path, every=0, seconds=10.0, resume=True, clock=clock))

    results = run_on_threads(2, 2, on)
    assert {(r.status, r.n_iter) for r in results} == {("stopped", results[0].n_iter)}
    assert 0 < results[0].n_iter < 12


def test_a_signal_on_any_one_rank_stops_all(tmp_path):
    for rank in range(4):
        place = tmp_path / str(rank)
        watches = {}

        def on(grid, rank=rank, place=place, watches=watches):
            asked = stopped_after(3) if grid.world.rank == rank else lambda: None
            watches[grid.world.rank] = Checkpoints(place, resume=True, asked=asked)
            return run(grid, place, watch=watches[grid.world.rank])

        assert {(r.status, r.n_iter) for r in run_on_threads(2, 2, on)} == {("stopped", 2)}
        assert {w.reason for w in watches.values()} == {f"SIGUSR1 on rank {rank}"}


def test_files_ask_for_an_end_or_a_checkpoint(tmp_path):
    def make(iteration):
        # called after the header of an iteration: a file made here is seen in the next
        if iteration.n_iter == 2:
            (tmp_path / "CHECKPOINT").touch()
        if iteration.n_iter == 4:
            assert not (tmp_path / "CHECKPOINT").exists()
            assert checkpoint.read(tmp_path).document["state"]["n_iter"] == 4
            (tmp_path / "STOP").touch()

    reference = optimize(DATA, SMALL, max_iter=12, tol=None)
    result = optimize(DATA, SMALL, max_iter=12, tol=None, checkpoint=tmp_path, callback=make)
    assert (result.status, result.n_iter) == ("stopped", 5)
    assert not (tmp_path / "STOP").exists()
    assert same_bits(optimize(DATA, SMALL, max_iter=12, tol=None, checkpoint=tmp_path, resume=True), reference)


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("90", 5400), (1.5, 90), (0, 0), ("1:30", 90), ("01:30:00", 5400), ("36:00:00", 129600), ("1-0", 86400),
        ("1-2:30", 95400), ("1-2:30:15", 95415), ("x", None), ("", None), ("1.5:3", None), ("1-", None),
        (True, None), ("-3", None), ("1:2:3:4", None), (None, None), ([1], None),
    ],
)  # fmt: skip
def test_times_are_read_as_slurm_writes_them(text, seconds):
    assert seconds_of(text) == seconds


def test_an_api_user_may_give_a_time(tmp_path):
    result = optimize(DATA, SMALL, max_iter=10**6, tol=None, checkpoint=Path(tmp_path), max_time="0:01")
    assert result.status == "stopped"
    for wrong in ({"max_time": "soon"}, {"checkpoint_every": -1}):
        with pytest.raises(ModelError):
            optimize(DATA, SMALL, checkpoint=tmp_path, resume=True, **wrong)


def test_a_signal_that_reaches_an_idle_rank_alone_is_relayed_by_the_file_stop(tmp_path):
    heard = []
    watch = Checkpoints(tmp_path, asked=lambda: heard[0] if heard else None)
    watch.relay()
    assert not (tmp_path / "STOP").exists()
    heard.append("SIGUSR1")
    watch.relay()
    assert (tmp_path / "STOP").exists()
    (tmp_path / "STOP").unlink()
    watch.relay()  # once is enough: the ranks of the grid remove the file
    assert not (tmp_path / "STOP").exists()


# -- grids side by side ----------------------------------------------------------------------------


def test_each_grid_has_files_of_its_own(tmp_path):
    checkpoint.write(tmp_path, example(1), name=checkpoint.name_of(1))
    assert checkpoint.exists(tmp_path) and checkpoint.read(tmp_path) is None
    for number, group in ((2, 0), (3, 1), (4, 12), (5, 0)):
        checkpoint.write(tmp_path, example(number), name=checkpoint.name_of(group))
    (tmp_path / "state-x.npz").touch()
    names = ["state.npz", "state-1.npz", "state-12.npz", "state_prev.npz", "state-1_prev.npz"]
    assert checkpoint.found_in(tmp_path) == names
    assert [found.document["state"]["n_iter"] for found in checkpoint.read_all(tmp_path)] == [5, 3, 4]


def test_one_rank_goes_on_from_what_two_grids_left(tmp_path):
    """Start 0 ended on one and start 1 is under way; 2 ended on the other, where 3 is under way, an older state too."""
    options = {"starts": 5, "init": "random", "max_iter": 6}
    reference = fit(DATA, SMALL, serial_grid(), tol=None, **options)
    places = [tmp_path / "a", tmp_path / "b"]
    watches = []
    for place, calls in zip(places, (10, 24)):
        watches.append(Checkpoints(place, every=1e9, resume=True, asked=stopped_after(calls)))
        run(serial_grid(), place, watch=watches[-1], **options)
    documents = [checkpoint.read(place) for place in places]
    assert [found.document["state"]["start"] for found in documents] == [1, 3]
    other = documents[1]
    state = other.document["state"]
    state["ended"], state["best"] = state["ended"][2:], 2
    other.best = other.theta  # stands for the parameters of start 2, which are not the best
    checkpoint.write(places[0], other, name="state-1")
    older = checkpoint.read(places[0])
    older.document["state"]["n_iter"] -= 1
    checkpoint.write(places[0], older, name="state-2")
    told = []
    watch = Checkpoints(places[0], resume=True, tell=told.append)
    result = run(serial_grid(), places[0], watch=watch, **options)
    assert len(told) == 2 and "state.npz at iteration 3 of start 1" in told[0] and "state-1.npz" in told[1]
    assert [r["start"] for r in result.starts] == list(range(5))
    for mine, theirs in zip(result.starts, reference.starts):
        assert mine["history"] == theirs["history"]
    assert reference.best_start != 2 and result.best_start == reference.best_start
    assert same_bits(result, reference)
