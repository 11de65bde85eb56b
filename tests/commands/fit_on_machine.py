"""Run `fit` on ranks that are taken for those of a machine file, in place of measured ones.

python fit_on_machine.py MACHINE RANK -- words of fit. RANK raises KeyError in its second pass; -1 for none.
Each rank writes seconds of processor time, by which the fit ended, to the file `cpu-<rank>`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from mixle_mpi.commands.launch import default_threads, launch

default_threads()

if __name__ == "__main__":
    machine, failing, _, *argv = sys.argv[1:]
    from mixle_mpi.commands.fit import main
    from mixle_mpi.execution import em
    from mixle_mpi.execution.executor import Executor
    from mixle_mpi.planning.resources import Resources

    em.resources_of = lambda world: Resources.from_file(machine)
    e_step, launched = Executor.e_step, launch()

    def failing_step(self):
        if self.counts.passes and self.grid.world.size > 1 and launched.rank == int(failing):
            raise KeyError("boom")
        return e_step(self)

    Executor.e_step = failing_step
    on_grid = em.on_grid

    def timed(world, *words):
        began = time.process_time()
        result = on_grid(world, *words)
        Path(f"cpu-{world.rank}").write_text(str(time.process_time() - began))
        return result

    em.on_grid = timed
    sys.exit(main(argv))
