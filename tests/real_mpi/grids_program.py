"""Run under mpirun: every tree on the grids of this many ranks, against rank 0 alone; on more than six, which takes
long, the models of sequences and those of `LARGE` with their first cut. On more than two ranks each is also cut at
several nodes at once, where it has them. On more than three the cuts are dealt over the grids, but for those of
`EVERYWHERE`.

Prints a line for each; exit code 1 when one differs.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "execution"))
sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

import bags
import chains
import mixed
from mpi4py import MPI
from workload import difference, rows, trees

from mixle_mpi import Resources
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import all_arrive, serial_grid
from mixle_mpi.execution.shard import cut_paths
from mixle_mpi.planning.paths import cut_at
from mixle_mpi.planning.profile import profile_of

ITERATIONS = 6
EVERYWHERE = "nested"
NUMERIC = "everything"  # whose curves' M-step ends by a tolerance
LARGE = ("topics with a prior", "mixes", "topics beside a number", "processes")


def dealt(name: str, cuts: list, shapes: list[tuple[int, int]], ranks: int) -> dict[tuple[int, int], list]:
    """The cuts that are tried on each grid; each cut on one of those that cut at all."""
    cutting = [shape for shape in shapes if shape[1] > 1]
    if ranks <= 3 or name == EVERYWHERE:
        found = dict.fromkeys(cutting, cuts)
    else:
        found = {shape: cuts[k % len(cuts) :: len(cutting)] for k, shape in enumerate(cutting)}
    return {shape: found.get(shape, [None]) for shape in shapes}


def with_nested(model, cuts: list) -> list:
    """The cuts, and that of the root with all that can be cut inside."""
    try:
        cut_at(profile_of(model), "**")
    except ModelError:
        return cuts
    return [*cuts, "**"]


def main(shapes: list[str], control: bool) -> int:
    comm = MPI.COMM_WORLD
    resources = Resources.from_mpi()
    work = {name: (rows, model, cuts) for name, (model, cuts) in trees().items()}
    later = [(name, tree, module.CUTS.get(name, [None])) for module in (chains, bags, mixed)
             for name, tree in module.TREES.items()]  # fmt: skip
    work |= {name: (*tree, cuts) for name, tree, cuts in later}
    if comm.size > 6:
        some = {*chains.TREES, *LARGE}
        work = {name: (make, model, cuts[:1]) for name, (make, model, cuts) in work.items() if name in some}
    if comm.size > 2:
        work = {name: (make, model, with_nested(model, cuts)) for name, (make, model, cuts) in work.items()}
    grids = [tuple(map(int, shape.split("x"))) for shape in shapes]
    failures = 0
    for name, (make, model, cuts) in work.items():
        data = make()
        if comm.rank == 0:
            serial = fit(data, model, serial_grid(), max_iter=ITERATIONS, tol=None)
        all_arrive(None)  # the others wait without taking a core
        for (d, m), tried in dealt(name, cuts, grids, comm.size).items():
            if m > 1 and not cut_paths(model):
                continue
            for cut in tried:
                with resources.grid(d, m) as grid:
                    result = fit(data, model, grid, max_iter=ITERATIONS, tol=None, cut=cut,
                                 reduce_statistics=not control)  # fmt: skip
                digest = hashlib.sha256(result.model.state.theta.tobytes()).hexdigest()
                same = len(set(comm.allgather((digest, tuple(result.history))))) == 1
                if comm.rank == 0:
                    levels, parameters = difference(result, serial)
                    good = levels < (1e-10 if name == NUMERIC else 1e-12) and parameters < 1e-8 and same
                    failures += not good
                    print(f"{'same' if good else 'DIFFERENT'} {name!r} {d}x{m} cut={cut!r}: "
                          f"log likelihood {levels:.1e}, parameters {parameters:.1e}", flush=True)  # fmt: skip
    return 1 if comm.allreduce(failures) else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main([w for w in words if w != "--control"], "--control" in words))
