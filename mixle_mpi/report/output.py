"""The output directory of a fit: settings, one line an iteration, the model, the result."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.execution.result import Iteration, Result
from mixle_mpi.execution.saved import replace_file
from mixle_mpi.report.versions import versions

SCHEMA = 1
FILES = ("run.toml", "metrics.jsonl", "model.npz", "model.json", "result.json")  # in the order they are put in place
UNFINISHED = "unfinished"


class Output:
    """The files of one fit; of rank 0 only.

    Where the directory holds a result already, the new files are made in the folder `unfinished` in it,
    and take the places of the old ones when they are complete.
    """

    def __init__(self, directory: Path):
        self.directory = self._at = directory

    def open(self, settings: str, overwrite: bool) -> None:
        """Make the directory and write `run.toml`.

        Raises
        ------
        ModelError
            When there is a result and `overwrite` is False; nothing is touched.
        OSError
            When the directory cannot be made or written.
        """
        old = [name for name in FILES if name.startswith(("result", "model")) and (self.directory / name).exists()]
        if old and not overwrite:
            raise ModelError(f"{self.directory} holds a result ({', '.join(old)}); --overwrite replaces it")
        if old:
            self._at = self.directory / UNFINISHED
        self._at.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (self._at / name).unlink(missing_ok=True)
        self._write("run.toml", settings)
        self._metrics = open(self._at / "metrics.jsonl", "w", encoding="utf-8")

    def add(self, iteration: Iteration) -> None:
        """Write the line of an iteration to `metrics.jsonl`."""
        line = {
            "iteration": iteration.n_iter,
            "log_likelihood": finite(iteration.log_likelihood),
            "per_row": finite(iteration.per_row),
            "change": finite(iteration.change),
            "seconds": round(iteration.seconds, 6),
        }
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()

    def save(self, model) -> None:
        """Write the model."""
        model.save(self._at)

    def done(self, result: Result, fit: dict, seconds: dict[str, float], exit_code: int) -> None:
        """Write `result.json` of a fit that ended, and put all files in their places."""
        found = {
            "status": result.status,
            "converged": result.converged,
            "log_likelihood": finite(result.log_likelihood),
            "history": [finite(v) for v in result.history],
            "n_iter": result.n_iter,
            "n_rows": result.n_rows,
            "effective_rows": result.effective_rows,
            "n_parameters": result.n_parameters,
            "bic": finite(result.bic),
            "aic": finite(result.aic),
            "impossible_rows": result.impossible,
            "dead_components": result.dead,
            "grid": list(result.grid),
            "cut": result.cut,
            "seconds": seconds,
            "bytes": {"statistics": result.statistics_bytes},
        }
        self._close(found, fit, exit_code)
        if self._at != self.directory:
            for name in FILES:
                os.replace(self._at / name, self.directory / name)
            self._at.rmdir()

    def failed(self, message: str, fit: dict, grid: tuple[int, int], exit_code: int) -> None:
        """Write `result.json` of a fit that failed; an old result keeps its place."""
        found = {
            "status": "failed", "converged": False, "message": message, "log_likelihood": None, "history": [],
            "n_iter": 0, "n_rows": None, "n_parameters": None, "bic": None, "aic": None,
            "grid": list(grid), "cut": fit.get("cut"), "seconds": {}, "bytes": {},
        }  # fmt: skip
        self._metrics.flush()
        lines = (self._at / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        if lines:
            found["history"] = [json.loads(line)["log_likelihood"] for line in lines]
            found["log_likelihood"] = found["history"][-1]
            found["n_iter"] = len(lines) - 1
        self._close(found, fit, exit_code)

    def _close(self, found: dict, fit: dict, exit_code: int) -> None:
        os.fsync(self._metrics.fileno())
        self._metrics.close()
        document = {"schema": SCHEMA} | found | {"seed": fit["seed"], "exit_code": exit_code, "versions": versions()}
        self._write("result.json", json.dumps(document, indent=1, allow_nan=False) + "\n")

    def _write(self, name: str, text: str) -> None:
        replace_file(self._at / name, lambda file: file.write(text.encode()))


def finite(value: float | None) -> float | None:
    """The number, None where JSON has no word for it."""
    return value if value is not None and math.isfinite(value) else None
