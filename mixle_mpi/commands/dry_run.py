"""`fit --dry-run`: the plan of a fit from its run file and its data, without fitting."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from mixle_mpi.commands.ending import DONE, TOO_BIG, say
from mixle_mpi.commands.plan import machine_of
from mixle_mpi.contract.errors import ModelError

OPTIONS = ("ranks", "memory")  # of those of `commands.plan` the ones that a fit finds out by itself


def check(options: argparse.Namespace) -> None:
    """Raise ModelError for options that only a dry run has, or that miss another."""
    for name in OPTIONS:
        if vars(options)[name] is not None and not options.dry_run:
            raise ModelError(f"--{name.replace('_', '-')} says what a dry run plans for: it needs --dry-run")
    if options.ranks_per_node is not None and options.machine is None:
        raise ModelError("--ranks-per-node needs --machine, which says how many nodes there are")


def dry_run(options: argparse.Namespace, settings: dict, model, world) -> int:
    """Read and check the data, plan for the ranks that options say, and print; the exit code. Collective."""
    from mixle_mpi.contract.work import CALL_SECONDS
    from mixle_mpi.data.table import on_first
    from mixle_mpi.execution.asked import check_options
    from mixle_mpi.execution.choose import asked as asked_for
    from mixle_mpi.execution.choose import observed
    from mixle_mpi.execution.load import parse_grid, read
    from mixle_mpi.execution.shard import check_cut
    from mixle_mpi.planning.balance import plan_grid
    from mixle_mpi.planning.describe import lines
    from mixle_mpi.planning.side_by_side import side_by_side, sides_lines

    resources, *_ = machine_of(options)
    if options.machine is None:
        resources = dataclasses.replace(resources, call_seconds=CALL_SECONDS)  # as `execution.choose.unmeasured`
    asked, data = settings["fit"], settings["data"]
    check_options(model, asked["max_iter"], None, asked["starts"], asked["impossible"], "replicated")
    if "cut" in asked:
        check_cut(model, asked["cut"])
    path = [Path(p) for p in data["path"]] if isinstance(data["path"], list) else data["path"]
    found = read(path, model, world, weights=data.get("weight"), sequence=data.get("sequence"), warn=True)
    shape, rows = parse_grid(asked["grid"]), max(found.total, 1)
    given = observed(found.model, rows)
    if shape is not None and asked["tune"]:
        raise ModelError(f"tune chooses among grids, but the grid is given as {shape[0]} x {shape[1]}")

    def planned():
        if shape is None:
            options = {"n_data": rows, "cut": asked.get("cut"), "given": given}
            one = plan_grid(found.model, resources, **options)
            return one, side_by_side(found.model, resources, range(asked["starts"]), one, **options)
        if shape[0] * shape[1] != len(resources.devices):
            raise ModelError(f"grid: {shape[0]} x {shape[1]} are not {len(resources.devices)} ranks; see --ranks")
        choice = asked_for(found.model, rows, resources, shape, asked.get("cut"))
        if choice.plan is None:
            raise ModelError(f"cut {choice.cut!r} can be run but not planned: the nodes there are not alike")
        return choice.plan, ()

    plan, sides = on_first(world, planned)
    if world.rank == 0:
        say("\n".join(lines(plan, found.model, resources, given, str(options.run_file or "the demo"))))
        if plan.fits and sides and asked["starts"] > 1 and not asked["tune"]:
            say("\n".join(["", *sides_lines(sides, plan)]))
    return DONE if plan.fits else TOO_BIG
