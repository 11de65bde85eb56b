"""What the environment says: launchers and threads."""

from __future__ import annotations

import json

import pytest

from mixle_mpi.commands.launch import THREADS, Launch, default_threads, launch


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "3"}, Launch(3, 4)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Launch(1, 2)),
        ({"PMIX_RANK": "5"}, Launch(5, None)),
        ({"SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}, None),
        ({"SLURM_PROCID": "2", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}, Launch(2, 8)),
        ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}, None),
        ({"SLURM_PROCID": "2", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "PMIX_RANK": "2"}, Launch(2, 8)),
    ],
)
def test_launchers_are_known_by_their_variables(environment, expected):
    assert launch(environment) == expected


def test_threads_default_to_one_and_what_is_set_stays():
    environment = {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": ""}
    assert default_threads(environment) == 4
    assert environment == dict.fromkeys(THREADS, "1") | {"OMP_NUM_THREADS": "4"}


def test_the_front_door_sets_threads_before_numpy_is_imported(python):
    """P06."""
    script = """
import json, os, sys
import mixle_mpi.fit
assert "numpy" not in sys.modules
mixle_mpi.fit.main(["--demo", "--print-config"])
assert "numpy" in sys.modules
print(json.dumps({n: os.environ[n] for n in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS")}))
"""
    run = python("-c", script, environment=dict.fromkeys(THREADS, "") | {"OPENBLAS_NUM_THREADS": "2"})
    assert run.code == 0, run.err
    assert json.loads(run.out.splitlines()[-1]) == {
        "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "2",
    }  # fmt: skip


@pytest.mark.parametrize("command", ["fit", "score"])
def test_help_imports_nothing_heavy(python, command):
    """P15."""
    run = python("-X", "importtime", "-m", f"mixle_mpi.{command}", "--help")
    assert run.code == 0
    assert "Exit codes" in run.out or "posterior" in run.out
    imported = {line.split("|")[-1].strip().split(".")[0] for line in run.err.splitlines()}
    assert not imported & {"numpy", "scipy", "pandas", "matplotlib", "pyarrow", "numba", "mpi4py"}


def test_a_job_without_a_launcher_does_not_load_mpi(python, tmp_path):
    script = """
import sys
from mixle_mpi.commands.fit import main
code = main(["--demo", "--quiet", "--max-iter", "1", "--tol", "none"])
assert "mpi4py.MPI" not in sys.modules
sys.exit(code)
"""
    run = python("-c", script, cwd=tmp_path)
    assert (run.code, run.out, run.err) == (0, "", "")
