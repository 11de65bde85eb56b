"""`python -m mixle_mpi.plan`: what a user sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mixle_mpi.commands.plan import main

ROOT = Path(__file__).parents[2]
PENGUINS, MACHINES = str(ROOT / "examples" / "penguins.toml"), ROOT / "slurm" / "machines"

BIG = """
[model]
type = "mixture"
components = 20000
component = { type = "multivariate_gaussian", dim = 1000 }
"""


@pytest.mark.parametrize(
    ("ranks", "rows", "machine", "grid"),
    [(1, "344", "laptop", [1, 1]), (2, "1e6", "laptop", [2, 1]), (64, "1e6", "node", [64, 1]),
     (4096, "1e9", "cluster", [4096, 1])],
)  # fmt: skip
def test_penguins(capsys, ranks, rows, machine, grid):
    file = str(MACHINES / f"{machine}.toml")
    assert main([PENGUINS, "--ranks", str(ranks), "--rows", rows, "--machine", file, "--json", "--levels", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["grid"] == grid and found["fits"] and found["model_bytes"] == 8 * (3 + 3 * (4 * 2 + 4 * 3))
    assert found["seconds"]["total"] == pytest.approx(sum(v for k, v in found["seconds"].items() if k != "total"))
    assert found["tree"][0]["node"] == "mixture" and not {"levels of sex"} & set(found["assumed"])


def test_the_report_has_tree_table_sentence_times_and_drawing(capsys):
    assert main([PENGUINS, "--ranks", "4", "--rows", "2"]) == 0
    out = capsys.readouterr().out
    assert "component_*: record" in out and "-> 1 x 4" in out and "core-hours" in out
    assert "The 24 units of 4 nested nodes are divided over 4 model shards" in out
    assert "rank 3" in out and "rows 0" in out and "assumed: levels of species 16" in out


def test_what_does_not_fit_ends_with_3_and_advice(tmp_path, capsys):
    run = tmp_path / "big.toml"
    run.write_text(BIG)
    assert main([str(run), "--ranks", "1", "--rows", "1e6", "--memory", "1GB"]) == 3
    assert "Does not fit" in capsys.readouterr().out
    cluster = str(MACHINES / "cluster.toml")
    assert main([str(run), "--rows", "1e9", "--machine", cluster, "--ranks-per-node", "16"]) == 3
    assert "--ranks-per-node 8 fits" in capsys.readouterr().out
    assert main([str(run), "--rows", "1e9", "--machine", cluster, "--ranks-per-node", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"]["total"] <= 32 * 10**9 and found["grid"][1] > 1
    assert found["model_bytes"] == 8 * 20000 * (1 + 1000 + 1000 * 1000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rows", "0"], "--rows 0"),
        (["--rows", "1.5"], "--rows 1.5"),
        (["--rows", "5", "--levels", "speceis=3"], "did you mean 'species'"),
        (["--rows", "5", "--levels", "x"], "'x' is not a number"),
        (["--rows", "5", "--observed", "2"], "--observed 2"),
        (["--rows", "5", "--memory", "much"], "--memory = 'much'"),
        (["--rows", "5", "--ranks-per-node", "2"], "needs --machine"),
        (["--rows", "5", "--rnaks", "2"], "did you mean '--ranks'"),
        ([], "--rows"),
    ],
)
def test_refusals(capsys, options, message):
    assert main([PENGUINS, *options]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_file_ends_with_74(capsys, tmp_path):
    assert main([str(tmp_path / "none.toml"), "--rows", "5"]) == 74
    assert main([PENGUINS, "--rows", "5", "--machine", str(tmp_path / "none.toml")]) == 74


def test_no_mpi_numba_or_data_are_needed(tmp_path):
    run = tmp_path / "run.toml"
    run.write_text('[data]\npath = "there/is/none.csv"\n[model]\ntype = "poisson"\n')
    code = (
        "import sys; from mixle_mpi.commands.plan import main; code = main([sys.argv[1], '--rows', '100']); "
        "assert 'mpi4py' not in sys.modules and 'pandas' not in sys.modules; raise SystemExit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run)], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
