"""What a run was made with, and where: versions, libraries, processors, memory, scheduler."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from mixle_mpi.execution.memory_limit import cgroup_limit, physical_memory
from mixle_mpi.execution.processor import cpu_model
from mixle_mpi.report.versions import versions

SCHEDULER = ("SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS",
             "SLURM_RESTART_COUNT", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID")  # fmt: skip
MEMORY = ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU")  # MB


def environment(world, threads: int) -> dict[str, Any]:
    """The environment of all ranks, for people and for `result.json`. Collective."""
    own = {
        "host": socket.gethostname(),
        "affinity": len(os.sched_getaffinity(0)),
        "cores": os.cpu_count() or 1,
        "threads": threads,
        "memory_limit": cgroup_limit(),
    }
    everyone = world.allgather(own)
    ranks = Counter(p["host"] for p in everyone)
    return {
        "versions": versions(),
        "commit": commit(),
        "blas": blas(),
        "mpi": mpi(),
        "cpu": cpu_model(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "ranks": world.size,
        "hosts": dict(ranks),
        "rank_hosts": [p["host"] for p in everyone],
        "affinity": [p["affinity"] for p in everyone],
        "cores": [p["cores"] for p in everyone],
        "threads": [p["threads"] for p in everyone],
        "memory": {
            "total": physical_memory(),
            "limit": min((p["memory_limit"] for p in everyone if p["memory_limit"] is not None), default=None),
        } | {name: os.environ[name] for name in MEMORY if name in os.environ},
        "scheduler": {name: os.environ[name] for name in SCHEDULER if name in os.environ},
    }  # fmt: skip


def environment_lines(found: dict[str, Any]) -> list[str]:
    """The block that people read."""
    known = {name: version for name, version in found["versions"].items() if name not in ("mixle_mpi", "mpi")}
    commit_text = "" if found["commit"] is None else f", commit {found['commit']}"
    mpi_found = found["mpi"]
    mpi_text = "not started"
    if mpi_found is not None:
        mpi_text = (
            f"{mpi_found['library']}, standard {mpi_found['standard']}, thread level {mpi_found['thread_level']}, "
            f"ULFM {'yes' if mpi_found['ulfm'] else 'no'}"
            f"{' (the library has it)' if mpi_found['ulfm_available'] and not mpi_found['ulfm'] else ''}"
        )
    hosts = ", ".join(f"{host} x {n}" for host, n in list(found["hosts"].items())[:8])
    more = f", and {len(found['hosts']) - 8} more" if len(found["hosts"]) > 8 else ""
    memory = f"{found['memory']['total'] / 2**30:.1f} GiB"
    if found["memory"]["limit"] is not None:
        memory += f", limit {found['memory']['limit'] / 2**30:.1f} GiB"
    memory += "".join(f", {name} {found['memory'][name]}" for name in MEMORY if name in found["memory"])
    pairs = [
        ("mixle_mpi", found["versions"]["mixle_mpi"] + commit_text),
        ("versions", ", ".join(f"{name} {version}" for name, version in known.items())),
        ("BLAS", found["blas"] or "unknown"),
        ("MPI", mpi_text),
        ("CPU", f"{found['cpu'] or found['machine']}; {found['system']}"),
        ("ranks", f"{found['ranks']} on {len(found['hosts'])} hosts: {hosts}{more}"),
        ("affinity", f"{spread(found['affinity'])} of {spread(found['cores'])} cores, "
                     f"threads per rank {spread(found['threads'])}"),
        ("memory", memory),
        ("scheduler", ", ".join(f"{k} {v}" for k, v in found["scheduler"].items()) or "none"),
    ]  # fmt: skip
    return [f"{name:10} {text}" for name, text in pairs]


def spread(values) -> str:
    """One number, or the least and the largest."""
    low, high = min(values := list(values)), max(values)
    return str(low) if low == high else f"{low} to {high}"


def commit() -> str | None:
    """The commit of the checkout that the package is imported from, "-dirty" with changes; None of a copy."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        found = subprocess.run(words, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() if found.returncode == 0 else None


def blas() -> str | None:
    """Name and version of the library that multiplies NumPy's matrices."""
    import numpy as np

    config = np.show_config(mode="dicts")
    found = config["Build Dependencies"]["blas"] if isinstance(config, dict) else {}
    return f"{found['name']} {found['version']}" if "name" in found else None


def mpi() -> dict[str, Any] | None:
    """What the MPI library says of itself, None when MPI was not started."""
    if "mpi4py.MPI" not in sys.modules:
        return None
    from mixle_mpi.execution.grid import mpi_facts

    return mpi_facts()
