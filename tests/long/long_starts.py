"""Starts on grids side by side: signalled, killed and failed on each grid, and resumed on other ranks."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "commands")]
from jobs import Job, arrays, result  # noqa: E402
from starts_case import STARTS  # noqa: E402
from test_starts_beside import AUTO, EQUAL, assert_like_one_rank, case  # noqa: E402, F401

pytestmark = pytest.mark.launched
KILLS = 5
SAVE = ["--checkpoint-every", "0"]


def assert_bits(job: Job, whole: Job) -> None:
    """The job ended with the bits of the undisturbed one."""
    assert [s["history"] for s in result(job)["starts"]] == [s["history"] for s in result(whole)["starts"]]
    assert arrays(job.out) == arrays(whole.out)


def wait_for_progress(job: Job) -> None:
    """Until the job itself, not one before, has told of an iteration."""
    deadline = time.monotonic() + 40
    while "iteration" not in job.printed().partition("grid")[2]:
        assert job.process.poll() is None and time.monotonic() < deadline, job.printed()
        time.sleep(0.02)


@pytest.fixture
def whole(tmp_path_factory):
    """The undisturbed fit of five ranks."""
    from starts_case import write_starts_case
    from test_starts_beside import ITERATIONS

    place = tmp_path_factory.mktemp("whole")
    write_starts_case(place, ITERATIONS)
    job = Job(5, place, *AUTO, environment=EQUAL)
    assert job.end() == 0, job.printed()
    assert_like_one_rank(job)
    assert {line["start"] for line in job.lines()} == set(range(6))
    return job


@pytest.mark.parametrize("rank", range(5))
def test_a_signal_on_any_rank(case, whole, rank):  # noqa: F811
    job = Job(5, case, *AUTO, pause=0.06, environment=EQUAL)
    job.wait_for(2)
    os.kill(job.pids()[rank], signal.SIGTERM)
    assert job.end() == 75, job.printed()
    assert f"stopped by SIGTERM on rank {rank}; the same" in job.printed()
    again = Job(5, case, *AUTO, environment=EQUAL)
    assert again.end() == 0, again.printed()
    assert_bits(again, whole)


@pytest.mark.parametrize("ranks", [[5, 2], [1, 5], [2, 5, 3], [5, 0]])
def test_resumed_on_other_ranks(case, ranks):  # noqa: F811
    for n in ranks[:-1]:
        job = Job(n, case, *AUTO, *SAVE, pause=0.06, environment=EQUAL)
        wait_for_progress(job)
        os.kill(job.pids()[0], signal.SIGUSR1)
        assert job.end() == 75, job.printed()
    job = Job(ranks[-1], case, *AUTO, *SAVE, environment=EQUAL)
    assert job.end() == 0, job.printed()
    assert_like_one_rank(job)


def test_killed_at_random_moments(case, whole):  # noqa: F811
    moment = random.Random(3)
    for _ in range(KILLS):
        job = Job(5, case, *AUTO, *SAVE, pause=0.05, environment=EQUAL)
        wait_for_progress(job)
        time.sleep(moment.uniform(0.0, 1.0))
        if job.process.poll() is None:
            job.kill_all()
    last = Job(5, case, *AUTO, *SAVE, environment=EQUAL)
    assert last.end() == 0, last.printed()
    assert_bits(last, whole)


def test_a_grid_that_has_ended_is_not_made_again(case, whole):  # noqa: F811
    """The fifth rank has made both of its starts when the others are stopped, by a signal that reached it alone."""
    job = Job(5, case, *AUTO, pause=0.06, environment=EQUAL)
    while not any(line["start"] == 3 for line in job.lines()):
        assert job.process.poll() is None, job.printed()
        time.sleep(0.02)
    os.kill(job.pids()[4], signal.SIGUSR1)
    assert job.end() == 75, job.printed()
    assert "SIGUSR1 on rank 4" in job.printed()
    assert [s["start"] for s in result(job)["starts"] if s["ranks"] == [4]] == [6, 7]
    again = Job(5, case, *AUTO, environment=EQUAL)
    assert again.end() == 0, again.printed()
    assert "side by side" not in again.printed()  # the fifth has nothing to do
    assert_bits(again, whole)
    once_more = Job(5, case, *AUTO, environment=EQUAL)
    assert once_more.end() == 0 and "finished before" in once_more.printed()


def test_files_and_time(case):  # noqa: F811
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
    job = Job(5, case, *AUTO, "--max-time", "00:00:12", pause=1.0, environment=EQUAL)
    assert job.end() == 75, job.printed()
    assert "stopped by the time limit" in job.printed()
    job = Job(5, case, *AUTO, "--overwrite", "-o", "output.resume=false", environment=EQUAL)
    assert job.end() in (0, 2)
    again = Job(5, case, *AUTO, environment=EQUAL)
    assert again.end() == 0 and [s["start"] for s in result(again)["starts"]] == list(range(STARTS))


def test_an_error_that_a_grid_does_not_agree_on(case):  # noqa: F811
    job = Job(5, case, *AUTO, pause=0.05, environment=EQUAL | {"SLOW_FIT_FAILS": "3"})
    assert job.end(60) == 4, job.printed()
    assert job.printed().count("Traceback (most recent call last)") == 1
    assert re.search("rank 3 of 5 .*failed", job.printed())
