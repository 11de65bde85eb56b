"""Which parts of a bank can be evaluated in one product with their siblings."""

from __future__ import annotations

from mixle_mpi.contract.bank import Bank
from mixle_mpi.families.leaf import LeafBank
from mixle_mpi.families.natural import Term
from mixle_mpi.models.optional import OptionalBank


def split_terms(bank: Bank) -> tuple[list[Term], bool]:
    """The terms of a bank for a `NaturalBlock`, and whether more of it remains to be evaluated by itself."""
    if isinstance(bank, LeafBank) and bank.is_term:
        return [bank], False
    if isinstance(bank, OptionalBank):
        return bank.terms, bank.rest
    return [], True
