"""Which units of which members a model shard holds, and who else holds them.

A cut node's units lie in the cut's list of units: unit k takes the places `borders[k]` to `borders[k + 1]`, more than
one where a node inside it is cut as well. A shard has a contiguous range of the list. So it may share the first and the
last unit that it holds of a node with the shards before and after; the first that holds a unit answers for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mixle_mpi.contract.path import Path

ALONE, EVERYONE = -1, 0  # numbers of groups of model shards: this one alone, and all of them


class Groups:
    """The groups of model shards that one of them belongs to, as tuples of ranks: number `EVERYONE` is all of them."""

    def __init__(self, shards: int = 1, shard: int = 0):
        self.shard = shard
        self.ranks: list[tuple[int, ...]] = [tuple(range(shards))]

    def number(self, ranks: tuple[int, ...]) -> int:
        """The number of a group, which is added when it is new; `ALONE` for this shard by itself."""
        if ranks == (self.shard,) and len(self.ranks[EVERYONE]) > 1:
            return ALONE
        if ranks not in self.ranks:
            self.ranks.append(ranks)
        return self.ranks.index(ranks)


class Holders:
    """For each of some members, parameters or units, the group of shards that hold it: `numbers` (m,) of `groups`."""

    def __init__(self, numbers: np.ndarray, groups: Groups):
        self.numbers, self.groups = numbers, groups

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows) -> Holders:
        return Holders(self.numbers[rows], self.groups)

    @property
    def alone(self) -> np.ndarray:
        """(m,) bool, whether no other shard holds it."""
        return self.numbers == ALONE

    @property
    def answers(self) -> np.ndarray:
        """(m,) bool, whether this shard counts it where those of all shards are added up."""
        first = np.array([*(ranks[0] == self.groups.shard for ranks in self.groups.ranks), True])  # ALONE is the last
        return first[self.numbers]

    def everyone(self, count: int) -> Holders:
        """Of so many rows that all shards hold."""
        return Holders(np.full(count, EVERYONE), self.groups)


@dataclass(frozen=True, eq=False)
class CutGroup:
    """Members that are cut alike, and the shards that share them.

    Attributes
    ----------
    members : (k,) local numbers
    number, ranks : the group of shards; `place` is this shard's among them
    answered : (ranks + 1,) borders of the units for which each answers
    held : of each rank the first unit that it holds, and the one after the last
    """

    members: np.ndarray
    number: int
    ranks: tuple[int, ...]
    place: int
    answered: tuple[int, ...]
    held: tuple[tuple[int, int], ...]

    @property
    def overlaps(self) -> bool:
        """Whether some unit is held by several shards."""
        return any(low < high and first != low for (low, high), first in zip(self.held, self.answered))


@dataclass(eq=False)
class Held:
    """The units of the members of a bank that a shard holds.

    Attributes
    ----------
    low, high : (m,) int64, the first unit of each member, and the one after the last
    first : (m,) int64, the first unit that this shard answers for: `low`, or the one after it
    cut : the members that are cut
    left, inner, right : (m,) numbers of the groups that hold the first unit, those between, and the last one
    anywhere : whether some member of the whole bank is cut, on this shard or on others
    """

    low: np.ndarray
    high: np.ndarray
    first: np.ndarray
    left: np.ndarray
    inner: np.ndarray
    right: np.ndarray
    groups: Groups
    cut: list[CutGroup] = field(default_factory=list)
    anywhere: bool = False

    def holders(self, members: np.ndarray, units: np.ndarray) -> Holders:
        """Who holds units of members, both (k,)."""
        last = units == self.high[members] - 1
        edge = np.where(units == self.low[members], self.left[members], self.inner[members])
        return Holders(np.where(last, self.right[members], edge), self.groups)

    def counted(self, members: np.ndarray, units: np.ndarray) -> np.ndarray:
        """Which of some units of members (k,) this shard answers for."""
        return units >= self.first[members]

    @property
    def cut_members(self) -> np.ndarray:
        """Numbers of the members that are cut, ascending."""
        found = [group.members for group in self.cut]
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)


class Cuts:
    """What each model shard holds. The base class is the uncut tree, on one shard or whole on each of several."""

    def __init__(self, shards: int = 1, shard: int = 0):
        self.groups = Groups(shards, shard)

    def colours(self) -> dict[tuple[int, ...], int]:
        """Of every group of several shards, on all shards alike, a number that none with a common shard has as well."""
        return {self.groups.ranks[EVERYONE]: 0}

    def held(self, path: Path, holders: Holders, members: np.ndarray, total: int, units: int) -> Held:
        """Of a node of so many `units` at a path: what this shard holds of `members` (m,) of `total` ones."""
        m, own = len(members), holders.numbers.copy()
        low, high = np.zeros(m, np.int64), np.full(m, units, np.int64)
        return Held(low, high, low.copy(), own, own.copy(), own.copy(), self.groups)


class RangedCuts(Cuts):
    """Cuts whose shards hold the ranges between `bounds` of a list of units."""

    def __init__(self, shards: int, shard: int, bounds: Sequence[int]):
        super().__init__(shards, shard)
        self.bounds = tuple(bounds)

    def cut_at(self, held: Held, members: np.ndarray, borders: Sequence[int], everyone: bool) -> None:
        """Cut some members (k,) of a bank, whose units have these borders in the list, alike; `everyone` of the shards
        takes part whether it holds any or not."""
        ranks = self.ranks_of(borders[0], borders[-1])
        if everyone:
            ranks = self.groups.ranks[EVERYONE]
        elif len(ranks) == 1:
            return
        group = self.group(borders, ranks, members)
        held.cut.append(group)
        low, first, high = self.units_of(self.groups.shard, borders)
        held.low[members], held.first[members], held.high[members] = low, first, high
        held.inner[members] = ALONE
        for at, unit in ((held.left, low), (held.right, high - 1)):
            at[members] = ALONE if low == high else self._holder(borders[unit], borders[unit + 1])

    def group(self, borders: Sequence[int], ranks: tuple[int, ...], members: np.ndarray) -> CutGroup:
        """Members that some shards, of which this is one, share."""
        ranges = [self.units_of(rank, borders) for rank in ranks]
        answered = [first for _, first, _ in ranges]
        for k in reversed(range(len(ranks))):  # one without units answers for none
            low, _, high = ranges[k]
            if low == high:
                answered[k] = answered[k + 1] if k + 1 < len(ranks) else len(borders) - 1
        return CutGroup(members, self.groups.number(ranks), ranks, ranks.index(self.groups.shard),
                        (*answered, len(borders) - 1), tuple((low, high) for low, _, high in ranges))  # fmt: skip

    def units_of(self, rank: int, borders: Sequence[int]) -> tuple[int, int, int]:
        """Of a node's units a shard's first that it holds, first that it answers for, and one after the last."""
        a, b = (min(max(x, borders[0]), borders[-1]) for x in self.bounds[rank : rank + 2])
        if a == b:
            return 0, 0, 0
        return bisect_right(borders, a) - 1, bisect_left(borders, a), bisect_left(borders, b)

    def ranks_of(self, start: int, stop: int) -> tuple[int, ...]:
        """The shards that hold a part of a range of the list, which holds something itself."""
        first = bisect_right(self.bounds, start) - 1
        last = bisect_left(self.bounds, stop)
        return tuple(k for k in range(first, last) if self.bounds[k] < self.bounds[k + 1])

    def _holder(self, start: int, stop: int) -> int:
        ranks = self.ranks_of(start, stop)
        return ALONE if ranks == (self.groups.shard,) else self.groups.number(ranks)
