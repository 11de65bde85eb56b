"""Several starts on grids side by side: which devices work together, and which starts each group makes.

A start takes as long as its group's plan says, for all starts alike, as nobody knows how many iterations one will
have. The objective is when the last group ends.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixle_mpi.contract.node import Node
from mixle_mpi.planning.balance import BalancePlan, Given, plan_grid, plan_shape
from mixle_mpi.planning.describe import seconds
from mixle_mpi.planning.resources import Resources, node_numbers

TIE = 1e-9  # relative difference of two ends below which the one with fewer groups is taken
EACH = 8  # up to so many equal groups every number is tried, beyond only twice the one before
MOST_GROUPS = 64
MOST_TOLD = 4  # groups that are told of one by one


@dataclass(frozen=True)
class Side:
    """One group: its plan, whose `devices` are numbered among all, and the numbers of the starts that it makes."""

    plan: BalancePlan
    starts: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """Seconds in which all of its starts make one iteration."""
        return len(self.starts) * seconds_of(self.plan)


def seconds_of(plan: BalancePlan) -> float:
    """Predicted seconds of an iteration."""
    return float(plan.extra["seconds"]["total"])


def last_end(sides: Sequence[Side]) -> float:
    """Seconds in which every start has made one iteration."""
    return max(side.seconds for side in sides)


def side_by_side(model: Node, resources: Resources, starts: Sequence[int], one: BalancePlan, *, n_data: int,
                 given: Given | None = None, cut: str | None = None, first: int = 0) -> tuple[Side, ...]:  # fmt: skip
    """The groups that end first, of these: the plan `one` with the whole of the starts; its grid as often as it fits,
    and grids of what remains; equal parts of the devices, each with the best grid of its own.

    Of those that end together the one with fewest groups. The memory of each device holds what its group's plan says.
    Groups have no device in common, and some devices may be in none.

    Parameters
    ----------
    starts : numbers of the starts; the groups have consecutive ones
    one : the plan for all devices, `plan_grid` with the same options
    n_data, given, cut : see `plan_grid`; nested cuts are no plans here
    first : the device that has to be at (0, 0) of the first group, which makes one start at least
    """
    best: tuple[Side, ...] = (Side(one, tuple(starts)),)
    if not one.fits or len(starts) < 2 or len(resources.devices) < 2:
        return best
    planner = _Planner(model, resources, {"n_data": n_data, "given": given}, cut, first)
    most = min(len(starts), len(resources.devices), MOST_GROUPS)
    found = [planner.repeated(one, most), *(planner.equal(groups) for groups in numbers_tried(most))]
    for plans in sorted((plans for plans in found if all(p.fits for p in plans)), key=len):
        sides = dealt(plans, starts)
        if last_end(sides) < last_end(best) * (1.0 - TIE):
            best = sides
    return best


def numbers_tried(most: int) -> list[int]:
    """Numbers of equal groups that are tried, 2 to `most`."""
    doubled = [n for k in range(most.bit_length()) if (n := EACH << k) < most]
    return sorted({*range(2, min(EACH, most) + 1), *doubled, most} - {1})


def dealt(plans: Sequence[BalancePlan], starts: Sequence[int]) -> tuple[Side, ...]:
    """The starts dealt to groups: the first gets one, each further one goes where it would end first, to the first of
    several such groups. As all starts take equally long in a group, no other deal ends before. Groups without a start
    are left out.

    Source
    ------
    Graham (1969), SIAM J. Appl. Math. 17(2), 416-429 (longest processing time first).
    """
    each = [seconds_of(plan) for plan in plans]
    counts = [1] + [0] * (len(plans) - 1)
    ends = [(each[k] * (1 + counts[k]), k) for k in range(len(plans))]
    heapq.heapify(ends)
    for _ in range(len(starts) - 1):
        k = ends[0][1]
        counts[k] += 1
        heapq.heapreplace(ends, (each[k] * (1 + counts[k]), k))
    borders = np.cumsum([0, *counts]).tolist()
    return tuple(Side(plan, tuple(starts[a:b])) for plan, a, b in zip(plans, borders, borders[1:]) if a < b)


class _Planner:
    """Plans for some of the devices; groups of like devices have the same plan, which is made once."""

    def __init__(self, model: Node, resources: Resources, options: dict[str, Any], cut: str | None, first: int):
        self.model, self.resources, self.options, self.cut, self.first = model, resources, options, cut, first
        self._known: dict[tuple, BalancePlan] = {}

    def plan(self, numbers: Sequence[int], shape: tuple[int, int] | None = None, cut: str | None = None) -> BalancePlan:
        """The best plan for the devices of these numbers, or the best of one shape."""
        devices = tuple(self.resources.devices[k] for k in numbers)
        first = numbers.index(self.first) if self.first in numbers else None
        like = tuple(zip(node_numbers(devices), ((d.throughput, d.memory_bytes) for d in devices)))
        key = (like, first, shape, cut)
        if key not in self._known:
            some, options = dataclasses.replace(self.resources, devices=devices), self.options | {"first": first}
            self._known[key] = (
                plan_grid(self.model, some, cut=self.cut, **options)
                if shape is None else plan_shape(self.model, some, shape=shape, cut=cut, **options)
            )  # fmt: skip
        found = self._known[key]
        own = np.asarray(numbers)[np.asarray(found.extra["devices"], dtype=int)]
        return dataclasses.replace(found, extra=found.extra | {"devices": own})

    def repeated(self, one: BalancePlan, most: int) -> list[BalancePlan]:
        """The grid of a plan as often as it fits, at most so often, and grids of the devices that remain."""
        shape = one.data_parallel, one.model_parallel
        plans, left = [one], self._without(range(len(self.resources.devices)), one)
        while left and len(plans) < most:
            again = len(left) >= shape[0] * shape[1]
            found = self.plan(left, shape, one.extra["cut"]) if again else self.plan(left)
            if not found.fits and not again:
                break  # what remains stays idle
            plans.append(found)
            left = self._without(left, found)
        return plans

    def equal(self, groups: int) -> list[BalancePlan]:
        """So many parts of consecutive devices, of which that with `first` is the first."""
        total = len(self.resources.devices)
        parts = [range(k * total // groups, (k + 1) * total // groups) for k in range(groups)]
        return [self.plan(part) for part in sorted(parts, key=lambda part: (self.first not in part, part.start))]

    @staticmethod
    def _without(numbers: Sequence[int], plan: BalancePlan) -> list[int]:
        taken = set(np.ravel(plan.extra["devices"]).tolist())
        return [k for k in numbers if k not in taken]


def sides_data(sides: Sequence[Side]) -> list[dict[str, Any]]:
    """Groups as what JSON can hold: grid, cut, ranks, starts, seconds of an iteration of one start."""
    return [{"grid": [s.plan.data_parallel, s.plan.model_parallel], "cut": s.plan.extra["cut"], "ranks": ranks_of(s),
             "starts": list(s.starts), "seconds": seconds_of(s.plan)} for s in sides]  # fmt: skip


def ranks_of(side: Side) -> list[int]:
    """The ranks of a group, in the order of its grid."""
    return np.ravel(side.plan.extra["devices"]).tolist()


def sides_lines(sides: Sequence[Side], one: BalancePlan) -> list[str]:
    """Groups in words, beside all starts on the grid of `one` plan; nothing of a single start."""
    number = sum(len(side.starts) for side in sides)
    if number < 2:
        return []
    together, alone = last_end(sides), number * seconds_of(one)
    shape = f"{one.data_parallel:,} x {one.model_parallel:,}"
    if len(sides) == 1:
        return [f"{number:,} starts, one after another on {shape}: {seconds(alone)} for an iteration of each; side by "
                "side on smaller grids they would not end before"]  # fmt: skip
    found = ((side.starts, (side.plan.data_parallel, side.plan.model_parallel), ranks_of(side)) for side in sides)
    return [f"{number:,} starts side by side: {groups_line(found)}",
            f"{seconds(together)} for an iteration of each, {seconds(alone)} one after another on {shape}"]  # fmt: skip


def groups_line(groups: Iterable[tuple[Sequence[int], Sequence[int], Sequence[int]]]) -> str:
    """Groups in words: of each its starts (told from 1, as `fit` does while it runs), its grid and its ranks; of many,
    like neighbours together."""
    found = [([n + 1 for n in starts], tuple(shape), list(ranks), 1) for starts, shape, ranks in groups]
    told = found[:1]
    for starts, shape, ranks, _ in found[1:]:
        before = told[-1]
        if len(found) > MOST_TOLD and before[1] == shape:
            told[-1] = before[0] + starts, shape, before[2] + ranks, before[3] + 1
        else:
            told.append((starts, shape, ranks, 1))
    return ", ".join(
        f"start{'s' * (len(starts) != 1)} {ranges(starts)} on "
        f"{f'{count} grids of ' * (count > 1)}{shape[0]:,} x {shape[1]:,} "
        f"(rank{'s' * (len(ranks) != 1)} {ranges(ranks)})"
        for starts, shape, ranks, count in told
    )


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in words, as in "0-3, 7"; "none" where there is none."""
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts) or "none"
