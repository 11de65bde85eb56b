"""Tiles of which one waits for the other ranks while the next is scored.

Each tile in flight has communicators of its own, so that messages of two tiles need not come in the same order on all
ranks: how many a tile sends may depend on its documents, and on the units that a rank holds. Statistics are added up
in the order of the tiles whatever arrives first, so that results have the same bits with one tile in flight or two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field

import numpy as np

from mixle_mpi.contract.cuts import EVERYONE
from mixle_mpi.contract.decomposition import Partial
from mixle_mpi.execution.axis import Axis, Pending
from mixle_mpi.execution.partials import Whole, reduce_partial, start_partial
from mixle_mpi.kernels.compiling import working_time

Steps = Generator[Partial, np.ndarray, np.ndarray | None]
PHASES = ("score", "accumulate", "model_axis", "data_axis")


@dataclass
class Job:
    """A tile: what scores it, and what adds up its statistics, made of its scores once it is its turn."""

    score: Steps | None
    accumulate: Callable[[np.ndarray | None], Steps]


@dataclass
class Times:
    """Seconds by phase, of which `model_axis` and `data_axis` were waited for messages; and the seconds between the
    start and the arrival of messages over the model axis, `in_flight`."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    in_flight: float = 0.0


class _Run:
    """A tile that is under way."""

    def __init__(self, job: Job, slot: int):
        self.job, self.slot = job, slot
        self.phase = "score"
        self.steps: Steps | None = job.score
        self.result: np.ndarray | None = None
        self.message: Pending | None = None
        self.whole: Whole
        self.started = 0.0


class Pipeline:
    """Runs tiles, as many at once as there are copies of the axes.

    Parameters
    ----------
    parts : of each copy, the group of ranks of each number that partials name
    data : the group of the data axis
    """

    def __init__(self, parts: list[dict[int, Axis]], data: Axis):
        self.parts, self.data = parts, data

    def run(self, jobs: Iterable[Job], times: Times) -> None:
        """Run jobs to their ends. Collective over the model axis, and over the data axis where partials say so."""
        running: deque[_Run] = deque()
        left, number = iter(jobs), 0
        while True:
            while len(running) < len(self.parts) and (job := next(left, None)) is not None:
                running.append(_Run(job, number % len(self.parts)))
                number += 1
                self._advance(running[-1], None, times)
            if not running:
                return
            oldest = running[0]
            if oldest.steps is None and oldest.phase == "score":
                oldest.phase, oldest.steps = "accumulate", oldest.job.accumulate(oldest.result)
                self._advance(oldest, None, times)
            elif oldest.steps is None:
                running.popleft()
            else:
                self._wait([run for run in running if run.message is not None], times)

    def drive(self, steps: Steps) -> np.ndarray | None:
        """What a generator returns, its partials reduced one after another. Collective as `run`."""
        value = None
        while True:
            try:
                partial = next(steps) if value is None else steps.send(value)
            except StopIteration as done:
                return done.value
            value = reduce_partial(partial, self.parts[0][partial.group] if partial.axis == "model" else self.data)

    def _wait(self, runs: list[_Run], times: Times) -> None:
        """Go on with the first run whose message arrives."""
        started = working_time()
        messages = [run.message for run in runs if run.message is not None]
        run = runs[self.parts[0][EVERYONE].wait_any(messages)]
        if run.message is None:
            raise AssertionError("only a message that was sent arrives")
        arrived = working_time()
        value, run.message = run.whole(run.message.result()), None
        times.seconds["model_axis"] += working_time() - started
        times.in_flight += arrived - run.started
        self._advance(run, value, times)

    def _advance(self, run: _Run, value: np.ndarray | None, times: Times) -> None:
        """Resume a run with a reduced value, up to its next message over the model axis or to the end of its phase."""
        while run.steps is not None:
            started = working_time()
            try:
                partial = next(run.steps) if value is None else run.steps.send(value)
            except StopIteration as done:
                run.result, run.steps = done.value, None
                times.seconds[run.phase] += working_time() - started
                return
            sent = working_time()
            times.seconds[run.phase] += sent - started
            if partial.axis == "model":
                run.message, run.whole = start_partial(partial, self.parts[run.slot][partial.group])
                run.started = sent
                times.seconds["model_axis"] += working_time() - sent
                return
            value = reduce_partial(partial, self.data)
            times.seconds["data_axis"] += working_time() - sent
