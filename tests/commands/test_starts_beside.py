"""`fit` with starts on grids side by side: what is told, what ends them together, and how they go on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from jobs import Job, arrays, result
from starts_case import SIDES, STARTS, WORDS, write_starts_case

from mixle_mpi.execution import checkpoint

EQUAL = {"SLOW_FIT_EQUAL": "1"}
AUTO = ["--grid", "auto"]

pytestmark = pytest.mark.launched


@pytest.fixture
def case(tmp_path):
    write_starts_case(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The whole fit of five ranks."""
    place = tmp_path_factory.mktemp("whole")
    write_starts_case(place)
    job = Job(5, place, *AUTO, environment=EQUAL)
    assert job.end() == 0, job.printed()
    return job


def assert_like(job: Job, expected: Job, bits: bool) -> None:
    """All starts, in order, and the model as undisturbed."""
    found, whole = result(job), result(expected)
    assert (found["status"], found["best_start"], found["exit_code"]) == ("max_iter", whole["best_start"], 0)
    assert [s["start"] for s in found["starts"]] == list(range(STARTS))
    for mine, theirs in zip(found["starts"], whole["starts"]):
        if bits:
            assert mine["history"] == theirs["history"]
        np.testing.assert_allclose(mine["history"], theirs["history"], rtol=1e-12)
        assert mine["status"] == theirs["status"]
    if bits:
        assert arrays(job.out) == arrays(expected.out)


def test_all_is_told_of_every_grid(undisturbed):
    found, printed = result(undisturbed), undisturbed.printed()
    assert f"2 grids side by side of 5 ranks, 1.26x as fast as all on the best grid: {WORDS}" in printed
    assert f"free parameters; {WORDS}" in printed
    assert [{k: v for k, v in of.items() if k != "cut"} for of in found["groups"]] == SIDES
    assert [of["ranks"] for of in found["starts"]] == [SIDES[k > 5]["ranks"] for k in range(STARTS)]
    assert found["accounting"]["groups"] == [0, 0, 0, 0, 1] and found["plan"]["idle"] == 0
    assert found["counts"]["passes"] == [6 * 13] * 4 + [2 * 13] and found["counts"]["rows"][4] == 2 * 13 * 12
    predicted, measured = found["predicted"]["payload"], found["measured"]["payload"]
    for axis in ("data", "model", "world"):
        assert predicted[axis]["bytes"] == measured[axis]["bytes"] > 0
    assert {line["start"] for line in undisturbed.lines()} == set(range(6))


@pytest.mark.parametrize("rank", [1, 4])
def test_a_signal_on_one_grid_stops_all_and_the_fit_goes_on(case, undisturbed, rank):
    """On the same ranks to the bit, on others alike."""
    job = Job(5, case, *AUTO, pause=0.1, environment=EQUAL)
    job.wait_for(3)
    os.kill(job.pids()[rank], signal.SIGTERM)
    assert job.end() == 75, job.printed()
    assert f"stopped by SIGTERM on rank {rank}; the same" in job.printed() and "Traceback" not in job.printed()
    states = [checkpoint.read(job.out, name).document["state"] for name in ("state", "state-1")]
    assert all(0 < state["n_iter"] < 13 for state in states) and result(job)["status"] == "stopped"
    ranks, bits = (5, True) if rank == 1 else (2, False)
    again = Job(ranks, case, *AUTO, environment=EQUAL)
    assert again.end() == 0, again.printed()
    assert again.printed().count("going on from") == 2
    assert_like(again, undisturbed, bits)


def test_what_is_killed_goes_on_too(case, undisturbed):
    job = Job(5, case, *AUTO, "--checkpoint-every", "0", pause=0.05, environment=EQUAL)
    job.wait_for(9)
    job.kill_all()
    again = Job(5, case, *AUTO, "--checkpoint-every", "0", environment=EQUAL)
    assert again.end() == 0, again.printed()
    assert "kept from the checkpoint: starts" in again.printed()
    assert_like(again, undisturbed, True)


def test_a_file_stop_is_seen_by_all_grids(case):
    job = Job(5, case, *AUTO, pause=0.1, environment=EQUAL)
    job.wait_for(2)
    (job.out / "CHECKPOINT").touch()
    deadline = time.monotonic() + 20
    while not ((job.out / "state.npz").exists() and (job.out / "state-1.npz").exists()):
        assert job.process.poll() is None and time.monotonic() < deadline, job.printed()
        time.sleep(0.02)
    (job.out / "STOP").touch()
    assert job.end() == 75, job.printed()
    assert "stopped by the file STOP" in job.printed() and not (job.out / "STOP").exists()


@pytest.mark.parametrize("rank", [3, 4])
def test_an_error_on_one_grid_ends_all_with_its_exit_code(case, rank):
    """Where its whole grid has it with one message, else with a traceback."""
    began = time.monotonic()
    job = Job(5, case, *AUTO, pause=0.05, environment=EQUAL | {"SLOW_FIT_FAILS": str(rank)})
    assert job.end(60) == 4, job.printed()
    assert time.monotonic() - began < 50
    printed = job.printed()
    if rank == 4:
        assert printed.count("mixle_mpi.fit: error: boom") == 1 and "Traceback" not in printed
        assert result(job)["exit_code"] == 4 and result(job)["message"] == "boom"
    else:
        assert printed.count("Traceback (most recent call last)") == 1 and re.search("rank 3 of 5 .*failed", printed)
    assert subprocess.run(["ps", "-p", ",".join(map(str, job.pids()))], capture_output=True).returncode == 1
