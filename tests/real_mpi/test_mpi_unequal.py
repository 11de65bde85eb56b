"""Ranks of unequal speed under real MPI: rows and units as planned by what was measured, or given."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "unequal_program.py"


def sizes(borders: list[int]) -> list[int]:
    return [b - a for a, b in pairwise(borders)]


@pytest.mark.timed
def test_a_rank_of_a_third_of_the_speed_gets_a_quarter(mpirun, tmp_path):
    run = mpirun(2, [PROGRAM, "measured"], timeout=90, environment={"MIXLE_MPI_CACHE": tmp_path})
    assert run.code == 0, run.err
    found = json.loads(run.out)
    rows, units = found["rows"], found["units"]
    assert rows["counted_rows"] == sizes(rows["rows"])
    assert 0.2 < rows["counted_rows"][1] / 100_000 < 0.3, found["throughputs"]
    assert units["counted_densities"] == [400 * held for held in sizes(units["bounds"])]
    assert 0.2 <= sizes(units["bounds"])[1] / 40 <= 0.3, found["throughputs"]
    assert max(rows["off"], units["off"]) < 1e-12
    for what in ("rows", "units"):
        even, dealt = found[what]["seconds"]
        print(f"{what}: {1e3 * even:.1f} ms an iteration with even borders, {1e3 * dealt:.1f} ms by throughput")


def test_rows_and_units_by_given_throughputs(mpirun, tmp_path):
    run = mpirun(4, [PROGRAM, "given"], timeout=90, environment={"MIXLE_MPI_CACHE": tmp_path})
    assert run.code == 0, run.err
    mixed = json.loads(run.out)["mixed"]
    rows, units = sizes(mixed["rows"]), sizes(mixed["bounds"])
    assert 0.7 < rows[0] / 30_000 < 0.9 and 0.7 < units[0] / 30 < 0.9
    assert mixed["counted_rows"] == [rows[0], rows[0], rows[1], rows[1]]
    assert mixed["counted_densities"] == [n * k for n in rows for k in units]
    assert mixed["off"] < 1e-12
