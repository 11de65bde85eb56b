"""Run under mpirun on 4 ranks: one long sequence, divided in time, and one under very many states, divided by states.

Prints, for each number of ranks, the difference from one rank, the steps that were repaired, and the recursions that
each rank ran against those that were planned; exit code 1 when one differs. The planner finds the first by itself.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
import warnings

import numpy as np
from mpi4py import MPI

from mixle_mpi import Gaussian, HiddenMarkov, Resources
from mixle_mpi.contract.work import CALL_SECONDS
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.fitted import state_of
from mixle_mpi.execution.grid import MpiGrid, all_arrive, serial_grid
from mixle_mpi.planning.balance import plan_grid

ITERATIONS = 3
PLANNED, RUN = 1_000_000, 200_000  # steps: a run needs no more to keep four ranks busy


def steps(n: int, places: int, stay: float = 0.95) -> np.ndarray:
    """Numbers around places that a chain visits."""
    rng = np.random.default_rng(8)
    moves = np.flatnonzero(rng.random(n) > stay)
    return rng.normal(3.0 * np.repeat(rng.integers(0, places, len(moves) + 1), np.diff([0, *moves, n])))


def planned(states: int, n: int, ranks: int) -> tuple[int, int]:
    """The grid that the planner finds for one sequence."""
    resources = dataclasses.replace(Resources.local(ranks), call_seconds=CALL_SECONDS)
    plan = plan_grid(HiddenMarkov(Gaussian(), states), resources, n_data=1, given={"length": {"": float(n)}})
    return plan.data_parallel, plan.model_parallel


def run(name: str, x: np.ndarray, model: HiddenMarkov, shapes: list[tuple[int, int]]) -> int:
    """Compare the grids with one rank; how many differ."""
    comm, failures = MPI.COMM_WORLD, 0
    alone = fit([x], model, serial_grid(), max_iter=ITERATIONS, tol=None) if comm.rank == 0 else None
    for shape in shapes:
        active = comm.rank < shape[0] * shape[1]
        group = comm.Split(0 if active else MPI.UNDEFINED, comm.rank)
        if active:
            with MpiGrid(group, *shape) as grid:
                result = fit([x], model, grid, max_iter=ITERATIONS, tol=None, cut="" if shape[1] > 1 else None)
            counts = group.gather(result.counts)
            if alone is not None:
                gap = np.abs(np.array(result.history) - alone.history).max() / max(abs(alone.log_likelihood), len(x))
                apart = np.abs(state_of(result.model).theta - state_of(alone.model).theta).max()
                passes, states = result.counts.passes, model.num_states
                own, again = [c.state_steps for c in counts], [c.repaired for c in counts]
                ranks = shape[0] * shape[1]
                shares = [states // ranks * len(x)] if shape[1] > 1 else [
                    states * ((r + 1) * len(x) // ranks - r * len(x) // ranks) for r in range(ranks)
                ]  # of a pass; what is repaired comes besides
                exact = all(n - states * r == passes * due for n, r, due in zip(own, again, itertools.cycle(shares)))
                good = gap < 1e-12 and apart < 1e-8 and exact
                failures += not good
                print(f"{'same' if good else 'DIFFERENT'} {name} {shape[0]}x{shape[1]}: log likelihood {gap:.1e}, "
                      f"parameters {apart:.1e}; states x steps of each rank in {passes} passes {own}, "
                      f"planned {shares} a pass, steps repaired {again}", flush=True)  # fmt: skip
            group.Free()
        all_arrive(None)  # ranks outside the grid wait without taking a core
    return failures


def main() -> int:
    warnings.simplefilter("ignore")
    found = planned(4, PLANNED, 4)
    failures = run(f"{RUN} steps, 4 states", steps(RUN, 4), HiddenMarkov(Gaussian(), 4),
                   [(1, 1), (2, 1), (3, 1), (4, 1)])  # fmt: skip
    failures += run("600 steps, 512 states", steps(600, 40), HiddenMarkov(Gaussian(), 512), [(1, 1), (1, 2), (1, 4)])
    if MPI.COMM_WORLD.rank == 0:
        print(f"planned for one sequence of {PLANNED} steps on 4 ranks: {found[0]} x {found[1]}")
    failures += found != (4, 1)
    return 1 if MPI.COMM_WORLD.allreduce(failures) else 0


if __name__ == "__main__":
    sys.exit(main())
