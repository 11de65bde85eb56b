"""Where a fit runs. Each backend is one module with one function, `fit(asked) -> Result`, imported when it is used.

They share one idea: an E-step that leaves one flat buffer of statistics on each rank, partition or thread; a reduction
of these; and an M-step.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from mixle_mpi.contract.errors import ModelError

if TYPE_CHECKING:
    from mixle_mpi.execution.asked import Asked
    from mixle_mpi.execution.result import Result

BACKENDS = ("local", "mpi", "mp", "spark")


def backend_of(name: str) -> Callable[[Asked], Result]:
    """The function that fits on the backend of a name. Raises ModelError for one that there is not."""
    if name not in BACKENDS:
        raise ModelError(f"backend = {name!r}: choose one of {', '.join(BACKENDS)}")
    return importlib.import_module(f"{__name__}.{name}").fit
