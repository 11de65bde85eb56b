"""How many threads the libraries below NumPy and numba may start in a process: nothing here imports them."""

from __future__ import annotations

import os

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def default_threads(environment=os.environ) -> int:
    """Set the thread variables that are unset or empty to 1, and return the threads of this process.

    To be called before numpy is imported: the BLAS reads them once.
    """
    for name in THREADS:
        environment[name] = environment.get(name) or "1"
    numbers = [environment[name] for name in THREADS]
    return max([int(n) for n in numbers if n.isascii() and n.isdigit()], default=1)
