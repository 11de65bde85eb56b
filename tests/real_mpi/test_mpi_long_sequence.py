"""One long sequence over 1 to 4 ranks, divided in time or by states: equal to one rank, work as planned, real MPI."""

from __future__ import annotations

from pathlib import Path

PROGRAM = Path(__file__).parent / "long_sequence_program.py"


def test_one_sequence_keeps_all_ranks_busy(mpirun):
    run = mpirun(4, [PROGRAM], timeout=280)
    assert run.code == 0, run.out + run.err
    assert sum(line.startswith("same") for line in run.out.splitlines()) == 7
    assert "DIFFERENT" not in run.out and run.out.rstrip().endswith("on 4 ranks: 4 x 1")
