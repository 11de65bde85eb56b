"""Run under mpirun: fits on ranks of which some are slow, `python unequal_program.py measured | given`.

`measured` on 2 ranks: rank 1 burns twice the time of each kernel that is timed and of each tile, so that it is a third
as fast, which is measured. `given` on 4 ranks: throughputs 4, 1, 1, 1. Rank 0 prints what was planned and counted, as
JSON, with seconds of an iteration.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from statistics import median

import numpy as np

from mixle_mpi import DeviceSpec, Mixture, MultivariateGaussian, Resources, optimize
from mixle_mpi.execution import calibrate
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import mpi_world
from mixle_mpi.execution.pipeline import Pipeline

BURNT = 2.0  # times as long as the work itself
ITERATIONS = 10


def burn(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def slow_down() -> None:
    """Make the kernels that are measured, and the work on tiles, three times as slow on this rank."""
    calls, advance = calibrate.kernel_calls, Pipeline._advance

    def slowed(call):
        def slow():
            began = time.perf_counter()
            call()
            burn(BURNT * (time.perf_counter() - began))

        return slow

    def slow_advance(self, run, value, times):
        before = worked(times)
        advance(self, run, value, times)
        burn(BURNT * (worked(times) - before))

    calibrate.kernel_calls = lambda: [(units, slowed(call)) for units, call in calls()]
    Pipeline._advance = slow_advance


def worked(times) -> float:
    """Seconds of a pass in which kernels ran."""
    return times.seconds["score"] + times.seconds["accumulate"]


class Stopwatch:
    """A callback that notes when iterations ended."""

    def __init__(self):
        self.at = []

    def __call__(self, iteration):
        self.at.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        return median(np.diff(self.at))


def vectors(n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) + 3.0 * rng.integers(0, 4, (n, 1))


def told(world, result, even, watches) -> dict:
    """What rank 0 prints of a fit and of the same one with even borders."""
    passes = result.counts.passes
    return {
        "bounds": result.plan.extra["bounds"], "rows": result.plan.extra["rows"],
        "counted_rows": [n // passes for n in world.allgather(result.counts.rows)],
        "counted_densities": [n // passes for n in world.allgather(result.counts.unit_rows)],
        "off": float(np.max(np.abs(np.array(result.history) - even.history)) / np.abs(even.history).max()),
        "seconds": [watch.seconds for watch in watches],
    }  # fmt: skip


def compare(world, data, model, shape: tuple[int, int], resources, given=None) -> dict:
    """A grid that is asked for, and the same with even borders. Collective."""
    same, watches = {"max_iter": ITERATIONS, "tol": None}, (Stopwatch(), Stopwatch())
    with resources.grid(*shape) as grid:
        even = fit(data, model, grid, callback=watches[0], **same)
    asked = optimize(data, model, backend="mpi", grid=shape, callback=watches[1], resources=given, **same)
    return told(world, asked, even, watches)


def main(what: str) -> None:
    warnings.simplefilter("ignore")
    world, found = mpi_world(), {}
    if what == "measured":
        if world.rank == 1:
            slow_down()
        resources = Resources.from_mpi(calibrate=True)
        found["throughputs"] = [d.throughput for d in resources.devices]
        found["rows"] = compare(world, vectors(100000, 6), Mixture(MultivariateGaussian(6), 16), (2, 1), resources)
        found["units"] = compare(world, vectors(400, 16), Mixture(MultivariateGaussian(16), 40), (1, 2), resources)
    else:
        resources = Resources.from_mpi()
        devices = tuple(DeviceSpec(f"r{k}", throughput=t) for k, t in enumerate((4.0, 1.0, 1.0, 1.0)))
        given = Resources(devices, flops_per_second=3e10, call_seconds=1e-8, latency_within=1e-6, bandwidth_within=1e10)
        model = Mixture(MultivariateGaussian(6), 30)
        found["mixed"] = compare(world, vectors(30000, 6), model, (2, 2), resources, given)
    if world.rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
