"""What a result was made with."""

from __future__ import annotations

import platform
import sys
from importlib import metadata

from mixle_mpi import __version__

PACKAGES = ("numpy", "scipy", "numba", "pyarrow", "mpi4py")


def versions() -> dict[str, str | None]:
    """Version of the package, Python, the packages it stands on, and the MPI library; None for what was not used."""
    found: dict[str, str | None] = {"mixle_mpi": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        found[name] = metadata.version(name)
    return found | {"mpi": mpi_library()}


def mpi_library() -> str | None:
    """The MPI library's name for itself, None when MPI was not started."""
    if "mpi4py.MPI" not in sys.modules:
        return None
    from mixle_mpi.execution.grid import library_version

    return library_version()
