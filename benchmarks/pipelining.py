"""Messages hidden behind work: `python -m benchmarks.pipelining [--ranks 2] [--rounds 5]`.

Cut models are fitted on 1 x M grids of MPI ranks by turns with one tile in flight and with two, in the same processes.
The table has medians over the rounds: seconds of an iteration, seconds of it that a rank waited on the model axis,
and the share of the latter that is gone with two tiles in flight. Both must give the same bits.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

import numpy as np

ITERATIONS = 8
TIME_LIMIT = 600  # seconds
CROWDED = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_ALLOW_RUN_AS_ROOT": "1",
           "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip


def workloads() -> dict:
    """Name -> rows and model."""
    from mixle_mpi import Gaussian, HiddenMarkov, LatentDirichletAllocation, Mixture, MultivariateGaussian

    rng = np.random.default_rng(0)
    numbers = rng.normal(size=300_000) + 4 * rng.integers(0, 8, 300_000)
    vectors = rng.normal(size=(60_000, 8)) + 3 * rng.integers(0, 4, (60_000, 1))
    sequences = [rng.normal(size=200) for _ in range(200)]
    documents = [{f"w{w:03}": int(c) for w, c in zip(rng.choice(300, 40, False), rng.integers(1, 5, 40))}
                 for _ in range(600)]  # fmt: skip
    return {
        "64 Gaussians": (numbers, Mixture(Gaussian(), 64)),
        "full d=8 K=32": (vectors, Mixture(MultivariateGaussian(8), 32)),
        "16 states": (sequences, HiddenMarkov(Gaussian(), 16)),
        "20 topics": (documents, LatentDirichletAllocation(20)),
    }


def measure(rounds: int) -> None:
    """On every rank: fit by turns, and print the table on the first."""
    from mixle_mpi.execution.clock import Clock
    from mixle_mpi.execution.em import fit
    from mixle_mpi.execution.grid import mpi_grid, mpi_world

    world = mpi_world()
    if world.rank == 0:
        print(f"{'1 x ' + str(world.size):16} {'iteration ms':>20} {'waited ms':>18} {'ratio':>7} {'hidden':>7}  bits")
    for name, (data, model) in workloads().items():
        seconds: dict[bool, list[float]] = {False: [], True: []}
        waited: dict[bool, list[float]] = {False: [], True: []}
        found = {}
        for at in range(rounds + 1):  # the first is the warm-up
            for pipelined in (False, True):
                with mpi_grid(1, world.size) as grid:
                    clock = Clock()
                    found[pipelined] = fit(data, model, grid, max_iter=ITERATIONS, tol=None, init="random",
                                           clock=clock, pipelined=pipelined)  # fmt: skip
                if at:
                    each = world.allgather((clock.typical()["total"], clock.waited / (ITERATIONS + 1)))
                    seconds[pipelined].append(max(s for s, _ in each))
                    waited[pipelined].append(sum(w for _, w in each) / len(each))
        one, two = (statistics.median(seconds[p]) * 1e3 for p in (False, True))
        before, after = (statistics.median(waited[p]) * 1e3 for p in (False, True))
        same = found[False].history == found[True].history
        same &= found[False].model.state.theta.tobytes() == found[True].model.state.theta.tobytes()
        if not all(world.allgather(same)):
            raise SystemExit(f"{name}: the bits depend on the tiles in flight")
        if world.rank == 0:
            print(f"{name:16} {one:9.2f} {two:10.2f} {before:8.2f} {after:9.2f} {one / two:7.2f} "
                  f"{100 * (1 - after / before):5.0f} %  same", flush=True)  # fmt: skip


def main() -> int:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options.rounds)
        return 0
    mpirun = os.path.join(os.path.dirname(sys.executable), "mpirun")
    command = [mpirun, "-n", str(options.ranks), sys.executable, "-m", "benchmarks.pipelining", "--inside",
               "--rounds", str(options.rounds)]  # fmt: skip
    return subprocess.run(command, env={**os.environ, **CROWDED}, timeout=TIME_LIMIT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
