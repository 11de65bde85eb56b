"""What a plan sends and what its kernels see, counted exactly: to be compared with what a run counts.

What searches for an M-step and nodes of one key send besides is not counted here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from mixle_mpi.contract.blocks import shard_rows
from mixle_mpi.planning.cuts import Cut
from mixle_mpi.planning.profile import FLOAT
from mixle_mpi.planning.shards import Job, RangeCost, Shards, tile_rows

CHUNK_MESSAGES = 5  # to settle chunks forwards and backwards, and to add up; more where states are slow to be forgotten
HEADER = 6  # float64 values that all ranks agree on once a pass, as in `execution.loop`; a test compares them
AXES = ("data", "model", "world")
Sums = dict[str, int]  # messages and bytes


def shard_costs(cut: Cut, shards: int, bounds: Sequence[int]) -> list[RangeCost]:
    """What each model shard costs, for one row of each data shard."""
    m = len(bounds) - 1
    ranges = Shards(cut, Job(1, shards, 1.0, 0.0), [1.0] * m, [math.inf] * m)
    return [ranges.state(a, b) for a, b in pairwise(bounds)]


def payload(cut: Cut, rows: Sequence[int], bounds: Sequence[int]) -> dict[str, dict[str, Sums]]:
    """Messages and bytes that all ranks together give to the collectives of each axis.

    Parameters
    ----------
    rows : (D,) of the data shards
    bounds : (M + 1,) borders of the units

    Returns
    -------
    Axis "data", "model" or "world" -> "pass" for each pass over the data and "m_step" for each M-step that is
    followed by a pass -> "messages", "bytes".
    """
    d, m = len(rows), len(bounds) - 1
    costs, pooled = shard_costs(cut, d, bounds), cut.sent.pooled
    found = {axis: {when: {"messages": 0, "bytes": 0} for when in ("pass", "m_step")} for axis in AXES}

    def give(axis: str, when: str, ranks: int, values: float, messages: float = 1) -> None:
        if values and messages:
            found[axis][when]["messages"] += round(ranks * messages)
            found[axis][when]["bytes"] += round(FLOAT * values)

    if d > 1:
        for cost in costs:
            sent = cost.sent
            for values in (sent.dealt, sent.summed, sent.bounds, pooled):
                give("data", "pass", d, d * values)
            give("data", "m_step", d, sent.gathered)
    if m > 1:
        tile = tile_rows(max(c.scratch for c in costs))
        for n in rows:
            if cut.steps and cut.by_states(n, m):
                messages, values = step_by_step(cut, n, max(b - a for a, b in pairwise(bounds)))
                give("model", "pass", m, m * values, messages)
                continue
            calls = math.ceil(n / tile) * cut.messages
            give("model", "pass", m, (m * cut.payload + cut.exchanged) * n, calls)
        give("model", "pass", d * m, d * m * pooled)
        give("model", "m_step", d * m, d * m * cut.copied)
    if d * m > 1:
        give("world", "pass", d * m, d * m * HEADER)
    return found


def in_time(found: dict[str, dict[str, Sums]], shards: int, states: int) -> dict[str, dict[str, Sums]]:
    """The same with what data shards tell each other of a root's sequences that they divide in time, at least: twice
    forwards and twice backwards how they end, and once which are impossible."""
    sums = found["data"]["pass"]
    sums["messages"] += shards * CHUNK_MESSAGES
    sums["bytes"] += round(FLOAT * shards * ((CHUNK_MESSAGES - 1) * (states + 2) + 3))
    return found


def step_by_step(cut: Cut, rows: int, widest: int) -> tuple[float, float]:
    """Messages and values of a model shard whose recursions over rows that are not empty are divided by states."""
    steps = cut.steps * rows
    members = cut.exchanged / (2.0 * cut.units * cut.steps)
    return 1.0 + 2.0 * steps - rows, members * (steps + (2.0 * steps - rows) * widest)


def in_run(found: dict[str, dict[str, Sums]], passes: int, m_steps: int) -> dict[str, Sums]:
    """Messages and bytes by axis of a run of so many passes and M-steps."""
    return {
        axis: {what: passes * when["pass"][what] + m_steps * when["m_step"][what] for what in ("messages", "bytes")}
        for axis, when in found.items()
    }


def seen(cut: Cut, rows: Sequence[int], bounds: Sequence[int]) -> dict[str, Any]:
    """What kernels see: rows of the busiest data shard, units of the busiest model shard, rows of a tile, and the
    parameter sets of leaves that the busiest rank maximises."""
    costs = shard_costs(cut, len(rows), bounds)
    return {
        "rows": max(rows),
        "units": max(b - a for a, b in pairwise(bounds)),
        "tile_rows": min(tile_rows(max(c.scratch for c in costs)), max(rows)),
        "maximized": round(max(c.maximized for c in costs)),
    }


def rows_of(n: int, shards: int, row_bounds: Sequence[int] | None) -> list[int]:
    """Rows of each data shard."""
    if row_bounds is not None:
        return [b - a for a, b in pairwise(row_bounds)]
    return [b - a for a, b in (shard_rows(k, shards, n) for k in range(shards))]
