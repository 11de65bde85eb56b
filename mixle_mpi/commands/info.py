"""The command `info`: the environment in one block."""

from __future__ import annotations

import argparse
import json

from mixle_mpi.commands.ending import DONE, run, say
from mixle_mpi.commands.parser import Parser

NAME = "mixle_mpi.info"
EPILOG = """Alone or under a launcher, which is how to see what a job would get:

  mpirun -n 4 python -m mixle_mpi.info"""


def parser(speaks: bool) -> Parser:
    """The command line of `info`."""
    p = Parser(speaks=speaks, prog="python -m mixle_mpi.info", epilog=EPILOG,
               description="Versions, MPI, processors, memory and scheduler, as a fit would find them.")  # fmt: skip
    p.set_defaults(allow_singleton=True)  # what each process finds is what is asked
    p.add_argument("--json", action="store_true", help="print the block of result.json instead")
    return p


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run(NAME, parser, work, argv)


def work(options: argparse.Namespace, world, threads: int) -> int:
    """Print the environment on rank 0; the exit code. Collective."""
    from mixle_mpi.report.environment import environment, environment_lines

    found = environment(world, threads)
    if world.rank == 0:
        say(json.dumps(found, indent=1) if options.json else "\n".join(environment_lines(found)))
    return DONE
