"""Starts on grids side by side under real MPI."""

from __future__ import annotations

from pathlib import Path

PROGRAM = Path(__file__).parent / "starts_program.py"


def test_five_ranks_make_the_starts_of_one(mpirun):
    run = mpirun(5, [PROGRAM], timeout=100)
    assert run.code == 0, run.out + run.err
    lines = run.out.splitlines()
    assert len(lines) == 11 and all(line.startswith("same") for line in lines), run.out
