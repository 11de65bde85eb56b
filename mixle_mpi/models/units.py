"""Units of one node, of one kind or several: components of a mixture, states of a hidden Markov model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.cuts import Cuts, Held, Holders
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.path import Path, UnitLevel
from mixle_mpi.models.structure import checked_count

Some = TypeVar("Some", bound="ManyUnits")


@dataclass
class Units:
    """The compiled units of the members of a bank, member by member in the user's order.

    Attributes
    ----------
    banks : one for each kind of unit
    rows : of each bank, the numbers of its members among the units held here
    offsets : of each bank, those of member i are offsets[i] to offsets[i + 1] of its members
    held : which of the units of each member are held here
    """

    banks: list[Bank]
    rows: list[np.ndarray]
    offsets: list[np.ndarray]
    held: Held

    @property
    def member(self) -> np.ndarray:
        """(units,) the member of each unit held here."""
        return np.repeat(np.arange(len(self.held.low)), self.held.high - self.held.low)

    @property
    def number(self) -> np.ndarray:
        """(units,) its number among those of the member."""
        counts = self.held.high - self.held.low
        return np.arange(counts.sum()) + np.repeat(self.held.low - (np.cumsum(counts) - counts), counts)


class ManyUnits(Node):
    """Base of nodes with many units: copies of one `template` with parameters of their own, or a list of models.

    `word` is what a unit is called in paths, `counted` what several are called by the constructor.
    """

    word: ClassVar[str]
    counted: ClassVar[str]

    template: Node | None
    num_units: int
    _units: Sequence[Node] | None

    def take_units(self, given: Node | Iterable[Node], count: int | None) -> None:
        """Set the units: `count` copies of one node, or the nodes given. Raises ModelError."""
        where = self.type_name()
        if isinstance(given, Node):
            if count is None:
                raise ModelError(f"{where}: how many {self.counted}? give {self.counted}=3, say, or a list of models")
            self.template, self._units = given, None
            self.num_units = checked_count(where, self.counted, count)
            return
        self.template, self._units = None, tuple(given)
        self.num_units = len(self._units)
        if not self._units or not all(isinstance(unit, Node) for unit in self._units):
            raise ModelError(f"{where}: the {self.counted} must be a non-empty list of models")
        if count not in (None, self.num_units):
            raise ModelError(f"{where}: {self.counted} = {count}, but the list has {self.num_units}")

    @property
    def units(self) -> Sequence[Node]:
        """The units in order; those of a fitted model may be made when they are looked at."""
        if self._units is not None:
            return self._units
        if self.template is None:
            raise TypeError(f"a {self.type_name()} has a template or units")
        return (self.template,) * self.num_units

    @property
    def is_unfitted(self) -> bool:
        """Whether all units are copies of one, without parameters of their own yet."""
        return self._units is None

    def unit_roles(self) -> Iterator[tuple[str, Node]]:
        """Role and node of the units, once where they are copies of one."""
        if self.template is not None:
            yield f"{self.word}_*", self.template
        else:
            yield from ((f"{self.word}_{k}", unit) for k, unit in enumerate(self.units))

    def with_units(self: Some, change: Callable[[Node], Node]) -> Some:
        """A copy whose units are `change(unit)`; equal units stay one object."""
        changed = copy.copy(self)
        if self.template is not None:
            changed.template = change(self.template)
        if self._units is not None:
            done: dict[int, Node] = {}
            for unit in self._units:
                if id(unit) not in done:
                    done[id(unit)] = change(unit)
            changed._units = tuple(done[id(unit)] for unit in self._units)
        return changed

    def structure(self, change: Callable[[Node], Node]) -> Node:
        """As `replace`, without the parameters of the units where they are copies of one."""
        changed = copy.copy(self)
        if self.template is not None:
            changed._units = None
        return changed.replace(change)

    def groups(self) -> list[list[int]]:
        """Units that can be compiled into one bank, in order of first appearance."""
        if self.template is not None:
            return [list(range(self.num_units))]
        groups: dict = {}
        for k, unit in enumerate(self.units):
            groups.setdefault(unit.signature(), []).append(k)
        return list(groups.values())

    def unit_signatures(self) -> Hashable:
        """What nodes have in common whose units can be compiled together."""
        return tuple(unit.signature() for _, unit in self.unit_roles())

    def compile_units(
        self, nodes: list[ManyUnits], path: Path, members: np.ndarray, total: int, holders: Holders, cuts: Cuts
    ) -> Units:
        """The compiled units of `members` of `nodes`, of which there is one for each member of the whole model."""
        copies = self.template if self.is_unfitted and all(n is nodes[0] for n in nodes) else None
        own = cuts.held(path, holders, members, total, self.num_units)
        low, high = own.low, own.high
        banks, unit_rows, offsets = [], [], []
        starts = np.concatenate([[0], np.cumsum(high - low)])
        for positions in self.groups():
            of = np.array(positions)
            held = [np.flatnonzero((of >= a) & (of < b)) for a, b in zip(low, high)]
            ids = [m * len(of) + h for m, h in zip(members, held)]
            if copies is not None:
                below = [copies] * (total * len(of))
            else:
                below = [node.units[p] for node in nodes for p in positions]
            banks.append(
                below[0].compile(
                    below,
                    path / UnitLevel(tuple(positions), self.num_units, self.word),
                    np.concatenate(ids).astype(np.int64) if ids else np.empty(0, np.int64),
                    total * len(of),
                    own.holders(np.repeat(np.arange(len(members)), [len(h) for h in held]),
                                of[np.concatenate(held)] if held else np.empty(0, np.int64)),
                    cuts,
                )
            )
            rows = [starts[i] + of[h] - low[i] for i, h in enumerate(held)]
            unit_rows.append(np.concatenate(rows).astype(np.int64) if rows else np.empty(0, np.int64))
            offsets.append(np.concatenate([[0], np.cumsum([len(h) for h in held])]).astype(np.int64))
        return Units([b.stand_alone() for b in banks], unit_rows, offsets, own)
