"""P07: many ranks and an empty cache, and caches that cannot be written."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import mixle_mpi

PACKAGE = Path(mixle_mpi.__file__).parent
FIT = ["-m", "mixle_mpi.fit", "--demo", "--quiet", "--max-iter", "1", "--tol", "none", "--overwrite", "--out", "out"]


def cold_start(mpirun, directory: Path, grid: str = "8x1") -> dict:
    """A fit of the demo on 8 ranks of one node with an empty cache; what its result says of the compilation."""
    cache = directory / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    run = mpirun(8, [*FIT, "--grid", grid], timeout=150, cwd=directory, environment={"NUMBA_CACHE_DIR": str(cache)})
    assert run.code == 0, run.err
    assert "Traceback" not in run.err
    assert list(cache.rglob("*.nbc")), "nothing was cached"
    return json.loads((directory / "out/result.json").read_text())["accounting"]


def assert_one_compiles(found: dict) -> None:
    """One of 8 ranks compiled; the time is in its own row, and not in the loop's (two passes of 344 rows)."""
    compiled, phases = found["kernels_compiled"], found["phases"]
    assert len(compiled) == 8 and sum(n > 0 for n in compiled) == 1 and max(compiled) >= 3
    assert phases["compile"]["max"] > 0.1
    assert phases["score"]["max"] + phases["accumulate"]["max"] < phases["compile"]["max"]


@pytest.mark.parametrize("grid", ["8x1", "2x4"])
def test_one_rank_compiles_and_the_others_load_p07(mpirun, tmp_path, grid):
    assert_one_compiles(cold_start(mpirun, tmp_path, grid))


@pytest.fixture
def unwritable(tmp_path):
    """A copy of the package without a place for compiled kernels, and a home that is none. True for root too."""
    copy = tmp_path / "site" / "mixle_mpi"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "kernels" / "__pycache__").write_text("a file where a directory would be")
    (tmp_path / "home").write_text("")
    (tmp_path / "tmp").mkdir()
    return {
        "PYTHONPATH": str(copy.parent), "HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": "",
        "TMPDIR": str(tmp_path / "tmp"), "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": "",
    }  # fmt: skip


@pytest.mark.parametrize("given", [{}, {"NUMBA_CACHE_DIR": "/proc/nowhere"}])
def test_without_a_writable_cache_kernels_go_to_a_directory_of_ones_own_p07(python, tmp_path, unwritable, given):
    for compiled in (True, False):
        run = python(*FIT, cwd=tmp_path, environment=unwritable | given, timeout=100)
        assert run.code == 0, run.err
        kernels = json.loads((tmp_path / "out/result.json").read_text())["accounting"]["kernels_compiled"]
        assert (kernels[0] > 0) == compiled
    (made,) = (tmp_path / "tmp").glob("mixle_mpi-*")
    assert made.stat().st_mode & 0o77 == 0 and list(made.rglob("*.nbc"))


def test_a_directory_that_others_can_write_is_not_trusted(python, tmp_path, unwritable):
    theirs = tmp_path / "tmp" / f"mixle_mpi-{os.getuid()}"
    theirs.mkdir()
    theirs.chmod(0o777)
    run = python(*FIT, cwd=tmp_path, environment=unwritable, timeout=100)
    assert run.code == 0, run.err
    assert not list(theirs.rglob("*.nbc"))
