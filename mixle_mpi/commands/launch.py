"""What the environment says before MPI and numpy are loaded: who launched this process, how many threads."""

from __future__ import annotations

import os
from dataclasses import dataclass

from mixle_mpi.execution.library_threads import THREADS as THREADS
from mixle_mpi.execution.library_threads import default_threads as default_threads

# Open MPI and PRRTE, MPICH and its kin (Intel, Cray), MVAPICH, any launcher that speaks PMIx
RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")
SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")


@dataclass(frozen=True)
class Launch:
    """A process of a parallel job, as its launcher numbers it; `size` is None where only MPI knows it."""

    rank: int
    size: int | None


def launch(environment=os.environ) -> Launch | None:
    """How this process was launched; None without a launcher, as on a login node."""
    rank = _first(RANK, environment)
    size = _first(SIZE, environment)
    slurm = _slurm(environment, rank is not None)
    if slurm is not None:
        rank = slurm.rank if rank is None else rank
        size = slurm.size if size is None else size
    if rank is None and size is None:
        return None
    return Launch(rank or 0, size)


def _slurm(environment, launched: bool) -> Launch | None:
    """What SLURM numbers: the tasks of a step, else those of the job whose script runs this; None for one task.

    Of a process that another launcher `launched`, the job's variables say nothing.
    """
    in_step = "SLURM_STEP_ID" in environment
    size = _number("SLURM_STEP_NUM_TASKS", environment) if in_step else None
    if size is None and not launched:
        size = _number("SLURM_NTASKS", environment)
    rank = _number("SLURM_PROCID", environment)
    if rank is None or size is None or size < 2 or (launched and not in_step):
        return None
    return Launch(rank, size)


def _first(names: tuple[str, ...], environment) -> int | None:
    found = (_number(name, environment) for name in names)
    return next((n for n in found if n is not None), None)


def _number(name: str, environment) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None
