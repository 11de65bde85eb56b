"""Run under mpirun: every tree on the grids of this many ranks, against serial; on more than six, which takes long, the
models of sequences and of documents with their first cut.

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
from mpi4py import MPI
from workload import difference, rows, trees

from mixle_mpi import Resources
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.shard import cut_paths

ITERATIONS = 6


def main(shapes: list[str], control: bool) -> int:
    comm = MPI.COMM_WORLD
    resources = Resources.from_mpi()
    work = {name: (rows, model, cuts) for name, (model, cuts) in trees().items()}
    later = [(name, tree, module.CUTS.get(name, [None])) for module in (chains, bags)
             for name, tree in module.TREES.items()]  # fmt: skip
    work |= {name: (*tree, cuts) for name, tree, cuts in later}
    if comm.size > 6:
        work = {name: (*tree, cuts[:1]) for name, tree, cuts in later}
    failures = 0
    for name, (make, model, cuts) in work.items():
        data = make()
        serial = fit(data, model, serial_grid(), max_iter=ITERATIONS, tol=None)
        for shape in shapes:
            d, m = map(int, shape.split("x"))
            if m > 1 and not cut_paths(model):
                continue
            for cut in cuts if m > 1 else [None]:
                with resources.grid(d, m) as grid:
                    result = fit(data, model, grid, max_iter=ITERATIONS, tol=None, cut=cut,
                                 reduce_statistics=not control)  # fmt: skip
                levels, parameters = difference(result, serial)
                digest = hashlib.sha256(result.model.state.theta.tobytes()).hexdigest()
                same = len(set(comm.allgather((digest, tuple(result.history))))) == 1
                good = levels < 1e-12 and parameters < 1e-8 and same
                failures += not good
                if comm.rank == 0:
                    print(f"{'same' if good else 'DIFFERENT'} {name!r} {shape} cut={cut!r}: "
                          f"log likelihood {levels:.1e}, parameters {parameters:.1e}", flush=True)  # fmt: skip
    return 1 if comm.allreduce(failures) else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main([w for w in words if w != "--control"], "--control" in words))
