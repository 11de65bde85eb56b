"""Grids of up to 16 ranks under real MPI, in one launch: the answer is that of one rank, and counted is planned."""

from __future__ import annotations

from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "sixteen_program.py"
# a grid and how many models are counted on it, each with its first cut; those of three are every other
MODELS = {"3x2": 6, "2x3": 6, "4x2": 3, "2x4": 3, "3x3": 3, "3x4": 3, "4x3": 3, "4x4": 6}


@pytest.fixture(scope="module")
def lines(mpirun):
    """What is printed."""
    run = mpirun(16, [PROGRAM, *MODELS], timeout=300)
    assert run.code == 0, run.out + run.err
    return run.out.splitlines()


def test_4x4_equals_serial(lines):
    compared = [line for line in lines if " cut=" in line and "log likelihood" in line]
    assert len(compared) >= 5 and all(line.startswith("same") for line in compared)


def test_16_ranks_are_busy_with_one_row(lines):
    (line,) = (line for line in lines if "two mixtures of 8" in line)
    assert line.startswith("same two mixtures of 8, one row, 1x16: 16 of 16 ranks did a sixteenth of the work")


def test_random_trees_that_are_cut_as_planned(lines):
    trees = [line for line in lines if " tree " in line]
    assert len(trees) == 3 and all(line.startswith("same tree") for line in trees)


def test_counted_is_planned(lines):
    counted = [line for line in lines if "log likelihood" not in line and " tree " not in line]
    assert all(line.endswith("counted as planned") for line in counted)
    for shape, models in MODELS.items():
        assert sum(f" {shape} cut=" in line for line in counted) == models
    assert sum(line.startswith("sequences") for line in counted) == 8
    assert sum(line.startswith("documents") for line in counted) == 12
