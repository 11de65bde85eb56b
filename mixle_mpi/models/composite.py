"""Independent factors side by side: Composite by position, Record by name."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.cuts import CutGroup
from mixle_mpi.contract.decomposition import DecompAxis, Decomposition, Partial, ReductionOp
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Branch, Node, checked_key
from mixle_mpi.contract.scope import Scope
from mixle_mpi.contract.tile import Tile
from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.families.natural import NaturalBlock, Term
from mixle_mpi.models.sequence import Steps
from mixle_mpi.models.terms import planned_terms, split_terms


class Factors(Node):
    """Base of Composite and Record: log p(x) is the sum of the factors' log densities."""

    factors: tuple[Node, ...]

    def names(self) -> list[str]:
        """The role of each factor, as paths write it."""
        raise TypeError(f"{type(self).__name__} does not define names")

    def decomposition(self):
        return Decomposition(
            DecompAxis.FACTOR, len(self.factors), ReductionOp.SUM, child_roles=tuple(self.names())
        )

    def roles(self):
        yield from zip(self.names(), self.factors)

    def branches(self, assumed):
        for name, factor in self.roles():
            yield Branch(name, factor, unit=True, place=self.place_of(name))

    def place_of(self, name: str) -> tuple[str, int | None] | None:
        """Name and number of columns of a field, where it says them."""
        return None

    def cost(self, assumed):
        # natural leaves are one product with one array of scores, which each of them declares, and one row of ones
        places = [self.place_of(name) for name in self.names()]
        terms = [planned_terms(f, assumed if p is None else assumed.inside(*p)) for f, p in zip(self.factors, places)]
        apart = sum(rest for _, rest in terms)
        always = sum(count for count, _ in terms)
        merged = sum(not rest for _, rest in terms)
        return Cost(Work(flop=1.0 * apart), scratch_member=1.0 - merged, scratch_row=-max(always - 1.0, 0.0),
                    payload=1.0)  # fmt: skip

    def replace(self, change):
        changed = copy.copy(self)
        changed.factors = tuple(change(f) for f in self.factors)
        return changed

    @property
    def width(self):
        widths = [f.width for f in self.factors]
        return None if None in widths else sum(widths)

    def signature(self):
        return (type(self), self.key, tuple(self.names()), tuple(f.signature() for f in self.factors))

    def compile(self, nodes, path, members, total, holders, cuts):
        own = cuts.held(path, holders, members, total, len(self.factors))
        parts = []
        for f, (name, factor) in enumerate(self.roles()):
            held = np.flatnonzero((own.low <= f) & (f < own.high))  # with none, the bank is there and empty
            number = np.full(len(held), f)
            same = all(n is nodes[0] for n in nodes)
            below = [factor] * total if same else [n.factors[f] for n in nodes]
            bank = factor.compile(below, path / name, members[held], total, own.holders(held, number), cuts)
            counted = own.counted(held, number)
            parts.append(Part(bank, None if len(held) == len(members) else held,
                              None if counted.all() else np.flatnonzero(counted)))  # fmt: skip
        return FactorsBank(nodes, path, members, total, holders, parts, own.cut)


class Composite(Factors):
    """Independent factors, columns by position: log p(x) = sum_f log p_f(x_f).

    Parameters
    ----------
    *factors : Node
        Each takes as many columns, left to right, as it is wide.
    """

    def __init__(self, *factors: Node, key: str | None = None):
        for f in factors:
            if not isinstance(f, Node):
                raise ModelError(f"composite: {f!r} is not a model")
        if not factors:
            raise ModelError("composite: no factors")
        self.key = checked_key("composite", key)
        self.factors = factors

    def names(self):
        return [f"factor_{i}" for i in range(len(self.factors))]

    def place(self, scope: Scope):
        asked = [f.width for f in self.factors]
        if asked.count(None) > 1:
            asked = widths_of_sequences(self.factors, scope.names)
        if asked.count(None) > 1:
            raise ModelError(f"{scope.where}: more than one factor of unknown width; give dim")
        rest = max(len(scope.names) - sum(w for w in asked if w is not None), 1)
        widths = [rest if w is None else w for w in asked]
        names = scope.exactly(sum(widths), "composite")
        placed, at = [], 0
        for i, (factor, width) in enumerate(zip(self.factors, widths)):
            placed.append(factor.place(scope.only(names[at : at + width], f"factor {i}", scope.prefix)))
            at += width
        changed = copy.copy(self)
        changed.factors = tuple(placed)
        return changed


def widths_of_sequences(factors: Sequence[Node], names: Sequence[str]) -> list[int | None]:
    """The columns of each factor as far as they are known: of one of sequences or documents whose width is not, those
    of `names` that are parts of one column, "2[0]" and "2[1]"."""
    found: list[int | None] = []
    at: int | None = 0
    for factor in factors:
        width = factor.width
        first = next((n for n in factor.walk() if isinstance(n, (Family, Steps))), None)
        if width is None and isinstance(first, Steps) and at is not None and at < len(names):
            width = len(list(next(groupby(names[at:], lambda name: re.split(r"[\[.]", name)[0]))[1]))
        found.append(width)
        at = None if at is None or width is None else at + width
    return found


class Record(Factors):
    """Independent factors, columns by name: log p(x) = sum over fields of log p_field(x[field]).

    Parameters
    ----------
    fields : dict of str to Node, or keywords
    columns : dict of str to sequence of str, optional
        The columns that a field reads, where they are not named after it.
    """

    def __init__(self, fields: dict[str, Node] | None = None, *, columns=None, key: str | None = None,
                 **keywords: Node):  # fmt: skip
        named = dict(fields or {}) | keywords
        for name, f in named.items():
            if not isinstance(f, Node):
                raise ModelError(f"record: field {name!r} is not a model: {f!r}")
        if not named:
            raise ModelError("record: no fields")
        self.key = checked_key("record", key)
        self.field_names = tuple(named)
        self.factors = tuple(named.values())
        self.field_columns = {k: (v,) if isinstance(v, str) else tuple(v) for k, v in (columns or {}).items()}
        for name in self.field_columns:
            if name not in named:
                raise ModelError(f"record: columns are given for {name!r}, which is no field")

    def names(self):
        return list(self.field_names)

    def place_of(self, name):
        columns = self.field_columns.get(name)
        return name, None if columns is None else len(columns)

    @property
    def fields(self) -> dict[str, Node]:
        return dict(zip(self.field_names, self.factors))

    def place(self, scope: Scope):
        changed = copy.copy(self)
        changed.factors = tuple(
            f.place(scope.field(name, self.field_columns.get(name), any(isinstance(n, Record) for n in f.walk())))
            for name, f in self.fields.items()
        )
        return changed


@dataclass(frozen=True, eq=False)
class Part:
    """A factor of some members: `rows`, None for all; `counted` are those of its own members whose scores this shard
    answers for, None for all, where shards before hold a part of it as well."""

    bank: Bank
    rows: np.ndarray | None
    counted: np.ndarray | None

    def add(self, scores: np.ndarray, out: np.ndarray) -> None:
        """Add scores (own members, n) to those of all members, out (members, n)."""
        if self.counted is not None:
            out[self.counted if self.rows is None else self.rows[self.counted]] += scores[self.counted]
        elif self.rows is not None:
            out[self.rows] += scores
        else:
            out += scores


class FactorsBank(Bank):
    """Factors of all members, some of which are cut."""

    def __init__(self, nodes, path, members, total, holders, parts: list[Part], cut: list[CutGroup]):
        super().__init__(nodes, path, members, total, holders)
        self.banks: list[Bank] = [part.bank for part in parts]
        self.cut = cut
        terms: list[Term] = []
        self.others: list[Part] = []
        for part in parts:
            if part.rows is not None and not len(part.rows):
                part.bank.stand_alone()  # evaluated never, but every shard has the same banks
                continue
            own, rest = split_terms(part.bank)
            for term in own:
                term.rows, term.counted = part.rows, part.counted
            terms += own
            if not own:
                part.bank.stand_alone()
            if rest:
                self.others.append(part)
        self.block = NaturalBlock(self.size, terms) if terms else None

    def children(self):
        return tuple(self.banks)

    def prepare(self, theta, packed):
        for bank in self.banks:
            bank.prepare(theta, packed)
        if self.block is not None:
            self.block.prepare()

    def begin(self, stats):
        for bank in self.banks:
            bank.begin(stats)
        if self.block is not None:
            self.block.begin()

    def score(self, tile: Tile):
        if self.block is not None:
            out = self.block.score(tile)
        else:
            out = tile.array(self, "scores", self.size, tile.n)
            out[:] = 0.0
        for part in self.others:
            part.add((yield from part.bank.score(tile)), out)
        for group in self.cut:
            own = np.ascontiguousarray(out[group.members])
            out[group.members] = yield Partial(ReductionOp.SUM, own, group=group.number)
        return out

    def accumulate(self, tile: Tile, weights):
        if self.block is not None:
            self.block.accumulate(tile, weights)
        for part in self.others:
            yield from part.bank.accumulate(tile, weights if part.rows is None else weights[part.rows])

    def finish(self):
        if self.block is not None:
            self.block.finish()
        for bank in self.banks:
            bank.finish()

    def restore(self, member, theta):
        changed = copy.copy(self.node)
        changed.factors = tuple(bank.restore(member, theta) for bank in self.banks)
        return changed

    def tile_width(self):
        return self.size if self.block is None else self.block.tile_width()
