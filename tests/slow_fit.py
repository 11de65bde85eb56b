"""Run `fit` with a pause in each iteration, and the process number of each rank in the file `pid-<rank>`.

python slow_fit.py SECONDS -- words of fit. Variables: SLOW_FIT_CLOCKS, the clocks of other ranks than 0 are
wrong by hours; SLOW_FIT_FIRST, rank 0 makes no pause; SLOW_FIT_BYTES, no file may grow larger on rank 0;
SLOW_FIT_EQUAL, ranks are taken for equal ones whose messages take no time; SLOW_FIT_FAILS, the rank that fails in its
eighth pass with a NumericalError.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

from mixle_mpi.commands.launch import default_threads, launch

default_threads()
FAILING = 7  # passes before the one that fails

if __name__ == "__main__":
    pause, _, *argv = sys.argv[1:]
    launched = launch()
    rank = 0 if launched is None else launched.rank
    from mixle_mpi.commands.fit import main
    from mixle_mpi.contract.errors import NumericalError
    from mixle_mpi.execution import em
    from mixle_mpi.execution.executor import Executor
    from mixle_mpi.planning.resources import Resources

    maximize = Executor.maximize

    def slowly(self):
        if rank == 0 and "SLOW_FIT_BYTES" in os.environ:  # not before: MPICH makes files in memory when it starts
            size = int(os.environ["SLOW_FIT_BYTES"])
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        if rank or "SLOW_FIT_FIRST" not in os.environ:
            time.sleep(float(pause))
        return maximize(self)

    Executor.maximize = slowly
    if "SLOW_FIT_EQUAL" in os.environ:
        em.resources_of = lambda world: Resources.local(world.size)
    if os.environ.get("SLOW_FIT_FAILS") == str(rank):
        e_step = Executor.e_step

        def failing(self):
            if self.counts.passes == FAILING:
                raise NumericalError("boom")
            return e_step(self)

        Executor.e_step = failing
    if rank and "SLOW_FIT_CLOCKS" in os.environ:
        monotonic = time.monotonic
        time.monotonic = lambda: 1e4 * rank + 50.0 * monotonic()
    part = Path(f"pid-{rank}.part")
    part.write_text(str(os.getpid()))
    part.rename(f"pid-{rank}")
    sys.exit(main(argv))
