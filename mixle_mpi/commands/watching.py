"""How a command is asked to end, and whether there is anything left to do: signals, time limits, finished runs."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mixle_mpi.commands.ending import DONE, NOT_CONVERGED, NUMERICAL, STOPPED, say
from mixle_mpi.contract.errors import DataError, ModelError

SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)
SAME = 0.5  # seconds in which a second signal is the first: a launcher and SLURM may both deliver one
FINISHED = ("converged", "max_iter", "decreased")
FROZEN = ("seed", "init", "starts")


class Signals:
    """Signals that ask this rank to end. A context: they are taken within it.

    The first is only noted; the second ends the process at once, with 128 + its number. A thread of its own
    reads them from a pipe, as Python runs no handler while a rank waits for the others in MPI.
    """

    def __init__(self, name: str):
        self._name = name
        self._first: int | None = None
        self._since = 0.0

    def asked(self) -> str | None:
        """The name of the signal that came, or None."""
        return None if self._first is None else signal.Signals(self._first).name

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._old_pipe = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, _nothing) for number in SIGNALS}
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind, error, trace) -> None:
        for number, old in self._old.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)
        signal.set_wakeup_fd(self._old_pipe)
        os.close(self._write)
        self._thread.join()
        os.close(self._read)

    def _listen(self) -> None:
        while byte := os.read(self._read, 1):
            if byte[0] in SIGNALS:
                self._note(byte[0])

    def _note(self, number: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first, self._since = number, now
        elif now - self._since > SAME:
            end_at_once(self._name, number)


def _nothing(number, frame) -> None:
    """The handler: Python writes the number to the pipe before it would come here."""


def end_at_once(name: str, number: int) -> None:
    """End this process, and all ranks with it, with 128 + the number of a signal."""
    say(f"{name}: {signal.Signals(number).name}: the second signal ends it at once", sys.stderr)
    if "mpi4py.MPI" in sys.modules:
        from mixle_mpi.execution.grid import abort

        last = threading.Timer(1.0, os._exit, (128 + number,))  # should the abort itself have to wait
        last.daemon = True
        last.start()
        abort(128 + number)
    os._exit(128 + number)


def seconds_of_setting(value) -> float | None:
    """Seconds of `fit.max_time`; a time of TOML is HH:MM:SS. None for what is no time."""
    from mixle_mpi.execution.stopping import seconds_of

    return seconds_of(value.isoformat() if type(value).__name__ == "time" else value)


def time_limit(fit: dict, environment=os.environ) -> tuple[float, str] | None:
    """Seconds from now until a fit must have ended, and who says so; None without a limit."""
    asked = fit["max_time"]
    if asked == "none":
        return None
    if asked != "auto":
        return (seconds_of_setting(asked) or 0.0) - process_age(), f"max_time {asked}"
    end = environment.get("SLURM_JOB_END_TIME", "")
    return (int(end) - time.time(), "SLURM_JOB_END_TIME") if end.isascii() and end.isdigit() else None


def process_age() -> float:
    """Seconds since this process began: importing on many nodes may take minutes, which count."""
    # the fields after the name of the program, which may have blanks in it; the start is the 22nd of all
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def checkpoint_lines(settings: dict, limit: tuple[float, str] | None) -> list[str]:
    """When there will be checkpoints, and when the fit must have ended."""
    every = settings["output"]["checkpoint_every"]
    lines = [f"a checkpoint {f'every {every:g} minutes' if every else 'after each iteration'}"]
    if limit is not None:
        lines.append(f"to end in {clock_time(limit[0])} ({limit[1]})")
    return [", ".join(lines)]


def clock_time(seconds: float) -> str:
    """Seconds as D-HH:MM:SS."""
    whole = max(int(seconds), 0)
    days, rest = divmod(whole, 86400)
    return (f"{days}-" if days else "") + f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def finished(place: Path, settings: dict) -> dict[str, Any] | None:
    """The `result.json` of a fit that has nothing left to do, or None.

    A finished fit has more to do where `max_iter` was raised, or `tol` made smaller, since.

    Raises
    ------
    ModelError
        When it is the result of another model, other data or another start, naming the key.
    DataError
        When `result.json` cannot be understood.
    """
    from mixle_mpi.commands.settings import read
    from mixle_mpi.execution.checkpoint import exists
    from mixle_mpi.execution.fingerprint import differences

    path = place / "result.json"
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        status, n_iter = found["status"], found["n_iter"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: truncated or not a result ({error})") from None
    if status not in FINISHED:
        return None
    before = read(place / "run.toml")
    if exists(place) and settings["fit"]["starts"] == 1:
        more = status == "max_iter" and settings["fit"]["max_iter"] > n_iter
        if more or (status == "converged" and stricter(settings["fit"]["tol"], before["fit"]["tol"])):
            return None
    keys = [*FROZEN, *(("max_iter", "tol") if settings["fit"]["starts"] > 1 else ())]
    now, then = ({"data": s["data"], "model": s["model"], "fit": {k: s["fit"].get(k) for k in keys}}
                 for s in (settings, before))  # fmt: skip
    other = differences(now, then)
    if other:
        raise ModelError(f"{place} holds the result of another run: {'; '.join(other[:3])}; --overwrite replaces it")
    return found


def stricter(now, before) -> bool:
    """Whether a tolerance is smaller than another; "none" is the smallest."""
    return (0.0 if now == "none" else float(now)) < (0.0 if before == "none" else float(before))


def code_of(status: str, fit: dict) -> int:
    """The exit code of a fit that came to an end."""
    if status == "decreased":
        return NUMERICAL
    if status == "stopped":
        return STOPPED
    return NOT_CONVERGED if fit["require_convergence"] and status != "converged" else DONE
