"""Sequences of independent steps."""

from __future__ import annotations

import copy

from mixle_mpi.contract.decomposition import DecompAxis, Decomposition, ReductionOp
from mixle_mpi.contract.node import Branch, Node, checked_key
from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.models.structure import StructureOnly, checked_child


class Sequence(StructureOnly):
    """Sequences: log p(x) = sum_t log p_element(x[t]), and log p_length(number of steps) where `length` is given.

    Parameters
    ----------
    element : Node
    length : Node, optional
    """

    child_keys = ("element", "length")

    def __init__(self, element: Node, length: Node | None = None, *, key: str | None = None):
        self.element = checked_child("sequence", "element", element)
        self.length = None if length is None else checked_child("sequence", "length", length)
        self.key = checked_key("sequence", key)

    def decomposition(self):
        # one unit: the axis names the data axis, on which steps are dealt with their sequences
        return Decomposition(DecompAxis.SEQUENCE, 1, ReductionOp.SUM, child_roles=("element",),
                             shared_children=() if self.length is None else ("length",))  # fmt: skip

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

    def replace(self, change):
        changed = copy.copy(self)
        changed.element = change(self.element)
        changed.length = None if self.length is None else change(self.length)
        return changed

    def signature(self):
        length = None if self.length is None else self.length.signature()
        return (type(self), self.key, self.element.signature(), length)

    def described(self, describe):
        spec = {"element": describe(self.element)}
        return spec if self.length is None else spec | {"length": describe(self.length)}
