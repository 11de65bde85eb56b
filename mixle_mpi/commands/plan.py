"""The command `plan`: what a fit would do on a machine, from its run file alone."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mixle_mpi.commands import settings as run_file
from mixle_mpi.commands.ending import DONE, REFUSED, TOO_BIG, exit_code, say
from mixle_mpi.commands.launch import default_threads
from mixle_mpi.commands.parser import Parser, UsageError
from mixle_mpi.contract.errors import ModelError, nearest

if TYPE_CHECKING:
    from mixle_mpi.planning.resources import Resources

NAME = "mixle_mpi.plan"
COUNTS = {"levels": "labels of a categorical column", "dim": "columns of a vector",
          "length": "steps of a sequence, tokens of a document", "rounds": "inner rounds of a topic model",
          "passes": "further passes of a Laplace M-step", "observed": "share of an optional column that is there",
          "searches": "steps of an iterative M-step"}  # fmt: skip
EPILOG = """No data are read and no MPI is started: a login node will do.

  python -m mixle_mpi.plan examples/penguins.toml --ranks 64 --rows 1e9 --machine slurm/machines/node.toml
  python -m mixle_mpi.plan run.toml --ranks 256 --rows 1e6 --memory 4GB --levels city=5000 --levels 10

Exit codes: 0 the plan fits; 2 usage or run file; 3 no plan fits into the memory; 74 input failed."""


def parser() -> Parser:
    """The command line of `plan`."""
    p = Parser(speaks=True, prog="python -m mixle_mpi.plan", epilog=EPILOG,
               description="Plan a fit: sizes, costs, the best grids, and who would hold what.")  # fmt: skip
    p.add_argument("run_file", nargs="?", metavar="RUN.toml")
    p.add_argument("--demo", action="store_true", help="the packaged example")
    p.add_argument("--rows", metavar="N", required=True, help="rows in all, as in 1e9")
    add_machine_options(p)
    for name, text in COUNTS.items():
        p.add_argument(f"--{name}", metavar="[FIELD=]X", nargs="+", action="extend", default=[],
                       help=f"{text}, for one field of a record or for all")  # fmt: skip
    p.add_argument("--starts", metavar="N", default="1", help="starts, which may run side by side on fewer ranks each")
    p.add_argument("--json", action="store_true", help="print the plan as JSON")
    return p


def add_machine_options(p: argparse.ArgumentParser) -> None:
    """Options that say for which ranks is planned, see `machine_of`."""
    p.add_argument("--ranks", metavar="P", help="ranks; by default all cores of the machine file, or 1")
    p.add_argument("--machine", metavar="FILE",
                   help="a machine file, as in slurm/machines/, by whose throughputs rows and units are dealt")
    p.add_argument("--ranks-per-node", metavar="R", help="ranks of a node, by default one for each core")
    p.add_argument("--memory", metavar="SIZE", help="memory of a rank, as in 4GB; wins over the machine file")


def machine_of(options: argparse.Namespace) -> tuple[Resources, int | None, int | None]:
    """The ranks that options say; and how many in all and on a node, where that was asked. Raises ModelError."""
    from mixle_mpi.planning.machine import MOST_RANKS, parse_bytes
    from mixle_mpi.planning.resources import Resources

    ranks = None if options.ranks is None else whole(options.ranks, "--ranks")
    each = None if options.ranks_per_node is None else whole(options.ranks_per_node, "--ranks-per-node")
    if options.machine is None:
        if each is not None:
            raise ModelError("--ranks-per-node needs --machine, which says how many nodes there are")
        if ranks is not None and ranks > MOST_RANKS:
            raise ModelError(f"--ranks {options.ranks}: more than the {MOST_RANKS} that can be planned for")
        resources = Resources.local(ranks or 1)
    else:
        resources = Resources.from_file(options.machine, ranks, each)
    if options.memory is not None:
        resources = resources.limited(parse_bytes(options.memory, "--memory"))
    return resources, ranks, each


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    default_threads()
    try:
        return work(parser().read(argv))
    except (UsageError, ModelError, OSError) as error:
        text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        say(f"{NAME}: error: {text}", sys.stderr)
        return REFUSED if isinstance(error, UsageError) else exit_code(error)


def whole(text: str, option: str) -> int:
    """A whole number >= 1, also as 1e9. Raises ModelError."""
    try:
        value = float(text)
    except ValueError:
        raise ModelError(f"{option} {text}: not a number") from None
    if not 1 <= value < 2**62 or value != int(value):
        raise ModelError(f"{option} {text}: not a whole number >= 1")
    return int(text) if text.isdigit() else int(value)


def given_counts(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """The numbers that options give: by what they count, and by field, "" for all. Raises ModelError."""
    found: dict[str, dict[str, float]] = {}
    for what in COUNTS:
        for text in options.__dict__[what]:
            name, _, number = text.rpartition("=")
            try:
                value = float(number)
            except ValueError:
                raise ModelError(f"--{what} {text}: {number!r} is not a number") from None
            least, most = (0.0, 1.0) if what == "observed" else (0.0 if what == "passes" else 1.0, 1e12)
            if not least <= value <= most or (what in ("levels", "dim") and value != int(value)):
                raise ModelError(f"--{what} {text}: {number} is no such number")
            found.setdefault(what, {})[name] = value
    return found


def work(options: argparse.Namespace) -> int:
    """Plan and print; the exit code."""
    from mixle_mpi.models.composite import Record
    from mixle_mpi.models.specification import build
    from mixle_mpi.planning.balance import plan_grid
    from mixle_mpi.planning.describe import as_data, lines
    from mixle_mpi.planning.side_by_side import side_by_side, sides_data, sides_lines

    if options.demo == (options.run_file is not None):
        raise ModelError("give a run file or --demo, not both" if options.demo else "a run file is needed, or --demo")
    path = run_file.DEMO if options.demo else Path(options.run_file)
    tables = run_file.read(path)
    if "model" not in tables:
        raise ModelError(f"{path}: the table [model] is missing")
    model = build(tables["model"])
    rows, starts = whole(options.rows, "--rows"), whole(options.starts, "--starts")
    resources, ranks, each = machine_of(options)
    given = given_counts(options)
    fields = {name for n in model.walk() if isinstance(n, Record) for name in n.field_names}
    for what, values in given.items():
        for name in values:
            if name and name not in fields:
                raise ModelError(f"--{what} {name}=...: the model has no field {name!r}; {nearest(name, fields)}")
    plan = plan_grid(model, resources, n_data=rows, given=given)
    sides = side_by_side(model, resources, range(starts), plan, n_data=rows, given=given)
    if options.json:
        found = as_data(plan, model, resources, given)
        say(json.dumps(found if starts == 1 else found | {"sides": sides_data(sides)}, indent=1))
    else:
        text = lines(plan, model, resources, given, str(path))
        say("\n".join([*text, *(["", *sides_lines(sides, plan)] if starts > 1 and plan.fits else [])]))
        if not plan.fits and options.machine is not None and options.memory is None:
            say(fewer_ranks(options, lambda r: plan_grid(model, r, n_data=rows, given=given), ranks, each))
    return DONE if plan.fits else TOO_BIG


def fewer_ranks(options: argparse.Namespace, plan: Callable, ranks: int | None, each: int | None) -> str:
    """What to do when nothing fits: fewer ranks a node have more memory each."""
    from mixle_mpi.planning.machine import read_machine
    from mixle_mpi.planning.resources import Resources

    nodes = read_machine(Path(options.machine))["nodes"]
    cores = min(n["cores"] for n in nodes) if each is None else each
    per_node = cores // 2
    while per_node:
        places = per_node * sum(n["count"] for n in nodes)
        resources = Resources.from_file(options.machine, min(places, ranks or places), per_node)
        found = plan(resources)
        if found.fits:
            total = found.extra["seconds"]["total"]
            grid = f"{found.data_parallel:,} x {found.model_parallel:,}"
            return (f"\nFewer ranks a node leave more memory to each: --ranks-per-node {per_node} fits, as {grid} "
                    f"with {total:.4g} s an iteration, if the cores that are left over stay idle.")  # fmt: skip
        per_node //= 2
    return "\nFewer ranks a node do not make it fit either: more nodes, or a smaller model, are needed."
