"""The answer does not depend on the grid: real MPI. One launch for each number of ranks runs all trees;
4 x 4 is in test_mpi_sixteen.py."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "grids_program.py"
SHAPES = {1: ["1x1"], 2: ["2x1", "1x2"], 3: ["3x1", "1x3"], 4: ["2x2", "1x4", "4x1"], 6: ["3x2", "2x3"]}


@pytest.mark.parametrize("ranks", SHAPES)
def test_grids_equal_serial(mpirun, ranks):
    run = mpirun(ranks, [PROGRAM, *SHAPES[ranks]], timeout=150)
    lines = run.out.splitlines()
    assert run.code == 0, run.out + run.err
    assert "DIFFERENT" not in run.out
    assert sum(line.startswith("same") for line in lines) == len(lines) >= 5
    for shape in SHAPES[ranks]:
        if not shape.endswith("x1"):  # one tree cut at three different nodes
            for cut in (None, "v", "e/of"):
                assert f"same 'nested' {shape} cut={cut!r}" in run.out


def test_reduction_left_out_fails(mpirun):
    """The negative control: without the sum over the data axis the same comparison must fail."""
    run = mpirun(2, [PROGRAM, "2x1", "--control"], timeout=150)
    assert run.code != 0
    assert "DIFFERENT 'nested' 2x1" in run.out
