"""Where numba keeps compiled kernels when the places that it knows cannot be written."""

from __future__ import annotations

import os
import tempfile

from numba.core import config

HERE = os.path.dirname(os.path.abspath(__file__))


def choose_cache() -> None:
    """Point numba at a directory that can be written, if it would find none; else leave it to numba.

    numba looks at NUMBA_CACHE_DIR, the `__pycache__` of the package, and the user's cache directory, and
    refuses to import the kernels when it can write none of them, as on a node without home directories.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    given: str = vars(config)["CACHE_DIR"]
    known = [given, os.path.join(HERE, "__pycache__"), os.path.join(home, "numba")]
    if not any(_writable(path) for path in known if path):
        vars(config)["CACHE_DIR"] = os.environ["NUMBA_CACHE_DIR"] = _own_directory()


def _writable(path: str) -> bool:
    try:
        os.makedirs(path, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return False
    return True


def _own_directory() -> str:
    """A directory for temporary files that no other user can write: code is loaded from it."""
    path = os.path.join(tempfile.gettempdir(), f"mixle_mpi-{os.getuid()}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        found = os.lstat(path)
        if found.st_uid != os.getuid() or found.st_mode & 0o40077 != 0o40000:  # a directory, and nobody else's
            return tempfile.mkdtemp(prefix="mixle_mpi-")
    return path
