"""Run under mpirun: collectives and a fit whose messages are far above the limit of one, against NumPy and serial.

With MIXLE_MPI_MESSAGE_LIMIT=1MiB; prints a line for each, exit code 1 when one differs (case P03).
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from mpi4py import MPI

from mixle_mpi import Categorical, HiddenMarkov, Mixture
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import mpi_grid, mpi_world, serial_grid
from mixle_mpi.execution.messages import message_limit

VALUES = 1_000_003  # float64, 8 MB
LEVELS, K, ROWS = 20_000, 40, 3000


def collectives(world) -> dict[str, bool]:
    """Whether each collective gives what it should, for arrays that differ between ranks."""
    size, rank = world.size, world.rank
    arrays = [np.arange(VALUES, dtype=np.float64) % 1009 + r for r in range(size)]
    own, found = arrays[rank], {}
    whole = own.copy()
    world.allreduce(whole)
    found["allreduce"] = np.array_equal(whole, np.sum(arrays, axis=0))
    found["allgather_array"] = np.array_equal(world.allgather_array(own), np.stack(arrays))
    counts = [VALUES // (size + 1) * (1 + (r == 0)) for r in range(size)]  # the first has twice as many
    at = np.concatenate([[0], np.cumsum(counts)])
    part = world.reduce_scatter(own[: at[-1]], counts)
    found["reduce_scatter"] = np.array_equal(part, np.sum(arrays, axis=0)[at[rank] : at[rank + 1]])
    gathered = world.allgather_parts(own[: counts[rank]], counts)
    found["allgather_parts"] = np.array_equal(gathered, np.concatenate([a[:n] for a, n in zip(arrays, counts)]))
    copy = own.copy()
    world.bcast(copy, root=size - 1)
    found["bcast"] = np.array_equal(copy, arrays[-1])
    sent = [arrays[rank][: counts[to]] for to in range(size)]
    expected = np.concatenate([arrays[source][: counts[rank]] for source in range(size)])
    found["alltoall"] = np.array_equal(np.concatenate(world.alltoall(sent)), expected)
    came = world.exchange(np.concatenate(sent), counts, [counts[rank]] * size, size * sum(counts))
    found["exchange"] = np.array_equal(came, expected)
    return found


def main() -> int:
    warnings.simplefilter("ignore")
    world = mpi_world()
    assert message_limit() == 1 << 20
    wrong = 0
    for name, right in collectives(world).items():
        everyone = all(world.allgather(right))
        wrong += not everyone
        if world.rank == 0:
            print(f"{'same' if everyone else 'DIFFERENT'} {name} of {VALUES * 8} bytes", flush=True)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, LEVELS, ROWS)
    steps = [rng.integers(0, 50, 400) for _ in range(120)]
    for name, data, model in [
        ("statistics", labels, Mixture(Categorical(list(range(LEVELS)), pseudo_count=0.1), K)),
        ("posteriors", steps, HiddenMarkov(Categorical(), 12)),
    ]:
        serial = fit(data, model, serial_grid(), max_iter=2, tol=None)
        for shape in ((world.size, 1), (1, world.size)):
            with mpi_grid(*shape) as grid:
                found = fit(data, model, grid, max_iter=2, tol=None)
            apart = np.abs(np.array(found.history) - serial.history).max() / max(abs(serial.log_likelihood), ROWS)
            sent = max(world.allgather(max(t.bytes for t in found.payload.values())))
            objects = max(world.allgather(max(found.payload[axis].objects for axis in ("data", "model"))))
            right = apart < 1e-12 and objects == 0
            wrong += not right
            if world.rank == 0:
                print(f"{'same' if right else 'DIFFERENT'} fit with large {name} on {shape[0]}x{shape[1]}: "
                      f"{apart:.1e}, {sent} bytes of a rank", flush=True)  # fmt: skip
    return int(MPI.COMM_WORLD.allreduce(wrong) > 0)


if __name__ == "__main__":
    sys.exit(main())
