"""The command `info`: the environment in one block, and what the ranks can do, measured."""

from __future__ import annotations

import argparse
import json

from mixle_mpi.commands.ending import DONE, run, say
from mixle_mpi.commands.parser import Parser

NAME = "mixle_mpi.info"
EPILOG = """Alone or under a launcher, which is how to see what a job would get:

  mpirun -n 4 python -m mixle_mpi.info
  mpirun -n 4 python -m mixle_mpi.info --calibrate --machine here.toml
  python -m mixle_mpi.plan run.toml --machine here.toml"""


def parser(speaks: bool) -> Parser:
    """The command line of `info`."""
    p = Parser(speaks=speaks, prog="python -m mixle_mpi.info", epilog=EPILOG,
               description="Versions, MPI, processors, memory and scheduler, as a fit would find them.")  # fmt: skip
    p.set_defaults(allow_singleton=True)  # what each process finds is what is asked
    p.add_argument("--json", action="store_true", help="print the block of result.json instead")
    p.add_argument("--calibrate", action="store_true",
                   help="measure how fast the ranks compute and exchange messages, all of them at work; kept for later "
                        "runs of the same ranks in the user's cache directory, or in MIXLE_MPI_CACHE")  # fmt: skip
    p.add_argument("--machine", metavar="FILE",
                   help="write what --calibrate found, which this implies, as a machine file for plan (TOML, or JSON "
                        "by its name)")  # fmt: skip
    return p


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run(NAME, parser, work, argv)


def work(options: argparse.Namespace, world, threads: int) -> int:
    """Print the environment, and what was measured, on rank 0; the exit code. Collective."""
    from mixle_mpi.report.environment import environment, environment_lines

    found = environment(world, threads)
    lines = environment_lines(found)
    if options.calibrate or options.machine is not None:
        from mixle_mpi.data.table import on_first
        from mixle_mpi.execution.calibrate import calibrated, measured_resources
        from mixle_mpi.report.machine import machine_data, machine_lines

        measured = calibrated(world, anew=True)
        resources = measured_resources(world, measured)
        found["measured"] = machine_data(measured, resources)
        lines += machine_lines(measured, resources)
        if options.machine is not None:
            on_first(world, lambda: resources.to_file(options.machine))
    if world.rank == 0:
        say(json.dumps(found, indent=1) if options.json else "\n".join(lines))
    return DONE
