"""Run under mpirun: two mixtures of 8 with one row on 16 ranks, where there are so many; then random trees, each on a
grid of some of the ranks and cut as planned, against rank 0 alone.

`planned_program.py N [SEED]`. Prints a line for each; exit code 1 when one differs.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "execution"))

import numpy as np
from mpi4py import MPI
from test_planned_trees import tried

from mixle_mpi import Composite, Gaussian, Mixture, Resources, balance_plan
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import MpiGrid, all_arrive, serial_grid


def on_some(plan, work) -> list:
    """What `work` returns on the ranks of a plan's grid, the first of all ranks; on the first of them, elsewhere
    nothing. Collective."""
    comm, shape = MPI.COMM_WORLD, (plan.data_parallel, plan.model_parallel)
    group = comm.Split(0 if comm.rank < shape[0] * shape[1] else MPI.UNDEFINED, comm.rank)
    found = None
    if group != MPI.COMM_NULL:
        with MpiGrid(group, *shape) as grid:
            found = group.gather(work(grid))
        group.Free()
    all_arrive(None)  # the others wait without taking a core
    return found or []


def busy_ranks() -> str:
    """Two mixtures of 8, one row, on 16 ranks: who worked, and how far the result is from that of one rank."""
    each = np.full(8, 1 / 8)
    model = Composite(*(Mixture([Gaussian(k - 3.0, 1.0 + k) for k in range(8)], weights=each) for _ in range(2)))
    plan, row = balance_plan(model, Resources.local(16), n_data=1), np.array([[0.5, 2.5]])
    options = {"max_iter": 3, "tol": None}
    found = on_some(plan, lambda grid: fit(row, model, grid, cut=plan.extra["cut"], **options))
    if not found:
        return ""
    alone = fit(row, model, serial_grid(), **options)
    away = max(np.abs(np.array(r.history) - alone.history).max() for r in found)
    parameters = max(np.abs(r.model.state.theta - alone.model.state.theta).max() for r in found)
    busy = sum(r.counts.unit_rows == alone.counts.unit_rows // 16 > 0 for r in found)
    verdict = "same" if max(away, parameters) < 1e-12 and busy == 16 else "DIFFERENT"
    return (f"{verdict} two mixtures of 8, one row, {plan.data_parallel}x{plan.model_parallel}: {busy} of {len(found)} "
            f"ranks did a sixteenth of the work; log likelihood {away:.1e}, parameters {parameters:.1e}")  # fmt: skip


def main(number: int, first: int = 0) -> int:
    warnings.simplefilter("ignore")
    comm, failures = MPI.COMM_WORLD, 0
    lines = [busy_ranks] if comm.size >= 16 else []
    for make in lines:
        line = make()
        failures += line.startswith("DIFFERENT")
        if line:
            print(line, flush=True)
    for seed in range(first, first + number):
        seen = []

        def on_ranks(plan, work, seen=seen):
            seen.append((plan.data_parallel, plan.model_parallel, plan.extra["cut"]))
            return on_some(plan, work)

        problem = tried(seed, seed % 2 == 1, on_ranks, comm.size)
        failures += problem is not None
        if comm.rank == 0:
            d, m, cut = seen[0] if seen else (1, 1, None)
            verdict = "same" if problem is None else f"DIFFERENT, {problem},"
            print(f"{verdict} tree {seed} {d}x{m} cut={cut!r}", flush=True)
    return 1 if comm.allreduce(failures) else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
