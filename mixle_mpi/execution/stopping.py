"""When a fit is saved and when it ends early, and how it goes on: the `Watch` of a directory.

Rank 0 alone looks at the clock and at the directory, and alone writes; any rank may have had a signal.
What they want travels in the header of the iteration, so that all ranks stop, or save, after the same one.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.data.table import on_first
from mixle_mpi.execution import checkpoint as files
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.checkpoint import Checkpoint
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.fingerprint import differences
from mixle_mpi.execution.loop import State, Watch
from mixle_mpi.execution.shard import compile_tree, layout_of
from mixle_mpi.execution.whole import whole_rows, whole_theta

STOP, SAVE = "STOP", "CHECKPOINT"  # files that a user makes in the directory
EVERY = 15.0  # minutes


class Checkpoints(Watch):
    """Saves a fit to a directory, goes on from there, and ends it in time.

    Parameters
    ----------
    directory : where `state.npz` and `state_prev.npz` are
    every : minutes between checkpoints; 0 is after each iteration
    resume : go on from the checkpoint, if there is one
    seconds : for how long from now the fit may run, rank 0's; None for any time
    asked : the name of a signal that reached this rank and asks for an end, or None; must not block
    asking : the directory of the files STOP and CHECKPOINT, by default `directory`
    tell : takes a line for the user, on rank 0
    clock : seconds from any origin; rank 0's counts

    Attributes
    ----------
    grid : what checkpoints are to keep of the grid, `Choice.record`
    """

    def __init__(
        self,
        directory,
        *,
        every: float = EVERY,
        resume: bool = False,
        seconds: float | None = None,
        asked: Callable[[], str | None] = lambda: None,
        asking=None,
        tell: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.directory = Path(directory)
        self.reason = ""
        self._every, self._resume, self._asked, self._tell, self._clock = 60.0 * every, resume, asked, tell, clock
        self._asking = self.directory if asking is None else Path(asking)
        self._end = None if seconds is None else clock() + seconds
        self._saved = self._lap = clock()
        self._laps = 0
        self._longest = self._cost = 0.0
        self._is_saved = False
        self._bad_newest = False
        self._run: dict = {}
        self._first = True
        self.grid: dict | None = None
        self._ahead: Checkpoint | None = None
        self._relayed = False

    # -- what this rank wants ----------------------------------------------------------------------

    def wishes(self, n_iter: int) -> tuple[bool, bool]:
        """See `Watch.wishes`."""
        signal = self._asked()
        self.reason = "" if signal is None else signal
        if not self._first:
            return signal is not None, False
        now = self._clock()
        lap, self._lap = now - self._lap, now
        # before the first pass has been repeated, its time with compilation is all there is to go by
        self._longest = max(lap, self._longest) if self._laps > 1 else lap
        self._laps += 1
        if signal is None and self._end is not None and now + self._longest + self._cost > self._end:
            self.reason = "the time limit"
        elif signal is None and os.path.exists(self._asking / STOP):
            self.reason = f"the file {STOP}"
        # with a limit the first checkpoint comes at once: only then is known what one costs
        unmeasured = self._end is not None and not self._is_saved
        save = unmeasured or now - self._saved >= self._every or os.path.exists(self._asking / SAVE)
        return bool(self.reason), save

    def relay(self) -> None:
        """Leave the file STOP for a signal that reached a rank outside of the grid; see `Watch.relay`."""
        if not self._relayed and self._asked() is not None:
            self._relayed = True
            with contextlib.suppress(OSError):
                (self._asking / STOP).touch()

    # -- saving ------------------------------------------------------------------------------------

    def save(self, executor: Executor, state: State, best_theta: np.ndarray | None, occasion="between") -> None:
        """See `Watch.save`. A failure to write is a warning; OSError on all ranks where a fit is stopped."""
        began = self._clock()
        grid = executor.grid
        theta = whole_theta(executor, everyone=False)
        best = None if best_theta is None else whole_theta(executor, best_theta, everyone=False)
        rows = whole_rows(executor)
        if occasion == "stopped":
            self.reason = _in_words(grid.world.allgather(self.reason))
        try:
            on_first(grid.world, lambda: self._write(executor, state, theta, best, rows, occasion != "between"))
        except OSError as error:
            if occasion == "stopped":
                raise
            if self._first:
                warnings.warn(f"no checkpoint after iteration {state.n_iter - 1}, the one before stands: {error}")
        self._saved = self._lap = self._clock()
        self._cost, self._is_saved = max(self._cost, self._saved - began), True

    def _write(self, executor: Executor, state: State, theta, best, rows, last: bool) -> None:
        whole = layout_of(compile_tree(executor.model, None, True))
        own, of_best = ({m.name: whole.param_rows(v, m.name) for m in whole.matrices} if v is not None else {}
                        for v in (theta, best))  # fmt: skip
        document = {"run": self._run, "state": vars(state), "grid": self.grid}
        made = Checkpoint(document, own, of_best or None, rows)
        try:
            files.write(self.directory, made, not self._bad_newest)
            self._bad_newest = False
        finally:
            for name in (STOP, SAVE) if last else (SAVE,):
                (self._asking / name).unlink(missing_ok=True)

    # -- going on ----------------------------------------------------------------------------------

    def kept(self, world: Axis) -> dict | None:
        """The grid of the fit to go on with, None where there is none. Collective.

        Raises
        ------
        DataError
            When there are checkpoint files, and none is complete.
        """
        return on_first(world, self._kept)

    def _kept(self) -> dict | None:
        if self._resume:
            self._ahead = files.read(self.directory)
        return None if self._ahead is None else self._ahead.document.get("grid")

    def resume(self, executor: Executor, run: Callable[[], dict]) -> tuple[State, np.ndarray, np.ndarray | None] | None:
        """See `Watch.resume`.

        Raises
        ------
        ModelError
            When the checkpoint is of another run, naming what differs; when there is one and `resume` is False.
        DataError
            When there are checkpoint files, and none is complete.
        """
        world = executor.grid.world
        self._first = world.rank == 0
        found: list[Checkpoint] = []
        document = on_first(world, lambda: self._find(found, run()))
        self._saved = self._lap = self._clock()
        if document is None:
            return None
        read = found[0] if found else None
        self.rows = {} if read is None else read.rows
        theta = _deal(executor, None if read is None else read.theta)
        best = _deal(executor, None if read is None else read.best) if document["state"]["best"] is not None else None
        # ranks that are threads are given one and the same document
        return State(**copy.deepcopy(document["state"])), theta, best

    def _find(self, found: list[Checkpoint], run: dict) -> dict | None:
        """On rank 0: append the checkpoint to `found` and return its document; None where there is none."""
        self._run = run
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._resume:
            if files.exists(self.directory):
                raise ModelError(f"{self.directory} holds a checkpoint: resume=True goes on from it")
            return None
        read = files.read(self.directory) if self._ahead is None else self._ahead
        self._ahead = None
        if read is None:
            return None
        other = differences(run, read.document["run"])
        if other:
            more = f"; and {len(other) - 3} more differences" if len(other) > 3 else ""
            raise ModelError(f"{read.path} is the checkpoint of another run: {'; '.join(other[:3])}{more}")
        if read.flaw:
            self._bad_newest = True
            warnings.warn(f"{self.directory}: {read.flaw}; going on from {read.path.name}")
        state = read.document["state"]
        start = f" of start {state['start']}" if state["start"] or state["ended"] else ""
        self._tell(f"going on from {read.path} at iteration {state['n_iter']}{start}")
        found.append(read)
        return read.document


def _deal(executor: Executor, matrices: files.Matrices | None) -> np.ndarray:
    """The local parameters out of whole matrices that rank 0 has, one after another. Collective."""
    own = {m.name: m for m in executor.layout.matrices}
    theta = np.empty(executor.layout.num_params)
    for m in layout_of(compile_tree(executor.model, None, True)).matrices:
        values = np.empty((len(m.rows), m.param_width))
        if matrices is not None:
            values[:] = matrices[m.name]
        executor.grid.world.bcast(values)
        if m.name in own:
            executor.layout.param_rows(theta, m.name)[:] = values[own[m.name].rows]
    return theta


def _in_words(reasons: list[str]) -> str:
    """Why a fit stopped, of all ranks: a signal with the ranks that it reached."""
    parts = []
    for reason in dict.fromkeys(r for r in reasons if r):
        ranks = [k for k, r in enumerate(reasons) if r == reason]
        some = "all ranks" if len(ranks) == len(reasons) else f"rank{'s' * (len(ranks) > 1)} {_shown(ranks)}"
        parts.append(f"{reason} on {some}" if reason.startswith("SIG") and len(reasons) > 1 else reason)
    return " and ".join(parts)


def _shown(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


def seconds_of(text) -> float | None:
    """Seconds of a time in SLURM's words: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS; None if it is none.

    A number is minutes and may have a fraction.
    """
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        return None
    found = re.fullmatch(r"(?:(\d+)-)?(\d+(?:\.\d*)?)(?::(\d+))?(?::(\d+))?", str(text).strip(), re.ASCII)
    if found is None:
        return None
    days, *rest = found.groups()
    numbers = [float(v) for v in rest if v is not None]
    if any(v != int(v) for v in numbers[:-1]) or (len(numbers) > 1 and "." in str(text)):
        return None
    if days is None:
        units = {1: (60,), 2: (60, 1), 3: (3600, 60, 1)}[len(numbers)]
    else:
        units = (3600, 60, 1)
    return 86400.0 * int(days or 0) + sum(v * unit for v, unit in zip(numbers, units))
