"""Messages above the limit of one (case P03), and rows of which each rank has its own (case P14)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(__file__).parent / "large_program.py"


@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_above_the_limit_go_in_parts_p03(mpirun, ranks):
    run = mpirun(ranks, [PROGRAM], timeout=200, environment={"MIXLE_MPI_MESSAGE_LIMIT": "1MiB"})
    assert run.code == 0, run.out + run.err
    lines = run.out.splitlines()
    assert len(lines) == 11 and all(line.startswith("same") for line in lines)


def test_a_limit_that_is_no_size_is_refused(mpirun, tmp_path):
    command = ["-m", "mixle_mpi.fit", "--demo", "--out", str(tmp_path / "out")]
    run = mpirun(2, command, timeout=60, environment={"MIXLE_MPI_MESSAGE_LIMIT": "much"})
    assert run.code == 2
    assert "MIXLE_MPI_MESSAGE_LIMIT = 'much' is not a number of bytes" in run.err and "Traceback" not in run.err


def test_each_rank_holds_its_own_rows_p14(mpirun, tmp_path):
    """A million rows of 64 bytes: the peak of the largest rank falls by more than half of them from 1 rank to 8."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(1_000_000, 8)))
    run = tmp_path / "run.toml"
    run.write_text('[data]\npath = "x.npy"\n[model]\ntype = "mixture"\ncomponents = 2\n[model.component]\n'
                   'type = "multivariate_gaussian"\nstructure = "diagonal"\n')  # fmt: skip
    peaks = {}
    for ranks in (1, 8):
        command = ["-m", "mixle_mpi.fit", run, "--grid", f"{ranks}x1", "--max-iter", "1", "--tol", "none", "--quiet",
                   "--out", tmp_path / f"out{ranks}"]  # fmt: skip
        assert mpirun(ranks, command, timeout=100).code == 0
        found = json.loads((tmp_path / f"out{ranks}/result.json").read_text())
        peaks[ranks] = max(found["accounting"]["peak_bytes"])
    assert peaks[8] < peaks[1] - 32_000_000, peaks
