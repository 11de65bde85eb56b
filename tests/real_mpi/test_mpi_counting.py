"""Counted is planned under real MPI: payload bytes, messages, rows, shapes, M-step members; larger grids are in
test_mpi_sixteen.py."""

from __future__ import annotations

from pathlib import Path

PROGRAM = Path(__file__).parent / "counting_program.py"
SHAPES = ["1x1", "2x1", "1x2", "3x1", "1x3", "4x1", "2x2", "1x4"]


def test_counted_is_planned(mpirun):
    run = mpirun(4, [PROGRAM, *SHAPES], timeout=300)
    lines = run.out.splitlines()
    assert run.code == 0, run.out + run.err
    assert all(line.endswith("counted as planned") for line in lines)
    for shape in SHAPES:
        of = [line for line in lines if f" {shape} " in line and not line.startswith(("sequences", "documents"))]
        assert len(of) == (6 if shape.endswith("x1") else 10)
    assert sum(line.startswith("sequences") for line in lines) == 34
    assert sum(line.startswith("documents") for line in lines) == 36


def test_a_heavy_m_step_is_shared(mpirun):
    """K = 256, d = 128 on 4 x 1: a quarter of the members each, bytes as planned, equal to serial."""
    run = mpirun(4, [PROGRAM.with_name("wide_program.py")], timeout=300)
    assert run.code == 0, run.out + run.err
    assert "[64, 64, 64, 64]; serial 256" in run.out
