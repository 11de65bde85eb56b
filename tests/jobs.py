"""Jobs that run in the background, to be signalled and killed: the fit of a small table, slowed down."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from conftest import LAUNCHERS, MPI, ROOT, find_mpirun

SLOW_FIT = ROOT / "tests" / "slow_fit.py"
RUN_FILE = """
[data]
path = "rows.csv"
[model]
type = "mixture"
components = 4
[model.component]
type = "record"
[model.component.fields]
x = { type = "gaussian" }
y = { type = "optional", of = { type = "gaussian" } }
kind = { type = "categorical", pseudo_count = 1 }
[fit]
max_iter = 40
tol = "none"
"""


def write_case(directory: Path, rows: int = 600) -> None:
    """A table and `run.toml`, which makes 40 iterations."""
    rng = np.random.default_rng(7)
    group = rng.integers(0, 4, rows)
    x, y = rng.normal(2.0 * group, 1.0), rng.normal(-1.0 * group, 1.5)
    lines = [f"{a!r},{'' if rng.random() < 0.1 else repr(b)},{'abcd'[(g + (rng.random() < 0.3)) % 4]}"
             for a, b, g in zip(x.tolist(), y.tolist(), group)]  # fmt: skip
    (directory / "rows.csv").write_text("x,y,kind\n" + "\n".join(lines) + "\n")
    (directory / "case.toml").write_text(RUN_FILE)


def is_mpich() -> bool:
    """Whether the launcher is MPICH's."""
    version = subprocess.run([find_mpirun(), "--version"], capture_output=True, text=True, timeout=60)
    return "HYDRA" in version.stdout


class Job:
    """`fit` on n ranks, 0 for no launcher, each iteration taking `pause` seconds more; output in `cwd`/out.

    All ranks are data shards, unless there is another `--grid` among the words.
    """

    def __init__(self, ranks: int, cwd: Path, *words, pause: float = 0.0, environment: dict | None = None):
        self.ranks, self.cwd, self.out = ranks, cwd, cwd / "out"
        for old in cwd.glob("pid-*"):
            old.unlink()
        launcher = [find_mpirun(), "-n", str(ranks)] if ranks else []
        grid = [] if ranks < 2 else ["--grid", f"{ranks}x1"]
        fit = ["case.toml", "--out", "out", "--resume", *grid, *words]
        command = [*launcher, sys.executable, SLOW_FIT, pause, "--", *fit]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.files = [open(cwd / name, "w+") for name in ("stdout", "stderr")]
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=self.files[0], stderr=self.files[1], cwd=cwd,
            env=kept | MPI | {"PYTHONPATH": path} | (environment or {}), start_new_session=True,
        )  # fmt: skip

    def lines(self) -> list[dict]:
        """The complete lines of metrics.jsonl."""
        try:
            return [json.loads(s) for s in (self.out / "metrics.jsonl").read_text().splitlines(True) if s[-1] == "\n"]
        except FileNotFoundError:
            return []

    def wait_for(self, iteration: int, limit: float = 60.0) -> None:
        """Until the line of an iteration is there."""
        end = time.monotonic() + limit
        while not any(line["iteration"] >= iteration for line in self.lines()):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"no iteration {iteration}: code {self.process.poll()}\n{self.printed()}")
            time.sleep(0.01)

    def pids(self) -> list[int]:
        """The process of each rank, in rank order."""
        return [int((self.cwd / f"pid-{rank}").read_text()) for rank in range(max(self.ranks, 1))]

    def kill_all(self) -> None:
        """SIGKILL to all ranks and to the launcher."""
        for pid in [*self.pids(), self.process.pid] if self.ranks else [self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.end()

    def end(self, limit: float = 60.0) -> int:
        """Wait, and return the exit code that a shell would see."""
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise AssertionError(f"not done after {limit} s\n{self.printed()}") from None
        return code if code >= 0 else 128 - code

    def printed(self) -> str:
        """Output and errors."""
        return "\n".join((self.cwd / name).read_text() for name in ("stdout", "stderr"))


def result(job: Job) -> dict:
    return json.loads((job.out / "result.json").read_text())


def arrays(directory: Path) -> dict[str, bytes]:
    """The bytes of each matrix of parameters of a saved model."""
    with np.load(directory / "model.npz") as found:
        return {name: found[name].tobytes() for name in found.files}
