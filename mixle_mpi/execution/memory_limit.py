"""How much memory a rank may use: the control group's limit, the scheduler's, and the memory of the node."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
NO_LIMIT = 1 << 60  # a limit that a version 1 control group writes where there is none
SLURM_UNIT = 1 << 20  # bytes of what Slurm calls a megabyte
KERNEL_BYTES = 57_000_000  # what numba and the kernels that it loads take of a rank's memory


def resident_bytes(statm: Path = Path("/proc/self/statm")) -> int:
    """Bytes of memory that this process has now; 0 where Linux does not tell."""
    try:
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def cgroup_limit(own: Path = OWN, mount: Path = CGROUPS) -> int | None:
    """Bytes that the control groups around this process may use, the least of them; None without a limit.

    Parameters
    ----------
    own : the file that names this process' groups, as /proc/self/cgroup
    mount : where groups are mounted; version 1 has its memory groups in the folder `memory` of it
    """
    found = [_limit(file) for file in _limit_files(own, mount)]
    return min((n for n in found if n is not None), default=None)


def _limit_files(own: Path, mount: Path) -> Iterator[Path]:
    """The files that may hold a limit of this process, from its own group up to the root.

    In a container the names may be those outside of it; then only the root is there.
    """
    try:
        lines = own.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = {"": "/", "memory": "/"}  # version 2 names no controllers
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        for controller in names.keys() & set(controllers.split(",")):
            names[controller] = name
    for controller, file in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        parts = [part for part in names[controller].split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield mount.joinpath(controller, *parts[:depth], file)


def _limit(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) < NO_LIMIT else None


def slurm_limit(ranks: int, environment: Mapping[str, str] = os.environ) -> int | None:
    """Bytes that Slurm gives to one of `ranks` ranks on this node; None outside a job, or for a whole node (0)."""
    per_cpu, per_node = (_number(environment, name) for name in ("SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE"))
    limits = []
    if per_cpu:
        limits.append(per_cpu * SLURM_UNIT * (_number(environment, "SLURM_CPUS_PER_TASK") or 1))
    if per_node:
        limits.append(per_node * SLURM_UNIT // ranks)
    return min(limits, default=None)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def physical_memory() -> int:
    """Bytes of memory of this node."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def rank_memory(ranks: int, environment: Mapping[str, str] = os.environ, own: Path = OWN, mount: Path = CGROUPS,
                physical: int | None = None) -> int:  # fmt: skip
    """Bytes that one of `ranks` ranks on this node may use.

    The least of its share of the node's memory (`physical`, by default what the system says), its share of the
    control group's limit, and what Slurm gives to it.
    """
    shared = [physical_memory() if physical is None else physical, cgroup_limit(own, mount)]
    limits = [n // ranks for n in shared if n is not None] + [slurm_limit(ranks, environment)]
    return min(n for n in limits if n is not None)
