"""How long this thread has spent compiling kernels and loading compiled ones."""

from __future__ import annotations

import threading
import time

from numba.core import event

LOCK = "numba:compiler_lock"  # held while numba compiles, and while it loads what was compiled before
COMPILE = "numba:compile"


class _Stopwatch(event.Listener):
    """Seconds within numba's compiler lock, and the number of kernels that were compiled, by thread."""

    def __init__(self):
        self._own = threading.local()

    def spent(self) -> tuple[float, int]:
        own = vars(self._own)
        return own.get("seconds", 0.0), own.get("kernels", 0)

    def on_start(self, occurred):
        own = vars(self._own)
        if occurred.kind == COMPILE:
            own["kernels"] = own.get("kernels", 0) + 1
            return
        depth = own.get("depth", 0)
        if depth == 0:
            own["since"] = time.perf_counter()
        own["depth"] = depth + 1

    def on_end(self, occurred):
        own = vars(self._own)
        if occurred.kind == COMPILE or own.get("depth", 0) == 0:
            return
        own["depth"] -= 1
        if own["depth"] == 0:
            own["seconds"] = own.get("seconds", 0.0) + time.perf_counter() - own["since"]


_STOPWATCH = _Stopwatch()
event.register(LOCK, _STOPWATCH)
event.register(COMPILE, _STOPWATCH)


def compile_seconds() -> float:
    """Seconds that this thread has spent compiling and loading kernels, whatever it was doing meanwhile."""
    return _STOPWATCH.spent()[0]


def kernels_compiled() -> int:
    """How many kernels this thread has compiled; those that were loaded are not among them."""
    return _STOPWATCH.spent()[1]


def working_time() -> float:
    """A clock in seconds that stands still while this thread compiles or loads kernels."""
    return time.perf_counter() - compile_seconds()
