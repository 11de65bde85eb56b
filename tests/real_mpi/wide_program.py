"""Run under mpirun: a mixture whose M-step is heavy, K = 256 full Gaussians in d = 128, on D x 1 against serial.

Prints what each data shard maximised, what was sent beside the plan, and the differences; exit code 1 when anything
is not as it should be.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "execution"))

import numpy as np
from mpi4py import MPI
from workload import difference

from mixle_mpi import Mixture, MultivariateGaussian, Resources
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import all_arrive, mpi_grid, serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.planning.balance import plan_on
from mixle_mpi.planning.payload import in_run

K, DIM, N, ITERATIONS = 256, 128, 1024, 2


def main() -> int:
    warnings.simplefilter("ignore")
    comm = MPI.COMM_WORLD
    rng = np.random.default_rng(0)
    data = rng.normal(size=(N, DIM)) + 2.0 * rng.normal(size=(K, DIM))[rng.integers(0, K, N)]
    model = Mixture(MultivariateGaussian(min_variance=0.5), K)  # fewer rows than would give all of a covariance
    options = {"max_iter": ITERATIONS, "tol": None, "init": "random"}
    with mpi_grid(comm.size, 1) as grid:
        result = fit(data, model, grid, **options)
    maximized = comm.allgather(result.counts.maximized // ITERATIONS)
    sent = [comm.allreduce(getattr(result.payload["data"], what)) for what in ("bytes", "messages")]
    wrong = 0
    if comm.rank == 0:
        serial = fit(data, model, serial_grid(), **options)
        plan = plan_on(load(data, model, serial_grid()).model, Resources.local(comm.size), n_data=N,
                       shape=(comm.size, 1), cut=None)  # fmt: skip
        planned = in_run(plan.extra["payload"], result.counts.passes, result.n_iter)["data"]
        levels, parameters = difference(result, serial)
        allreduce = 2 * 8 * K * (1 + DIM + DIM * (DIM + 1) // 2 + 1)  # moves each statistic twice
        moved = 8 * K * 2 * (1 + DIM + DIM * (DIM + 1) // 2 + 1)  # reduce-scattered, and gathered
        alone = serial.counts.maximized // ITERATIONS
        print(f"members maximised by each of {comm.size} data shards: {maximized}; serial {alone}")
        print(f"data axis: {sent[0]} bytes in {sent[1]} messages; planned {planned['bytes']} in "
              f"{planned['messages']}; moved {moved} bytes an iteration, an Allreduce {allreduce}")  # fmt: skip
        print(f"difference from serial: log likelihood {levels:.1e}, parameters {parameters:.1e}", flush=True)
        right = (
            maximized == [K // comm.size] * comm.size
            and serial.counts.maximized == K * ITERATIONS
            and sent == [planned["bytes"], planned["messages"]]
            and moved <= allreduce
            and levels < 1e-12
            and parameters < 1e-8
        )
        wrong = int(not right)
    all_arrive(None)
    return int(comm.bcast(wrong))


if __name__ == "__main__":
    sys.exit(main())
