"""A plan in words, tables and a drawing, and as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mixle_mpi.contract.blocks import shard_rows
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.work import Assumed
from mixle_mpi.planning.balance import BalancePlan
from mixle_mpi.planning.paths import cut_words
from mixle_mpi.planning.profile import FLOAT, Profile, profile_of
from mixle_mpi.planning.rationale import size
from mixle_mpi.planning.resources import Resources

Given = Mapping[str, Mapping[str, float]]
MOST_CHILDREN = 12  # of a node in the tree
MOST_DRAWN = 5  # shards in a row or column of the drawing
ITERATIONS = 100  # core-hours are told for so many


def tree_rows(
    profile: Profile, role: str = "", copies: float = 1, rows: float = 1.0, depth: int = 0
) -> Iterator[tuple]:
    """Node, number in the whole model, E-step FLOPs of an observation, bytes of parameters, M-step FLOPs, axis."""
    load = profile.load
    flops = (load.flops * copies + load.row_flops) * rows
    held = (load.held.params + load.shared.params) * copies + sum(h.params for h in load.keyed.values())
    dc = profile.decomposition
    axis = f"{dc.num_units} {dc.axis.value}{'s' * (dc.num_units > 1)}" if dc.is_shardable else ""
    name = f"{'  ' * depth}{role + ': ' if role else ''}{profile.node.type_name()}"
    yield name, copies, flops, held * FLOAT, load.m_step(1) * copies, axis
    for run in profile.runs[:MOST_CHILDREN]:
        alone = run.role_of(0) if run.count == 1 else run.role
        yield from tree_rows(run.profile, alone, copies * run.count, rows * run.rows, depth + 1)
    if len(profile.runs) > MOST_CHILDREN:
        yield f"{'  ' * (depth + 1)}... and {len(profile.runs) - MOST_CHILDREN} more", None, None, None, None, ""


def number(value: float) -> str:
    """A count in at most four digits or with a power of ten."""
    return f"{value:,.0f}" if value < 1e5 else f"{value:.3g}"


def seconds(value: float) -> str:
    """A time in words."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """Columns side by side, the first one left, the others right."""
    widths = [max(len(r[k]) for r in [header, *rows]) for k in range(len(header))]
    left = [k == 0 or name == "cut" for k, name in enumerate(header)]

    def line(cells: list[str]) -> str:
        padded = (c.ljust(w) if at_left else c.rjust(w) for c, w, at_left in zip(cells, widths, left))
        return "  ".join(padded).rstrip()

    return [line(cells) for cells in [header, *rows]]


def lines(plan: BalancePlan, model: Node, resources: Resources, given: Given, name: str) -> list[str]:
    """The whole report."""
    profile = profile_of(model, Assumed(given))
    n, devices = plan.extra["n_data"], resources.devices
    rooms = {d.memory_bytes for d in devices}
    least = min((r for r in rooms if r is not None), default=None)
    bound = "" if len(rooms) == 1 else "at least "
    memory = "of unknown memory" if least is None else f"with {bound}{size(least)} each"
    nodes = len({d.node for d in devices})
    where = f" on {nodes:,} nodes" if nodes > 1 else ""
    found = [f"plan for {name}: {n:,} rows, {len(devices):,} rank{'s' * (len(devices) > 1)}{where} {memory}", ""]
    rows = [[t[0], *([""] * 5 if t[1] is None else
                     [number(t[1]), number(t[2]), size(t[3]), number(t[4]), t[5]])]
            for t in tree_rows(profile)]  # fmt: skip
    found += table(["node", "copies", "FLOPs/row", "parameters", "M-step FLOPs", "can be cut in"], rows)
    found += [f"data: {number(profile.row_bytes())} bytes/row encoded, {size(profile.row_bytes() * n)} in all", ""]
    found += [*plan_table(plan), "", plan.rationale, "", *time_lines(plan), "", *drawing(plan)]
    notes = plan.extra["assumed"]
    if notes:
        found += ["", "assumed: " + "; ".join(f"{k} {v:g}" if isinstance(v, (float, int)) else f"{k} {v}"
                                              for k, v in notes.items())]  # fmt: skip
        options = sorted({k.split(" ")[0] for k in notes} & {"levels", "dim", "length", "rounds", "passes", "searches"})
        if options:
            found.append("         say it better with " + ", ".join(f"--{o} [FIELD=]X" for o in options))
    return found


def plan_table(plan: BalancePlan) -> list[str]:
    """The chosen plan and the runner-ups."""
    extra = plan.extra
    own = {"data_parallel": plan.data_parallel, "model_parallel": plan.model_parallel, "cut": extra["cut"],
           "seconds": extra["seconds"]["total"], "workers_used": plan.workers_used,
           "bytes": extra["bytes"]["total"]}  # fmt: skip
    rows = []
    for mark, p in [("->", own), *(("  ", r) for r in extra["runner_ups"])]:
        cut = "whole model" if p["cut"] is None else cut_words(p["cut"])
        rows.append([f"{mark} {p['data_parallel']:,} x {p['model_parallel']:,}", cut, seconds(p["seconds"]),
                     f"{p['seconds'] / own['seconds']:.3f}", f"{p['workers_used']:,}", size(p["bytes"])])  # fmt: skip
    return table(["   grid D x M", "cut", "iteration", "relative", "busy", "memory/rank"], rows)


def time_lines(plan: BalancePlan) -> list[str]:
    """Seconds by phase, core-hours, and bytes by kind."""
    times = plan.extra["seconds"]
    total = times["total"] or 1.0
    phases = ", ".join(f"{k} {seconds(v)} ({100 * v / total:.0f} %)" for k, v in times.items() if k != "total" and v)
    hours = total * plan.workers_total * ITERATIONS / 3600.0
    kinds = ", ".join(f"{k} {size(v)}" for k, v in plan.extra["bytes"].items() if k != "total" and v)
    return [
        f"{seconds(total)} an iteration: {phases}",
        f"{hours:.3g} core-hours for {ITERATIONS} iterations on {plan.workers_total:,} cores",
        f"{size(plan.extra['bytes']['total'])} on the heaviest rank: {kinds}",
    ]


def shown(count: int) -> list[int | None]:
    """Numbers 0 to count - 1, capped; None for those left out."""
    if count <= MOST_DRAWN:
        return list(range(count))
    return [*range(MOST_DRAWN - 2), None, count - 1]


def drawing(plan: BalancePlan) -> list[str]:
    """Which rank holds which rows and units; the plan's ranks are numbered row by row."""
    d, m, n, borders = plan.data_parallel, plan.model_parallel, plan.extra["dealt"]["number"], plan.extra["rows"]
    word = plan.extra["dealt"]["what"]
    bounds, devices = plan.extra["bounds"], plan.extra["devices"]
    columns = shown(m)

    def units(k: int | None) -> str:
        if k is None:
            return "..."
        a, b = bounds[k], bounds[k + 1]
        if plan.extra["cut"] is None:
            return "whole model"
        return "no units" if a == b else f"units {a}" if b == a + 1 else f"units {a}-{b - 1}"

    def rows(k: int) -> str:
        a, b = shard_rows(k, d, n) if borders is None else (borders[k], borders[k + 1])
        return f"no {word}" if a == b else f"{word} {a}" if b == a + 1 else f"{word} {a}-{b - 1}"

    body = []
    for k in shown(d):
        cells = ["..." if k is None or c is None else f"rank {int(devices[k][c])}" for c in columns]
        body.append(["..." if k is None else rows(k), *cells])
    return table(["who holds what", *(units(c) for c in columns)], body)


def as_data(plan: BalancePlan, model: Node, resources: Resources, given: Given) -> dict[str, Any]:
    """The plan as what JSON can hold."""
    profile = profile_of(model, Assumed(given))
    names = ("node", "copies", "flops_per_row", "param_bytes", "m_step_flops", "axis")
    extra = {k: v for k, v in plan.extra.items() if k != "devices"}
    return {
        "grid": [plan.data_parallel, plan.model_parallel],
        "fits": plan.fits,
        "rationale": plan.rationale,
        "axis": plan.axis.value,
        "workers_used": plan.workers_used,
        "workers_total": plan.workers_total,
        "model_flops": plan.model_flops,
        "model_bytes": plan.model_bytes,
        "per_worker_flops": plan.per_worker_flops,
        "core_hours": plan.extra["seconds"]["total"] * plan.workers_total * ITERATIONS / 3600.0,
        "iterations": ITERATIONS,
        "tree": [dict(zip(names, (t[0].strip(), *t[1:]))) for t in tree_rows(profile)],
        **extra,
    }
