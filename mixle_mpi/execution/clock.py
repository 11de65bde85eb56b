"""Where a rank's time went and what it sent, by phase."""

from __future__ import annotations

import time
from collections import deque
from statistics import median

import numpy as np

from mixle_mpi.execution.axis import Traffic
from mixle_mpi.execution.grid import Grid
from mixle_mpi.execution.pipeline import Times
from mixle_mpi.kernels.compiling import compile_seconds, working_time

# in the order in which they are reported
PHASES = (
    "start", "read", "initialise", "compile", "score", "model_axis", "accumulate", "data_axis", "search", "m_step",
    "checkpoint", "output", "wait", "idle", "other",
)  # fmt: skip
LOOP = ("score", "model_axis", "accumulate", "data_axis", "search", "m_step", "wait")  # phases of the iteration
REDUCED = ("model_axis", "data_axis")  # phases in which ranks meet, and wait for each other
AXES = ("data", "model", "world")
# what a plan predicts, and the phases in which it happens
PLANNED = {
    "e_step": ("score", "accumulate", "search"), "m_step": ("m_step",), "model_axis": ("model_axis",),
    "data_axis": ("data_axis", "wait"), "total": LOOP,
}  # fmt: skip
LATEST = 512  # iterations that are remembered one by one


class Clock:
    """Seconds, calls and traffic by phase of one rank.

    Compiling and loading kernels is its own phase, in whatever phase it happens: the others are measured by
    a clock that stands still meanwhile. What no phase claims is "other", so the phases add up to `total`.

    Parameters
    ----------
    begun : time.perf_counter() at the beginning, by default now; nothing was compiled since

    Attributes
    ----------
    resident : bytes of this rank's memory when its grid was chosen, 0 where none was
    in_flight : seconds between the start and the arrival of messages over the model axis, in passes, and of these
        `waited` those in which nothing else was done
    """

    def __init__(self, begun: float | None = None):
        self.begun = time.perf_counter() if begun is None else begun
        self.resident = 0
        self.in_flight = self.waited = 0.0
        self._compiled = compile_seconds()
        self.last = self.begun - self._compiled
        self._claimed: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self.traffic: dict[str, dict[str, Traffic]] = {}
        self._passes: dict[str, list[float]] = {phase: [] for phase in REDUCED}
        self._iterations: deque[dict[str, float]] = deque(maxlen=LATEST)
        self._grid: Grid | None = None
        self._sent: dict[str, Traffic] = {}

    def watch(self, grid: Grid) -> None:
        """Count what is sent on the axes of a grid from now on."""
        self._grid, self._sent = grid, self._so_far(grid)

    @staticmethod
    def _so_far(grid: Grid) -> dict[str, Traffic]:
        axes = zip(AXES, (grid.data, grid.model, grid.world))
        return {name: axis.traffic + Traffic() for name, axis in axes}

    def _claim(self, phase: str, seconds: float) -> None:
        self._claimed[phase] = self._claimed.get(phase, 0.0) + seconds
        self.calls[phase] = self.calls.get(phase, 0) + 1
        if phase in REDUCED:
            self._passes[phase].append(seconds)
        if phase in LOOP and self._iterations:
            self._iterations[-1][phase] = self._iterations[-1].get(phase, 0.0) + seconds

    def _claim_traffic(self, phase: str) -> None:
        """What was sent since the last claim belongs to this phase."""
        if self._grid is None:
            return
        now, own = self._so_far(self._grid), self.traffic.setdefault(phase, {})
        for axis in AXES:
            own[axis] = own.get(axis, Traffic()) + (now[axis] - self._sent[axis])
        self._sent = now

    def add(self, times: Times) -> None:
        """Claim time of a pass that was measured inside; the rest since the last lap is "other"."""
        self._iterations.append({})
        for phase, value in times.seconds.items():
            self._claim(phase, value)
        self.in_flight += times.in_flight
        self.waited += times.seconds["model_axis"]
        self._claim_traffic("model_axis")
        self.last = working_time()

    def lap(self, phase: str) -> None:
        """Claim the time since the last lap."""
        now = working_time()
        self._claim(phase, now - self.last)
        self._claim_traffic(phase)
        self.last = now

    def settle(self) -> None:
        """Tell waiting from moving data, in the passes since the last call. Collective over both axes.

        Of a reduction, the shortest time on any rank of its axis is what it takes when nobody is late;
        what a rank spends beyond that, pass by pass, goes to "wait". No rank had to be held up for this.
        """
        if self._grid is None:
            return
        for phase, axis in zip(REDUCED, (self._grid.model, self._grid.data)):
            own = np.array(self._passes[phase])
            least = own.copy()
            axis.allreduce(least, "min")
            waited = float(np.sum(own - least))
            self._claimed[phase] = self._claimed.get(phase, 0.0) - waited
            self._claimed["wait"] = self._claimed.get("wait", 0.0) + waited
            self._passes[phase] = []
        self._sent = self._so_far(self._grid)

    def typical(self) -> dict[str, float]:
        """Median seconds of an iteration by phase, as plans name them; waiting for other ranks is part of the axes.

        Of the latest iterations, without the first of them; nothing where there are no two.
        """
        latest = list(self._iterations)[1:]
        if not latest:
            return {}
        return {
            name: median(sum(of.get(phase, 0.0) for phase in phases) for of in latest)
            for name, phases in PLANNED.items()
        }

    def total(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.begun

    def seconds(self) -> dict[str, float]:
        """Seconds by phase, those in which something happened; they add up to the time since the beginning."""
        found = dict(self._claimed)
        found["compile"] = found.get("compile", 0.0) + compile_seconds() - self._compiled
        found["other"] = self.total() - sum(found.values())
        return {phase: found[phase] for phase in PHASES if phase in found}

    def payload(self) -> dict[str, Traffic]:
        """What the iterations sent on each axis, set-up and output apart."""
        sums = dict.fromkeys(AXES, Traffic())
        for phase in LOOP:
            for axis, sent in self.traffic.get(phase, {}).items():
                sums[axis] = sums[axis] + sent
        return sums
