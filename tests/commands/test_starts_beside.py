"""`fit` with starts on grids side by side: what is told, what ends them together, and how they go on.

What takes more launches is in tests/long/long_starts.py.
"""

from __future__ import annotations

import os
import re
import signal

import numpy as np
import pytest
from jobs import Job, result
from starts_case import SIDES, STARTS, WORDS, model, table, write_starts_case

from mixle_mpi import load, optimize
from mixle_mpi.execution import checkpoint

EQUAL = {"SLOW_FIT_EQUAL": "1"}
AUTO = ["--grid", "auto"]
ITERATIONS = 8

pytestmark = pytest.mark.launched


@pytest.fixture
def case(tmp_path):
    write_starts_case(tmp_path, ITERATIONS)
    return tmp_path


def assert_like_one_rank(job: Job) -> None:
    """All starts in order, and the model, are those of one rank that made all starts."""
    found = result(job)
    alone = optimize(table(), model(), starts=STARTS, init="random", max_iter=ITERATIONS, tol=None)
    assert (found["status"], found["best_start"], found["exit_code"]) == ("max_iter", alone.best_start, 0)
    assert [s["start"] for s in found["starts"]] == list(range(STARTS))
    scale = max(abs(alone.log_likelihood), alone.n_rows)
    for mine, theirs in zip(found["starts"], alone.starts):
        assert mine["status"] == theirs["status"]
        np.testing.assert_allclose(mine["history"], theirs["history"], rtol=0, atol=1e-12 * scale)
    np.testing.assert_allclose(load(job.out).state.theta, alone.model.state.theta, rtol=1e-9, atol=1e-9)


def test_a_signal_on_one_grid_stops_all_and_the_fit_goes_on(case):
    job = Job(5, case, *AUTO, pause=0.06, environment=EQUAL)
    job.wait_for(3)
    os.kill(job.pids()[4], signal.SIGTERM)
    assert job.end() == 75, job.printed()
    printed = job.printed()
    assert f"2 grids side by side of 5 ranks, 1.26x as fast as all on the best grid: {WORDS}" in printed
    # a rank whose starts have ended by then tells the others by the file
    assert re.search("stopped by (the file STOP and )?SIGTERM on rank 4; the same", printed), printed
    assert "Traceback" not in printed
    states = [checkpoint.read(job.out, name).document["state"] for name in ("state", "state-1")]
    assert all(0 < state["n_iter"] <= ITERATIONS for state in states) and result(job)["status"] == "stopped"
    again = Job(5, case, *AUTO, environment=EQUAL)
    assert again.end() == 0, again.printed()
    assert again.printed().count("going on from") == 2 and "kept from the checkpoint: starts" in again.printed()
    assert_like_one_rank(again)
    found = result(again)
    assert [of["ranks"] for of in found["groups"]] == [of["ranks"] for of in SIDES]
    assert [of["ranks"] for of in found["starts"]] == [SIDES[k > 5]["ranks"] for k in range(STARTS)]
    assert found["accounting"]["groups"] == [0, 0, 0, 0, 1] and found["counts"]["rows"][4] > 0


def test_an_error_on_one_grid_ends_all_with_its_exit_code(case):
    job = Job(5, case, *AUTO, pause=0.05, environment=EQUAL | {"SLOW_FIT_FAILS": "4"})
    assert job.end(50) == 4, job.printed()
    assert job.printed().count("mixle_mpi.fit: error: boom") == 1 and "Traceback" not in job.printed()
    assert (result(job)["exit_code"], result(job)["message"]) == (4, "boom")
