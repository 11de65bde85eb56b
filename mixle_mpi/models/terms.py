"""Which parts of a bank can be evaluated in one product with their siblings."""

from __future__ import annotations

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.work import Assumed
from mixle_mpi.families.leaf import LeafBank
from mixle_mpi.families.natural import Term
from mixle_mpi.models.optional import Optional, OptionalBank


def planned_terms(node: Node, assumed: Assumed) -> tuple[int, bool]:
    """As `split_terms` of a node that may not be bound: how many of its terms are there in every row, and whether
    more remains."""
    if isinstance(node, Family):
        term = node.planned_term(assumed)
        return int(term), not term
    return node.planned_terms(assumed) if isinstance(node, Optional) else (0, True)


def split_terms(bank: Bank) -> tuple[list[Term], bool]:
    """The terms of a bank for a `NaturalBlock`, and whether more of it remains to be evaluated by itself."""
    if isinstance(bank, LeafBank) and bank.is_term:
        return [bank], False
    if isinstance(bank, OptionalBank):
        return bank.terms, bank.rest
    return [], True
