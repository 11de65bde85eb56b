"""What a plan sends and what its kernels see, counted exactly: to be compared with what a run counts.

What searches for an M-step and nodes of one key send besides is not counted here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mixle_mpi.contract.blocks import shard_rows
from mixle_mpi.contract.cuts import EVERYONE, RangedCuts
from mixle_mpi.contract.work import by_states
from mixle_mpi.planning.account import accounts, shared
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
    if cut.nested:
        return accounts(cut, tuple(bounds), shards)
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
    costs = shard_costs(cut, d, bounds)
    found = {axis: {when: {"messages": 0.0, "bytes": 0.0} for when in ("pass", "m_step")} for axis in AXES}

    def give(axis: str, when: str, ranks: int, values: float, messages: float = 1) -> None:
        if values and messages:
            found[axis][when]["messages"] += ranks * messages
            found[axis][when]["bytes"] += FLOAT * values

    if d > 1:
        for cost in costs:
            sent = cost.sent
            for values in (sent.dealt, sent.summed, sent.bounds, sent.pooled if cut.nested else cut.sent.pooled):
                give("data", "pass", d, d * values)
            give("data", "m_step", d, sent.gathered)
    if m > 1:
        tile = tile_rows(max(c.scratch for c in costs))
        for n in rows:
            for ranks, messages, values in cut_messages(cut, n, tile, bounds):
                give("model", "pass", ranks, values, messages)
        for ranks, pooled, copied in shared_values(cut, bounds):
            give("model", "pass", d * ranks, d * ranks * pooled)
            give("model", "m_step", d * ranks, d * ranks * copied)
    if d * m > 1:
        give("world", "pass", d * m, d * m * HEADER)
    return {axis: {when: {what: round(sum_) for what, sum_ in sums.items()} for when, sums in of.items()}
            for axis, of in found.items()}  # fmt: skip


def in_time(found: dict[str, dict[str, Sums]], shards: int, states: int) -> dict[str, dict[str, Sums]]:
    """The same with what data shards tell each other of a root's sequences that they divide in time, at least: twice
    forwards and twice backwards how they end, and once which are impossible."""
    sums = found["data"]["pass"]
    sums["messages"] += shards * CHUNK_MESSAGES
    sums["bytes"] += round(FLOAT * shards * ((CHUNK_MESSAGES - 1) * (states + 2) + 3))
    return found


def cut_messages(cut: Cut, rows: int, tile: int, bounds: Sequence[int]) -> Iterator[tuple[int, float, float]]:
    """For each node that shards share, how many they are, the reductions in which each of them takes part while `rows`
    rows are scored, and the float64 values that all of them give."""
    m, tiles = len(bounds) - 1, math.ceil(rows / tile)
    if not cut.nested:
        if cut.steps and cut.by_states(rows, m):
            members = cut.exchanged / (2.0 * cut.units * cut.steps)
            messages, values = step_by_step(cut.steps, rows, max(b - a for a, b in pairwise(bounds)))
            yield m, messages, m * members * values
        else:
            yield m, tiles * cut.messages, (m * cut.payload + cut.exchanged) * rows
        return
    cuts = RangedCuts(m, 0, bounds)
    for number, (node, divided) in enumerate(zip(cut.nodes, cut.divided)):
        ranks = cuts.groups.ranks[EVERYONE] if number == 0 else cuts.ranks_of(node.first, node.stop)
        cost, below = divided.profile.cost, divided.rows
        if len(ranks) == 1:
            continue
        group = RangedCuts(m, ranks[0], bounds).group(node.borders, ranks, np.empty(0, np.int64))
        units, held = len(node.borders) - 1, sum(b - a for a, b in group.held)
        longest = -(-rows // len(ranks)) * cost.steps * below
        if cost.steps and by_states(rows * cost.steps * below, longest, cost.step_flops, len(ranks)):
            messages, values = step_by_step(cost.steps, rows, max(b - a for a, b in pairwise(group.answered)))
            overlap = cost.steps * rows * held * group.overlaps
            yield len(ranks), messages + group.overlaps, len(ranks) * values + overlap
            continue
        exchanged = cost.exchanged * (units + held) / (2.0 * units)  # what comes back goes to all that hold a unit
        yield len(ranks), tiles * cost.messages, (len(ranks) * cost.payload + exchanged) * below * rows


def shared_values(cut: Cut, bounds: Sequence[int]) -> Iterator[tuple[int, float, float]]:
    """For each group of shards, how many they are, the statistics that they add up for what members estimate together,
    and the parameters that they have from the first of them."""
    m = len(bounds) - 1
    if not cut.nested:
        yield m, cut.sent.pooled, cut.copied
        return
    cuts, found = RangedCuts(m, 0, bounds), dict[tuple[int, ...], list[float]]()
    everyone = cuts.groups.ranks[EVERYONE]
    found[everyone] = [shared(cut.model)[1].pooled, cut.fixed.sent.copied + shared(cut.model)[1].common]
    for node, divided in zip(cut.nodes, cut.divided):
        ranks = everyone if divided.owner is None else cuts.ranks_of(node.first, node.stop)
        if len(ranks) == 1:
            continue
        sums = found.setdefault(ranks, [0.0, 0.0])
        if divided.profile.cost.pooled:
            own = divided.profile.own.sent
            sums[0] += own.dealt + own.summed
        if divided.owner is not None:
            sums[1] += cut.owners[divided.owner].sent.copied
    for ranks, (pooled, copied) in found.items():
        yield len(ranks), pooled, copied


def step_by_step(steps: float, rows: int, widest: int) -> tuple[float, float]:
    """Messages of a model shard, and values for each member, whose recursions over rows of so many steps, none of them
    empty, are divided by states."""
    return 1.0 + 2.0 * steps * rows - rows, steps * rows + (2.0 * steps * rows - rows) * widest


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
