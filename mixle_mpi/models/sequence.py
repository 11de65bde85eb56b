"""Sequences of independent steps, and what all models of sequences have in common."""

from __future__ import annotations

import copy

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.columns import LENGTH
from mixle_mpi.contract.decomposition import DecompAxis, Decomposition, ReductionOp
from mixle_mpi.contract.node import Branch, Node, checked_key
from mixle_mpi.contract.scope import Scope
from mixle_mpi.contract.tile import Tile
from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.models.structure import checked_child


class Steps(Node):
    """Base of the models of sequences: a row is a sequence, of whose steps its children are models, but `length`.

    `sequence` names the sequence by its first column, once it is placed.
    """

    length: Node | None = None
    sequence: str = ""

    def step_models(self) -> tuple[Node, ...]:
        """The children that are models of steps."""
        raise TypeError(f"{type(self).__name__} does not define step_models")

    def replace_both(self, of_steps, of_length) -> Steps:
        """A copy with other children: `of_steps(child)` of steps, `of_length(child)` of the length."""
        raise TypeError(f"{type(self).__name__} does not define replace_both")

    def replace(self, change):
        return self.replace_both(change, change)

    @property
    def width(self):
        widths = {child.width for child in self.step_models()} - {None}
        return widths.pop() if len(widths) == 1 else None

    def place(self, scope: Scope):
        of_steps = scope.steps(self.type_name().replace("_", " "))
        of_length = Scope((scope.names[0] + LENGTH,), f"{scope.where}: length")
        changed = self.replace_both(lambda child: child.place(of_steps), lambda child: child.place(of_length))
        changed.sequence = scope.names[0]
        return changed

    def compile_length(self, nodes, path, members, total, holders, cuts) -> Bank | None:
        """The bank of the lengths' models."""
        if self.length is None:
            return None
        same = all(n is nodes[0] for n in nodes)
        below = [self.length] * total if same else [n.length for n in nodes]
        return self.length.compile(below, path / "length", members, total, holders, cuts).stand_alone()


class StepsBank(Bank):
    """What the banks of sequences share: the steps of a tile, and the model of the length."""

    node: Steps

    def __init__(self, nodes, path, members, total, holders, length: Bank | None):
        super().__init__(nodes, path, members, total, holders)
        self.length = length

    def step_banks(self) -> tuple[Bank, ...]:
        """The children whose rows are steps."""
        raise TypeError(f"{type(self).__name__} does not define step_banks")

    def children(self):
        return (*self.step_banks(), *(() if self.length is None else (self.length,)))

    def prepare(self, theta, packed):
        for child in self.children():
            child.prepare(theta, packed)

    def begin(self, stats):
        for child in self.children():
            child.begin(stats)

    def finish(self):
        for child in self.children():
            child.finish()

    def steps(self, tile: Tile) -> Tile:
        return tile.steps(self.node.sequence)


def sums_of_sequences(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Sums (members, sequences) of values (members, steps) over the steps of each sequence; 0 where it has none.

    A step of log density -inf makes the sum -inf.
    """
    filled = np.flatnonzero(np.diff(offsets))
    out = np.zeros((len(values), len(offsets) - 1))
    if len(filled):
        out[:, filled] = np.add.reduceat(values, offsets[filled], axis=1)
    return out


class Sequence(Steps):
    """Sequences: log p(x) = sum_t log p_element(x[t]), and log p_length(number of steps) where `length` is given.

    Parameters
    ----------
    element : Node
    length : Node, optional
    """

    def __init__(self, element: Node, length: Node | None = None, *, key: str | None = None):
        self.element = checked_child("sequence", "element", element)
        self.length = None if length is None else checked_child("sequence", "length", length)
        self.key = checked_key("sequence", key)

    def decomposition(self):
        # one unit: the axis names the data axis, on which steps are dealt with their sequences
        return Decomposition(DecompAxis.SEQUENCE, 1, ReductionOp.SUM, child_roles=("element",),
                             shared_children=() if self.length is None else ("length",))  # fmt: skip

    def step_models(self):
        return (self.element,)

    def roles(self):
        yield "element", self.element
        if self.length is not None:
            yield "length", self.length

    def branches(self, assumed):
        yield Branch("element", self.element, unit=True, rows=assumed.value("length"))
        if self.length is not None:
            yield Branch("length", self.length)

    def cost(self, assumed):
        # the scores of the steps are added up; offsets of the sequences are stored
        return Cost(Work(flop=2.0 * assumed.value("length")), scratch_member=1.0, columns={("offset",): 8.0})

    def replace_both(self, of_steps, of_length):
        changed = copy.copy(self)
        changed.element = of_steps(self.element)
        changed.length = None if self.length is None else of_length(self.length)
        return changed

    def signature(self):
        length = None if self.length is None else self.length.signature()
        return (type(self), self.key, self.sequence, self.element.signature(), length)

    def compile(self, nodes, path, members, total, holders, cuts):
        same = all(n is nodes[0] for n in nodes)
        below = [self.element] * total if same else [n.element for n in nodes]
        element = self.element.compile(below, path / "element", members, total, holders, cuts).stand_alone()
        length = self.compile_length(nodes, path, members, total, holders, cuts)
        return SequenceBank(nodes, path, members, total, holders, element, length)


class SequenceBank(StepsBank):
    """Independent steps of all members."""

    node: Sequence

    def __init__(self, nodes, path, members, total, holders, element: Bank, length: Bank | None):
        super().__init__(nodes, path, members, total, holders, length)
        self.element = element

    def step_banks(self):
        return (self.element,)

    def score(self, tile: Tile):
        steps = self.steps(tile)
        values = yield from self.element.score(steps)
        out = sums_of_sequences(values, steps.offsets)
        if self.length is not None:
            out += yield from self.length.score(tile)
        return out

    def accumulate(self, tile: Tile, weights):
        steps = self.steps(tile)
        yield from self.element.accumulate(steps, np.repeat(weights, np.diff(steps.offsets), axis=1))
        if self.length is not None:
            yield from self.length.accumulate(tile, weights)

    def restore(self, member, theta):
        changed = copy.copy(self.node)
        changed.element = self.element.restore(member, theta)
        changed.length = None if self.length is None else self.length.restore(member, theta)
        return changed
