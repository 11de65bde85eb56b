"""Commands under a real launcher: errors end all ranks, messages come once, exit codes pass."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path

import pytest

RAISE_ON = Path(__file__).with_name("raise_on.py")
FIT = ["-m", "mixle_mpi.fit"]


def lines(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(start)]


@pytest.mark.parametrize(
    "where, function, ranks, error",
    [
        ("mixle_mpi.data.csv", "scanned", "2", "KeyError"),  # within an agreement, which carries it to all ranks
        ("mixle_mpi.execution.load", "open_data", "2", "RuntimeError"),
        ("mixle_mpi.execution.load", "encode", "1", "IndexError"),
        ("mixle_mpi.execution.executor:Executor", "e_step", "2", "ZeroDivisionError"),
        ("mixle_mpi.contract.node:Node", "save", "0", "MemoryError"),
        ("mixle_mpi.execution.executor:Executor", "maximize", "0,1,2", "RuntimeError"),
    ],
)
def test_an_error_on_a_rank_ends_all_with_one_traceback(mpirun, tmp_path, where, function, ranks, error):
    """P01, with no help from the launcher's command line."""
    words = [RAISE_ON, where, function, ranks, error, "--", "--demo", "--grid", "3x1", "--out", tmp_path / "out"]
    run = mpirun(3, words, timeout=60, cwd=tmp_path)
    gone = time.time()
    raised = [float(t) for t in re.findall(r"RAISED ([\d.]+)", run.err)]
    assert len(raised) == len(ranks.split(",")), run.err
    assert gone - max(raised) < 5.0
    assert run.code == 1
    assert run.err.count("Traceback (most recent call last)") == 1
    assert re.search(rf"{error}: '?boom", run.err)
    assert f"mixle_mpi.fit: rank {ranks[0]} of 3 on host {socket.gethostname()} failed:" in run.err


def test_a_refusal_that_only_one_rank_has_ends_all_too(mpirun, tmp_path):
    """P01: as for any error, and the exit code says what kind it is."""
    words = [RAISE_ON, "mixle_mpi.execution.executor:Executor", "e_step", "1", "OSError", "--", "--demo"]
    words += ["--grid", "3x1"]
    run = mpirun(3, words, cwd=tmp_path)
    assert time.time() - float(re.findall(r"RAISED ([\d.]+)", run.err)[0]) < 5.0
    assert run.code == 74
    assert run.err.count("Traceback") == 1 and "rank 1 of 3 on host" in run.err


@pytest.mark.parametrize(
    "ranks, words, code, says",
    [
        (2, ["--bogus"], 2, "there is no option --bogus"),
        (4, ["--demo", "--grid", "3x2"], 2, "3 x 2 = 6, but 4 ranks"),
        (2, ["--demo", "-o", "fit.max_itr=3"], 2, "did you mean 'max_iter'?"),
        (4, ["--demo", "-o", "model.component.fields.sex={type='categorical'}"], 2, "row 3"),
        (2, ["nothere.toml"], 74, "nothere.toml: No such file or directory"),
    ],
)
def test_refusals_come_once(mpirun, tmp_path, ranks, words, code, says):
    """U10, P09, O06."""
    run = mpirun(ranks, [*FIT, *words], cwd=tmp_path)
    assert run.code == code, run.err
    errors = lines(run.err, "mixle_mpi.fit: error: ")
    assert len(errors) == 1 and says in errors[0]
    assert "Traceback" not in run.err and "MPI_ABORT" not in run.err and "Abort(" not in run.err


def test_help_is_printed_once_and_done(mpirun, tmp_path):
    run = mpirun(2, [*FIT, "--help"], cwd=tmp_path)
    assert (run.code, run.out.count("usage:"), run.err) == (0, 1, "")


def test_a_grid_fits_like_one_process(mpirun, python, tmp_path):
    """And rank 0 alone prints and writes; a result that is there is refused, once."""
    run = mpirun(4, [*FIT, "--demo", "--grid", "2x2", "--cut", "", "--out", "grid", "--every", "5"], cwd=tmp_path)
    assert run.code == 0, run.err
    alone = python(*FIT, "--demo", "--out", "alone", cwd=tmp_path)
    assert alone.code == 0, alone.err
    assert run.out.count("mixle_mpi 0.") == 1 and "4 ranks" in run.out and run.out.count("converged after") == 1
    a, b = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("grid", "alone"))
    assert (a["grid"], a["cut"], b["grid"]) == ([2, 2], "", [1, 1])
    assert a["n_iter"] == b["n_iter"]
    assert max(abs(x - y) for x, y in zip(a["history"], b["history"])) < 1e-12 * 6300
    assert a["versions"]["mpi"] and b["versions"]["mpi"] is None
    again = mpirun(2, [*FIT, "--demo", "--out", "grid"], cwd=tmp_path)
    assert again.code == 2 and len(lines(again.err, "mixle_mpi.fit: error: ")) == 1


def test_not_converged_passes_the_launcher(mpirun, tmp_path):
    """O06."""
    run = mpirun(2, [*FIT, "--demo", "--max-iter", "2", "--require-convergence", "--quiet"], cwd=tmp_path)
    assert run.code == 5
    assert json.loads((tmp_path / "runs/demo/result.json").read_text())["exit_code"] == 5


def test_a_launcher_of_another_mpi_is_found_out(python, tmp_path):
    run = python(*FIT, "--demo", cwd=tmp_path, environment={"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"})
    assert run.code == 2
    assert "the launcher started 4 ranks, but MPI counts 1" in run.err
