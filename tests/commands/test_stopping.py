"""Jobs that are stopped, killed and started again with the same command line: exit codes, files, results."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from unittest import mock

import numpy as np
import pytest
from jobs import Job, arrays, is_mpich, result, write_case

from mixle_mpi.commands.fit import main
from mixle_mpi.commands.watching import process_age
from mixle_mpi.execution import checkpoint

# what else a launcher forwards with grace: Hydra ends at SIGUSR2, Open MPI's kills its ranks at SIGTERM
FORWARDED = signal.SIGTERM if is_mpich() else signal.SIGUSR2
QUIET = ["--quiet", "--checkpoint-every", "0"]

launched = pytest.mark.launched


@pytest.fixture
def case(tmp_path):
    write_case(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The result and the model's bytes of the whole case on n ranks, by number of ranks and words."""
    known = {}

    def find(ranks: int, *words):
        if (ranks, words) not in known:
            place = tmp_path_factory.mktemp("whole")
            write_case(place)
            job = Job(ranks, place, "--quiet", *words)
            assert job.end() == 0, job.printed()
            known[ranks, words] = result(job), arrays(job.out)
        return known[ranks, words]

    return find


def assert_like(job: Job, expected: tuple, bits: bool = True) -> None:
    """The job ended as the undisturbed one: history, model, and one line an iteration."""
    found, (whole, model) = result(job), expected
    assert (found["status"], found["n_iter"], found["exit_code"]) == ("max_iter", whole["n_iter"], 0)
    scale = max(abs(whole["log_likelihood"]), whole["n_rows"])
    assert np.max(np.abs(np.array(found["history"]) - whole["history"])) < 1e-12 * scale
    assert [line["iteration"] for line in job.lines()] == list(range(whole["n_iter"] + 1))
    assert [line["log_likelihood"] for line in job.lines()] == found["history"]
    if bits:
        assert found["history"] == whole["history"] and arrays(job.out) == model


# -- signals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ranks, whom, number",
    [
        (0, "one", signal.SIGUSR2), (0, "one", signal.SIGTERM), (0, "one", signal.SIGINT),
        pytest.param(2, "one", signal.SIGTERM, marks=launched), pytest.param(3, "one", signal.SIGUSR1, marks=launched),
        pytest.param(2, "all", signal.SIGUSR1, marks=launched),
        pytest.param(2, "launcher", signal.SIGUSR1, marks=launched),
        pytest.param(2, "launcher", FORWARDED, marks=launched),
    ],
)  # fmt: skip
def test_a_signal_ends_with_a_checkpoint_and_75_o01_o06(case, undisturbed, ranks, whom, number):
    job = Job(ranks, case, pause=0.05)
    job.wait_for(4)
    pids = job.pids()
    for pid in {"one": pids[-1:], "all": pids, "launcher": [job.process.pid]}[whom]:
        os.kill(pid, number)
    assert job.end() == 75, job.printed()
    assert (result(job)["status"], result(job)["exit_code"]) == ("stopped", 75)
    assert f"stopped by {number.name}" in job.printed() and "Traceback" not in job.printed()
    again = Job(ranks, case)
    assert again.end() == 0, again.printed()
    assert "going on from" in again.printed()
    assert_like(again, undisturbed(ranks))


@pytest.mark.parametrize("ranks", [0, pytest.param(2, marks=launched)])
def test_the_second_signal_ends_at_once(case, ranks):
    """Even where the iteration never ends: rank 0 waits for the other within MPI."""
    job = Job(ranks, case, pause=30.0, environment={"SLOW_FIT_FIRST": "1"} if ranks else None)
    deadline = time.monotonic() + 30
    while not (job.out / "run.toml").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(3.0)
    os.kill(job.pids()[0], signal.SIGTERM)
    time.sleep(0.8)
    began = time.monotonic()
    os.kill(job.pids()[0], signal.SIGTERM)
    assert job.end(20) == 128 + signal.SIGTERM
    assert time.monotonic() - began < 5.0


@launched
def test_after_sigterm_to_the_launcher_the_last_checkpoint_stands(case, undisturbed):
    """Open MPI's mpirun kills its ranks at once; MPICH's forwards the signal."""
    job = Job(2, case, "--checkpoint-every", "0", pause=0.1)
    job.wait_for(6)
    job.process.send_signal(signal.SIGTERM)
    assert job.end(20) != 0
    assert checkpoint.read(job.out).document["state"]["n_iter"] >= 5
    again = Job(2, case, "--checkpoint-every", "0")
    assert again.end() == 0, again.printed()
    assert_like(again, undisturbed(2))


# -- kills -----------------------------------------------------------------------------------------


def kill_and_resume(case, whole, ranks: int, times: int, seed: int = 0) -> list[int]:
    """Kill a fit that saves after each iteration at random moments, then let it end; where it was found each time."""
    moment, at = random.Random(seed), []
    for _ in range(times):
        job = Job(ranks, case, *QUIET, "--max-iter", "4000")
        job.wait_for(1 + (at[-1] if at else 0))
        time.sleep(moment.uniform(0.0, 0.25))
        job.kill_all()
        state = checkpoint.read(job.out).document["state"]
        assert len(state["history"]) == state["n_iter"] >= (at[-1] if at else 0)
        at.append(state["n_iter"])
    last = Job(ranks, case, *QUIET, "--max-iter", str(at[-1] + 40))
    assert last.end() == 0, last.printed()
    expected = whole(ranks, "--max-iter", str(at[-1] + 40))
    assert_like(last, expected)
    return at


@pytest.mark.parametrize("ranks", [0, pytest.param(2, marks=launched)])
def test_sigkill_while_saving_o01(case, undisturbed, ranks):
    """Three times here, twenty in `python -m tests.long`."""
    kill_and_resume(case, undisturbed, ranks, 3, seed=ranks)


@launched
def test_two_copies_one_signalled_one_killed(undisturbed, tmp_path_factory):
    """Side by side, one stopped by SIGUSR1 to the launcher, one killed; both started again as they were."""
    whole = undisturbed(2)
    places = [tmp_path_factory.mktemp("copy") for _ in range(2)]
    for place in places:
        write_case(place)
    signalled, killed = (Job(2, place, "--checkpoint-every", "0", pause=0.1) for place in places)
    signalled.wait_for(15)
    signalled.process.send_signal(signal.SIGUSR1)
    killed.wait_for(15)
    killed.kill_all()
    assert signalled.end() == 75
    for again in [Job(2, place, "--checkpoint-every", "0") for place in places]:
        assert again.end() == 0, again.printed()
        assert_like(again, whole)


# -- time, files, grids ----------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [0, pytest.param(3, marks=launched)])
def test_max_time_ends_a_longer_run_in_time(case, undisturbed, ranks):
    """With clocks of the other ranks hours ahead, and faster (P04)."""
    began = time.monotonic()
    job = Job(ranks, case, "--max-time", "00:00:07", pause=1.0, environment={"SLOW_FIT_CLOCKS": "1"})
    assert job.end() == 75, job.printed()
    assert time.monotonic() - began < 30  # all iterations take more than 40
    assert "(max_time 00:00:07)" in job.printed() and "stopped by the time limit" in job.printed()
    assert result(job)["n_iter"] < 40
    again = Job(ranks, case, "--max-time", "10")
    assert again.end() == 0, again.printed()
    assert_like(again, undisturbed(ranks))


def test_the_end_of_a_slurm_job_is_the_default(case):
    job = Job(0, case, pause=0.3, environment={"SLURM_JOB_END_TIME": str(int(time.time()) + 7)})
    assert job.end() == 75, job.printed()
    assert "(SLURM_JOB_END_TIME)" in job.printed()
    forever = Job(0, case, "--max-time", "none", environment={"SLURM_JOB_END_TIME": "1"})
    assert forever.end() == 0 and "to end in" not in forever.printed()


@launched
def test_files_in_the_output_directory(case, undisturbed):
    job = Job(2, case, pause=0.05)
    job.wait_for(3)
    (job.out / "CHECKPOINT").touch()
    while (job.out / "CHECKPOINT").exists():
        assert job.process.poll() is None
        time.sleep(0.01)
    assert checkpoint.exists(job.out)
    (job.out / "STOP").touch()
    assert job.end() == 75
    printed = job.printed()
    last = printed.index("stopped by the file STOP; the same command with --resume goes on\n")
    assert last > printed.index("mixture of 4") and "component_" not in printed[last:]
    assert not (job.out / "STOP").exists()
    again = Job(2, case)
    assert again.end() == 0
    assert_like(again, undisturbed(2))


@launched
def test_any_ranks_resume_o03(case, undisturbed):
    for ranks, grid in ((2, "1x2"), (3, "3x1"), (4, "2x2")):
        job = Job(ranks, case, "--grid", grid, pause=0.05)
        job.wait_for(3 + max([line["iteration"] for line in job.lines()], default=0))
        os.kill(job.pids()[0], signal.SIGUSR1)
        assert job.end() == 75, job.printed()
    last = Job(0, case)
    assert last.end() == 0
    assert_like(last, undisturbed(0), bits=False)


@launched
def test_a_full_disk_is_74_and_the_checkpoint_before_stands(case, undisturbed):
    """Real: files may not grow beyond 3 KB. Checkpoints do, and metrics.jsonl, whose lines wait."""
    job = Job(2, case, pause=0.02)
    job.wait_for(3)
    os.kill(job.pids()[1], signal.SIGUSR1)
    assert job.end() == 75
    before = (job.out / "state.npz").read_bytes()
    full = Job(
        2, case, "--checkpoint-every", "0", "--max-iter", "9999", pause=0.05, environment={"SLOW_FIT_BYTES": "3000"}
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while "no checkpoint after iteration" not in full.printed() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(full.pids()[1], signal.SIGUSR1)
    assert full.end() == 74, full.printed()
    assert "File too large" in full.printed() and "Traceback" not in full.printed()
    assert (full.out / "state.npz").read_bytes() == before
    again = Job(2, case)
    assert again.end() == 0, again.printed()
    assert_like(again, undisturbed(2))


# -- the directory, in this process ----------------------------------------------------------------


@pytest.fixture
def alone(tmp_path, monkeypatch):
    for name in ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    write_case(tmp_path)
    return tmp_path / "out"


FIT = ["case.toml", "--out", "out", "--quiet"]


def stopped(words, out) -> int:
    """The exit code of a fit that finds a file STOP after its first pass: made while kernels would be compiled."""
    with mock.patch("mixle_mpi.execution.em.warm", lambda executor: (out / "STOP").touch()):
        return main(words)


def test_a_finished_run_says_so_and_computes_nothing(alone, capsys, monkeypatch):
    assert main([*FIT, "--resume", "--max-iter", "5", "--require-convergence"]) == 5
    before = {p.name: p.read_bytes() for p in alone.iterdir()}
    with monkeypatch.context() as m:
        m.setattr("mixle_mpi.execution.em.fit", lambda *a, **k: 1 / 0)
        assert main([*FIT[:-1], "--resume", "--max-iter", "5", "--require-convergence"]) == 5
        assert "finished before: max_iter after 5 iterations" in capsys.readouterr().out
        for words, says in (
            (["-o", "model.components=3"], "model.components is 3, but was 4"),
            (["--seed", "3"], "fit.seed is 3, but was 0"),
            (["--data", "other.csv"], "data.path is"),
        ):
            assert main([*FIT, "--resume", "--max-iter", "5", *words]) == 2
            assert says in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in alone.iterdir()} == before
    assert main([*FIT, "--resume", "--max-iter", "9"]) == 0
    assert len((alone / "metrics.jsonl").read_text().splitlines()) == 10
    assert main(["case.toml", "--out", "whole", "--quiet", "--max-iter", "9"]) == 0
    assert arrays(alone) == arrays(alone.parent / "whole")


def test_a_smaller_tolerance_goes_on(alone):
    more = [*FIT, "--max-iter", "900", "--resume"]
    assert main([*more, "--tol", "1e-3"]) == 0
    first = json.loads((alone / "result.json").read_text())
    assert main([*more, "--tol", "1e-5"]) == 0
    second = json.loads((alone / "result.json").read_text())
    assert first["status"] == second["status"] == "converged" and second["n_iter"] > first["n_iter"]
    assert second["history"][: first["n_iter"] + 1] == first["history"]


def test_a_checkpoint_is_not_lost_by_mistake(alone, capsys):
    assert stopped([*FIT, "--resume"], alone) == 75
    assert main(FIT) == 2
    assert "out holds a run that was stopped (state.npz, " in capsys.readouterr().err
    (alone / "result.json").unlink()
    before = (alone / "state.npz").read_bytes()
    for name in ("model.npz", "model.json"):
        (alone / name).unlink()
    assert main(FIT) == 2
    says = "holds a run that is unfinished (state.npz, run.toml, metrics.jsonl); --resume goes on, --overwrite begins"
    assert says in capsys.readouterr().err
    assert main([*FIT, "--resume", "--overwrite"]) == 2
    assert (alone / "state.npz").read_bytes() == before
    assert main([*FIT, "--overwrite", "--max-iter", "3"]) == 0
    assert len((alone / "metrics.jsonl").read_text().splitlines()) == 4
    assert not (alone / "state_prev.npz").exists()


def test_overwriting_can_be_stopped_and_resumed(alone, capsys):
    """The old result keeps its place until the new one is complete, however many jobs that takes."""
    assert main([*FIT, "--max-iter", "3"]) == 0
    old = (alone / "result.json").read_bytes()
    assert stopped([*FIT, "--overwrite", "--checkpoint-every", "0", "--seed", "5"], alone) == 75
    assert main([*FIT, "--seed", "5"]) == 2
    assert "holds a run that was stopped (unfinished/: state.npz, " in capsys.readouterr().err
    assert (alone / "result.json").read_bytes() == old and (alone / "unfinished" / "state.npz").exists()
    assert not (alone / "STOP").exists()
    (alone / "unfinished" / "state.npz.part").write_bytes(b"half")
    assert main([*FIT, "--resume", "--seed", "5"]) == 0
    assert not (alone / "unfinished").exists()
    assert main(["case.toml", "--out", "whole", "--quiet", "--seed", "5"]) == 0
    assert arrays(alone) == arrays(alone.parent / "whole")
    assert main([*FIT, "--resume", "--seed", "5"]) == 0


def test_changed_data_are_refused_and_damage_falls_back(alone, capsys):
    for _ in range(2):
        assert stopped([*FIT, "--resume"], alone) == 75
    table = alone.parent / "rows.csv"
    text = table.read_text()
    table.write_text(text + "1.0,2.0,e\n")
    settings = (alone / "run.toml").read_bytes()
    assert main([*FIT, "--resume", "--max-iter", "50"]) == 2
    err = capsys.readouterr().err
    assert "the checkpoint of another run: rows is 601, but was 600" in err and err.count("\n") == 1 + 2
    assert (alone / "run.toml").read_bytes() == settings
    table.write_text(text)
    (alone / "state.npz").write_bytes((alone / "state.npz").read_bytes()[:-100])
    assert main([*FIT, "--resume"]) == 0
    assert "going on from state_prev.npz" in capsys.readouterr().err
    (alone / "result.json").unlink()
    for name in ("state.npz", "state_prev.npz"):
        (alone / name).write_bytes(b"")
    assert main([*FIT, "--resume"]) == 2
    assert "no complete checkpoint" in capsys.readouterr().err


def test_the_age_of_a_process_counts():
    assert 0.0 < process_age() < 1e6
    before = process_age()
    time.sleep(0.05)
    assert 0.04 < process_age() - before < 5.0


def test_the_settings_are_shown_and_checked(alone, capsys):
    assert main([*FIT, "--print-config", "--max-time", "1-02:00:00", "--resume", "--checkpoint-every", "2.5"]) == 0
    out = capsys.readouterr().out
    assert 'max_time = "1-02:00:00"' in out and "resume = true" in out and "checkpoint_every = 2.5" in out
    assert main([*FIT, "--print-config", "-o", "fit.max_time=01:30:00"]) == 0
    assert 'max_time = "01:30:00"' in capsys.readouterr().out
    for words in (["--max-time", "soon"], ["--checkpoint-every", "-1"], ["-o", "fit.max_time=true"]):
        assert main([*FIT, *words]) == 2
        assert words[0] in capsys.readouterr().err
