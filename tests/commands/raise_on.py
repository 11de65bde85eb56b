"""Run `fit` with a function of the package that raises on some ranks.

python raise_on.py MODULE[:CLASS] FUNCTION RANKS ERROR -- words of fit; RANKS as in 1,3.
Prints "RAISED <time>" when it does.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import time

from mixle_mpi.commands.launch import default_threads, launch
from mixle_mpi.contract import errors

default_threads()


def raiser(kind: str):
    known = vars(errors) | vars(builtins)

    def boom(*words, **keywords):
        print(f"RAISED {time.time()}", file=sys.stderr, flush=True)
        raise known[kind]("boom")

    return boom


if __name__ == "__main__":
    where, function, ranks, kind, _, *argv = sys.argv[1:]
    module, _, owner = where.partition(":")
    target = importlib.import_module(module)
    if owner:
        target = vars(target)[owner]
    if launch().rank in map(int, ranks.split(",")):
        setattr(target, function, raiser(kind))
    from mixle_mpi.commands.fit import main

    sys.exit(main(argv))
