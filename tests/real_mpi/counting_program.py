"""Run under mpirun: what is counted on every grid of at most so many ranks, against the plan.

Prints a line for each; exit code 1 when one differs.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "execution"))

import counting_chains
import counting_topics
from counting import MODELS, mismatches, table
from mpi4py import MPI

from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import MpiGrid, all_arrive


def tried_on(shape: tuple[int, int], number: int) -> list[tuple[str, str | None]]:
    """The models and cuts that are tried on a grid, the `number`th of a launch.

    Those of more than four ranks take long: only the first cut of each model there, and beyond six ranks every other
    model, but on 4 x 4.
    """
    ranks = shape[0] * shape[1]
    names = list(MODELS)[number % 2 :: 2] if 6 < ranks < 16 else list(MODELS)
    return [(name, cut) for name in names for cut in (
        [None] if shape[1] == 1 else MODELS[name][1][:1] if ranks > 4 else MODELS[name][1]
    )]  # fmt: skip


def sequences(group, shape: tuple[int, int]) -> int:
    """How many counts differ from the plan's for the models of sequences."""
    failures = 0
    for name, (data, model, cut, _, shapes) in counting_chains.MODELS.items():
        if shape in shapes:
            with MpiGrid(group, *shape) as grid:
                result = fit(data, model, grid, max_iter=2, tol=None, cut=cut if shape[1] > 1 else None)
                found = group.gather((grid.coords, result))
            wrong = counting_chains.mismatches(name, shape, found) if group.rank == 0 else []
            failures += len(wrong)
            if group.rank == 0:
                verdict = "; ".join(wrong) or "counted as planned"
                print(f"sequences {name} {shape[0]}x{shape[1]}: {verdict}", flush=True)
    return failures


def documents(group, shape: tuple[int, int]) -> int:
    """How many counts differ from the plan's for topic models."""
    failures = 0
    for name, cut in counting_topics.MODELS.items():
        make, model = counting_topics.TREES[name]
        with MpiGrid(group, *shape) as grid:
            result = fit(make(), model, grid, max_iter=2, tol=None, cut=cut if shape[1] > 1 else None)
            found = group.gather((grid.coords, result))
        wrong = counting_topics.mismatches(name, shape, found) if group.rank == 0 else []
        failures += len(wrong)
        if group.rank == 0:
            print(f"documents {name} {shape[0]}x{shape[1]}: {'; '.join(wrong) or 'counted as planned'}", flush=True)
    return failures


def main(shapes: list[str]) -> int:
    warnings.simplefilter("ignore")
    comm = MPI.COMM_WORLD
    data, failures = table(), 0
    for number, shape in enumerate(tuple(map(int, s.split("x"))) for s in shapes):
        active = comm.rank < shape[0] * shape[1]
        group = comm.Split(0 if active else MPI.UNDEFINED, comm.rank)
        if active:
            for name, cut in tried_on(shape, number):
                model = MODELS[name][0]
                with MpiGrid(group, *shape) as grid:
                    result = fit(data, model, grid, max_iter=2, tol=None, cut=cut)
                    coords = grid.coords
                found = group.gather((coords, result))
                wrong = mismatches(model, shape, cut, found) if comm.rank == 0 else []
                failures += len(wrong)
                if comm.rank == 0:
                    verdict = "; ".join(wrong) or "counted as planned"
                    print(f"{name} {shape[0]}x{shape[1]} cut={cut!r}: {verdict}", flush=True)
            failures += sequences(group, shape)
            if shape in counting_topics.GRIDS:
                failures += documents(group, shape)
            group.Free()
        all_arrive(None)  # ranks outside the grid wait without taking a core
    return 1 if comm.allreduce(failures) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
