"""`fit --dry-run`: the data are read and checked, the plan is printed, nothing is fitted or written."""

from __future__ import annotations

import os

import pytest
from conftest import LAUNCHERS, ROOT

from mixle_mpi.commands.fit import main

NODE = str(ROOT / "slurm" / "machines" / "node.toml")
DRY = ["-m", "mixle_mpi.fit", "--demo", "--dry-run"]


def test_the_plan_knows_the_data(python, tmp_path):
    run = python(*DRY, "--ranks", "4096", "--memory", "4GB", cwd=tmp_path)
    assert run.code == 0, run.err
    assert run.out.startswith("plan for the demo: 344 rows, 4,096 ranks with 4 GB each")
    assert "levels" not in run.out  # counted, not assumed
    assert "who holds what" in run.out and "core-hours" in run.out
    assert list(tmp_path.iterdir()) == []


def test_the_grid_that_was_asked_for_is_the_one_that_is_planned(python, tmp_path):
    run = python(*DRY, "--ranks", "6", "--grid", "3x2", "--cut", "component_*", cwd=tmp_path)
    assert run.code == 0, run.err
    assert "-> 3 x 2       component_*" in run.out
    assert "3 data shards of at most 115 rows" in run.out


def test_what_does_not_fit_is_exit_code_3(python, tmp_path):
    run = python(*DRY, "--ranks", "2", "--memory", "1KB", cwd=tmp_path)
    assert run.code == 3 and "Does not fit" in run.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--demo", "--ranks", "4"], "--ranks says what a dry run plans for: it needs --dry-run"),
        (["--demo", "--ranks-per-node", "4"], "--ranks-per-node needs --machine"),
        (["--demo", "--machine", NODE], "the machine has 64 cores for one rank each, but there is 1 rank"),
        (["--demo", "--machine", "no.toml"], "no.toml"),
        (["--demo", "--dry-run", "--ranks", "4", "--grid", "3x1"], "grid: 3 x 1 are not 4 ranks"),
        (["--demo", "--dry-run", "--cut", "component_9", "--ranks", "2"], "nodes that can: '' (the root)"),
        (["--demo", "--dry-run", "--ranks", "2", "--grid", "2x1", "--tune"], "tune chooses among grids"),
        (["--demo", "--dry-run", "--ranks", "1e18"], "more than the 16777216 that can be planned for"),
        (["--demo", "--dry-run", "--ranks", "2", "--memory", "1e400"], "is not a number of bytes"),
        (["--demo", "--dry-run", "--ranks", "2", "--memory", "."], "is not a number of bytes"),
        (["--demo", "--dry-run", "--data", "no.csv"], "no.csv"),
        (["--demo", "--dry-run", "--ranks", "many"], "--ranks many: not a number"),
    ],
)
def test_refusals(tmp_path, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(LAUNCHERS)]:
        monkeypatch.delenv(name)
    assert main(arguments) in (2, 74)
    assert says in capsys.readouterr().err
