"""Ranks that measure themselves, and what rank 0 finds: `mpirun -n N python calibrate_program.py [--quick]`."""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from mixle_mpi import Resources
from mixle_mpi.execution import calibrate
from mixle_mpi.execution.calibrate import ROUNDS, observations, partners
from mixle_mpi.execution.grid import mpi_world


def main() -> None:
    world = mpi_world()
    if "--quick" in sys.argv:
        calibrate.WINDOW = 1e-4
    plain = Resources.from_mpi()
    began = time.perf_counter()
    first = Resources.from_mpi(calibrate=True)
    middle = time.perf_counter()
    second = Resources.from_mpi(calibrate=True)
    seconds = middle - began, time.perf_counter() - middle
    inside, _ = partners(np.zeros(world.size, int), world.rank)
    measured = np.min([observations(world, inside) for _ in range(ROUNDS)], axis=0)
    with first.grid(world.size, 1) as grid:
        shape = grid.shape
    everyone = world.allgather((repr(first), repr(second)))
    if world.rank == 0:
        predicted = None
        if world.size > 1:
            ratio = (measured[:, 0] * first.latency_within + measured[:, 1] / first.bandwidth_within) / measured[:, 2]
            predicted = np.exp(np.abs(np.log(ratio[measured[:, 3] == 1.0]))).tolist()
        print(json.dumps({
            "same": all(pair == everyone[0] for pair in everyone) and first == second,
            "seconds": seconds, "shape": shape, "off": predicted,
            "network": [first.latency_within, first.bandwidth_within, first.latency_between, first.bandwidth_between],
            "flops": first.flops_per_second, "throughputs": [d.throughput for d in first.devices],
            "memory": [d.memory_bytes for d in first.devices],
            "plain": [plain.flops_per_second, plain.latency_within, plain.devices[0].memory_bytes],
        }))  # fmt: skip


if __name__ == "__main__":
    main()
