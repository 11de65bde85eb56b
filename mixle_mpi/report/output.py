"""The output directory of a fit: settings, one line an iteration, the model, the result."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path
from typing import Any, TextIO

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.execution import checkpoint
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

    Attributes
    ----------
    directory : what the user named
    place : where the files of this fit are, checkpoints among them: the directory, or the folder in it
    """

    def __init__(self, directory: Path):
        self.directory = self.place = directory
        self._settings = ""
        self._metrics: TextIO | None = None
        self._is_lossy = False

    def find(self) -> None:
        """Take the place of the last fit: the folder `unfinished` if one was begun there."""
        if (self.directory / UNFINISHED / "run.toml").exists():
            self.place = self.directory / UNFINISHED

    def open(self, settings: str, overwrite: bool, resume: bool = False) -> None:
        """Make the directory and write `run.toml`; to go on, only once the first pass is made.

        Raises
        ------
        ModelError
            When there is a result or checkpoint, with neither `overwrite` nor `resume`; nothing is touched.
        OSError
            When the directory cannot be made or written.
        """
        self._settings = settings
        if resume and checkpoint.exists(self.place):
            return
        old = [name for name in FILES if name.startswith(("result", "model")) and (self.place / name).exists()]
        again = resume and (self.place != self.directory or "result.json" in old)
        if not (overwrite or resume):
            self._refuse_unfinished()
        if old and not (overwrite or again):
            raise ModelError(f"{self.directory} holds a result ({', '.join(old)}); --overwrite replaces it")
        if old and overwrite:
            self.place = self.directory / UNFINISHED
        self.place.mkdir(parents=True, exist_ok=True)
        for name in (*FILES, *checkpoint.found_in(self.place)):
            (self.place / name).unlink(missing_ok=True)
        self._write("run.toml", settings)
        self._metrics = open(self.place / "metrics.jsonl", "w", encoding="utf-8")

    def _refuse_unfinished(self) -> None:
        """Raise ModelError when the directory holds a run that can go on."""
        for place in (self.directory / UNFINISHED, self.directory):
            if checkpoint.exists(place):
                status = _status(place / "result.json")
                how = {"stopped": "was stopped", None: "is unfinished"}.get(status)
                if how is not None:
                    files = [name for name in (*checkpoint.found_in(place), *FILES) if (place / name).exists()]
                    where = f"{UNFINISHED}/: " if place != self.directory else ""
                    raise ModelError(
                        f"{self.directory} holds a run that {how} ({where}{', '.join(files)}); "
                        "--resume goes on, --overwrite begins anew"
                    )

    def _go_on(self, first: Iteration) -> TextIO:
        """Write `run.toml`, and open `metrics.jsonl` behind its lines before an iteration."""
        self._write("run.toml", self._settings)
        path, kept = self.place / "metrics.jsonl", []
        if path.exists():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    at = json.loads(line)
                except json.JSONDecodeError:  # the line in which the run was killed
                    break
                if (at["start"], at["iteration"]) >= (first.start, first.n_iter):
                    break
                kept.append(line + "\n")
        replace_file(path, lambda file: file.write("".join(kept).encode()))
        return open(path, "a", encoding="utf-8")

    def add(self, iteration: Iteration) -> None:
        """Write the line of an iteration to `metrics.jsonl`. A full disk is warned of; the lines wait."""
        try:
            if self._metrics is None:
                self._metrics = self._go_on(iteration)
            self._line(self._metrics, iteration)
        except OSError as error:
            if not self._is_lossy:
                warnings.warn(f"{self.place / 'metrics.jsonl'} cannot be written: {error.strerror}")
            self._is_lossy = True

    def _line(self, file: TextIO, iteration: Iteration) -> None:
        line = {
            "start": iteration.start,
            "iteration": iteration.n_iter,
            "log_likelihood": finite(iteration.log_likelihood),
            "per_row": finite(iteration.per_row),
            "change": finite(iteration.change),
            "seconds": round(iteration.seconds, 6),
        }
        file.write(json.dumps(line) + "\n")
        file.flush()

    def save(self, model) -> None:
        """Write the model."""
        model.save(self.place)

    def done(self, result: Result, fit: dict, seconds: dict[str, float], exit_code: int, record: dict) -> None:
        """Write `result.json` of a fit that ended, and put all files in their places unless it was stopped.

        `record` is what is known of the run beside its result.
        """
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
            "starts": [
                {
                    "start": of["start"],
                    "seed": fit["seed"] + of["start"],
                    "status": of["status"],
                    "n_iter": of["n_iter"],
                    "log_likelihood": finite(of["history"][-1]),
                    "history": [finite(v) for v in of["history"]],
                    "message": of["message"],
                }
                | {name: of[name] for name in ("grid", "ranks") if name in of}
                for of in result.starts
            ],
            "best_start": result.best_start,
            "grid": list(result.grid),
            "cut": result.cut,
            "groups": result.groups,
            "seconds": seconds,
            "bytes": {"statistics": result.statistics_bytes},
        }
        self._close(found | record, fit, exit_code)
        if self.place != self.directory and result.status != "stopped":
            states = {*checkpoint.found_in(self.place), *checkpoint.found_in(self.directory)}
            for name in (*sorted(states), *FILES):
                if (self.place / name).exists():
                    os.replace(self.place / name, self.directory / name)
                else:
                    (self.directory / name).unlink(missing_ok=True)
            for half in self.place.glob("*.part"):  # of a run that was killed
                half.unlink()
            self.place.rmdir()
            self.place = self.directory

    def failed(self, message: str, fit: dict, plan: dict[str, Any], exit_code: int) -> None:
        """Write `result.json` of a fit that failed on a grid, `Choice.as_data`; an old result keeps its place."""
        found: dict[str, Any] = {
            "status": "failed", "converged": False, "message": message, "log_likelihood": None, "history": [],
            "n_iter": 0, "n_rows": None, "n_parameters": None, "bic": None, "aic": None,
            "grid": plan["grid"], "cut": plan["cut"], "plan": plan, "seconds": {}, "bytes": {},
        }  # fmt: skip
        lines = []
        if self._metrics is not None:
            self._metrics.flush()
            lines = (self.place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        if lines:
            found["history"] = [json.loads(line)["log_likelihood"] for line in lines]
            found["log_likelihood"] = found["history"][-1]
            found["n_iter"] = len(lines) - 1
        self._close(found, fit, exit_code)

    def _close(self, found: dict, fit: dict, exit_code: int) -> None:
        if self._metrics is not None:
            self._metrics.flush()
            os.fsync(self._metrics.fileno())
            self._metrics.close()
        document = {"schema": SCHEMA} | found | {"seed": fit["seed"], "exit_code": exit_code, "versions": versions()}
        self._write("result.json", json.dumps(document, indent=1, allow_nan=False) + "\n")

    def _write(self, name: str, text: str) -> None:
        replace_file(self.place / name, lambda file: file.write(text.encode()))


def _status(path: Path) -> str | None:
    """The status in a `result.json`, "" where it cannot be read, None without one."""
    if not path.exists():
        return None
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["status"])
    except (ValueError, KeyError, TypeError):
        return ""


def finite(value: float | None) -> float | None:
    """The number, None where JSON has no word for it."""
    return value if value is not None and math.isfinite(value) else None
