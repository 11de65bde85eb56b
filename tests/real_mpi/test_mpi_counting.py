"""Counted is planned under real MPI: payload bytes, messages, rows, shapes, M-step members, on 1x1 to 4x4."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "counting_program.py"
SHAPES = {
    4: ["1x1", "2x1", "1x2", "3x1", "1x3", "4x1", "2x2", "1x4"],
    16: ["3x2", "2x3", "4x2", "2x4", "3x3", "3x4", "4x3", "4x4"],
}


@pytest.mark.parametrize("ranks", SHAPES)
def test_counted_is_planned(mpirun, ranks):
    run = mpirun(ranks, [PROGRAM, *SHAPES[ranks]], timeout=300)
    lines = run.out.splitlines()
    assert run.code == 0, run.out + run.err
    assert all(line.endswith("counted as planned") for line in lines)
    for shape in SHAPES[ranks]:
        of = [line for line in lines if f" {shape} " in line and not line.startswith("sequences")]
        d, m = map(int, shape.split("x"))
        assert len(of) == (10 if m > 1 and d * m <= 4 else 3 if 6 < d * m < 16 else 6)
    chains = [line for line in lines if line.startswith("sequences")]
    assert len(chains) == {4: 34, 16: 8}[ranks]


def test_a_heavy_m_step_is_shared(mpirun):
    """K = 256, d = 128 on 4 x 1: a quarter of the members each, bytes as planned, equal to serial."""
    run = mpirun(4, [PROGRAM.with_name("wide_program.py")], timeout=300)
    assert run.code == 0, run.out + run.err
    assert "[64, 64, 64, 64]; serial 256" in run.out
