"""When a fit is saved and when it ends early, and how it goes on: the `Watch` of a directory.

Rank 0 alone looks at the clock and at the directory, and alone writes; any rank may have had a signal.
What they want travels in the header of the iteration, so that all ranks stop, or save, after the same one.
Of several grids side by side the first rank of each is its rank 0, with files of its own; see `execution.beside`.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.data.table import on_first, together
from mixle_mpi.execution import checkpoint as files
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.checkpoint import Checkpoint
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.fingerprint import differences
from mixle_mpi.execution.loop import Resumed, State, Watch
from mixle_mpi.execution.shard import compile_tree, layout_of
from mixle_mpi.execution.starts import is_better
from mixle_mpi.execution.whole import deal_rows, whole_rows, whole_theta

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
    is_asked_to_save : whether this rank saw the file CHECKPOINT after the last pass
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
        self._bad_newest = self.is_asked_to_save = False
        self._run: dict = {}
        self._first = self._speaks = True
        self.grid: dict | None = None
        self._found: list[Checkpoint] | None = None
        self._begun: dict[int, Checkpoint] = {}
        self._states: dict[int, dict] = {}
        self._group: int | None = None  # the number of this rank's grid, where others are beside it
        self._own: frozenset[int] | None = None
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
        self.is_asked_to_save = os.path.exists(self._asking / SAVE)
        save = unmeasured or now - self._saved >= self._every or self.is_asked_to_save
        return bool(self.reason), save

    def relay(self) -> None:
        """Leave the file STOP for a signal that reached a rank outside of a grid; see `Watch.relay`."""
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
        if occasion == "stopped" and self._group is None:
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
            files.write(self.directory, made, not self._bad_newest, files.name_of(self._group or 0))
            self._bad_newest = False
        finally:  # a file STOP is for all grids: it stays until all have ended
            self._remove(STOP, SAVE) if last and self._group is None else self._remove(SAVE)

    def _remove(self, *names: str) -> None:
        for name in names:
            (self._asking / name).unlink(missing_ok=True)

    # -- grids side by side ------------------------------------------------------------------------

    def join(self, world: Axis, leaders: Sequence[int], group: int | None, starts: Sequence[int]) -> None:
        """Be the watch of one of several grids, by its number, that makes these starts. Collective over all ranks.

        Every grid's first rank reads what there is to go on from before any of them writes, and sees how long the fit
        may run by rank 0's clock.
        """
        left = on_first(world, lambda: None if self._end is None else self._end - self._clock())
        self._end = None if left is None else self._clock() + left
        self._group, self._own, self._speaks = group, frozenset(starts), world.rank == 0
        together(world, lambda: [self._needed(read) for read in self._look()] if world.rank in leaders else [])

    def leave(self, world: Axis, is_stopped: bool) -> None:
        """Tell all ranks why the fit stopped, if it did on this rank's grid or on others, and remove the files that
        asked for it. Collective over all ranks."""
        told = world.allgather((is_stopped, self._asked() or self.reason))
        self.reason = _in_words([reason for _, reason in told]) if any(stopped for stopped, _ in told) else ""
        on_first(world, lambda: self._remove(STOP, SAVE))

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
        grids = (found.document.get("grid") for found in (self._look() if self._resume else ()))
        return next((grid for grid in grids if grid is not None), None)

    def rest(self, world: Axis, starts: int) -> list[int]:
        """The numbers of those of so many starts that have not ended in what there is to go on from. Collective."""
        ended = on_first(world, lambda: self._ended(self._look() if self._resume else []))
        return [number for number in range(starts) if number not in ended]

    def _look(self) -> list[Checkpoint]:
        """The checkpoints to go on from, read once. Raises ModelError when there are some, and `resume` is False."""
        if self._found is None:
            if not self._resume and files.exists(self.directory):
                raise ModelError(f"{self.directory} holds a checkpoint: resume=True goes on from it")
            self._found = [self._needed(read) for read in files.read_all(self.directory)] if self._resume else []
        return self._found

    def _needed(self, read: Checkpoint) -> Checkpoint:
        """The checkpoint without parameters that only other grids need."""
        if self._group:
            read.best = None
        if self._own is not None and read.document["state"]["start"] not in self._own:
            read.theta, read.rows = {}, {}
        return read

    @staticmethod
    def _ended(found: list[Checkpoint]) -> dict[int, dict]:
        """The records of starts that ended, by their numbers."""
        return {of["start"]: of for read in found for of in read.document["state"]["ended"]}

    def resume(self, executor: Executor, run: Callable[[], dict]) -> Resumed | None:
        """See `Watch.resume`. Of grids side by side the first has what ended before.

        Raises
        ------
        ModelError
            When the checkpoint is of another run, naming what differs; when there is one and `resume` is False.
        DataError
            When there are checkpoint files, and none is complete.
        """
        world = executor.grid.world
        self._first = world.rank == 0
        self._speaks = self._speaks and self._first
        best: list[Checkpoint] = []
        document = on_first(world, lambda: self._find(best, run()))
        self._saved = self._lap = self._clock()
        if document is None:
            return None
        self._states = document["states"]
        if self._group:
            return Resumed([], None, None)
        theta = None if document["best"] is None else _deal(executor, best[0].best if best else None)
        # ranks that are threads are given one and the same document
        return Resumed(copy.deepcopy(document["ended"]), document["best"], theta)

    def take_up(self, executor: Executor, state: State) -> bool:
        """See `Watch.take_up`."""
        if state.start not in self._states:
            return False
        vars(state).update(copy.deepcopy(self._states[state.start]))
        read = self._begun.pop(state.start, None)
        executor.theta[:] = _deal(executor, None if read is None else read.theta)
        executor.publish()
        executor.start_rows()
        deal_rows(executor, {} if read is None else read.rows)
        return True

    def _find(self, best: list[Checkpoint], run: dict) -> dict | None:
        """On a grid's first rank: what there is to go on from, as plain data; None where there is nothing. The
        checkpoint with the best start's parameters is appended to `best`."""
        self._run = run
        self.directory.mkdir(parents=True, exist_ok=True)
        found, self._found = self._look(), None
        for read in found:
            self._check(read, run)
        if not found:
            return None
        ended = self._ended(found)
        record: dict | None = None
        for read in sorted((r for r in found if r.best is not None), key=lambda r: r.document["state"]["best"]):
            other = ended[read.document["state"]["best"]]
            if is_better(other, record, run["effective rows"]):
                record, best[:] = other, [read]
        begun: dict[int, Checkpoint] = {}
        for read in sorted(found, key=lambda r: r.document["state"]["n_iter"]):
            if read.document["state"]["start"] not in ended:
                begun[read.document["state"]["start"]] = read
        for k, read in sorted(begun.items()) if self._speaks else ():
            start = f" of start {k}" if k or ended else ""
            self._tell(f"going on from {read.path} at iteration {read.document['state']['n_iter']}{start}")
        self._begun = begun = {k: read for k, read in begun.items() if self._own is None or k in self._own}
        names = ("n_iter", "history", "objective")
        states = {k: {name: read.document["state"][name] for name in names} for k, read in begun.items()}
        return {"ended": [ended[k] for k in sorted(ended)], "best": record and record["start"], "states": states}

    def _check(self, read: Checkpoint, run: dict) -> None:
        """Raise ModelError for the checkpoint of another run; warn of a newest one that is damaged."""
        other = differences(run, read.document["run"])
        if other:
            more = f"; and {len(other) - 3} more differences" if len(other) > 3 else ""
            raise ModelError(f"{read.path} is the checkpoint of another run: {'; '.join(other[:3])}{more}")
        if read.flaw:
            self._bad_newest = self._bad_newest or read.path.stem.startswith(files.name_of(self._group or 0) + "_")
            if self._speaks:
                warnings.warn(f"{self.directory}: {read.flaw}; going on from {read.path.name}")


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
