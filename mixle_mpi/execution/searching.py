"""A step of the searches that M-steps make in further passes over the data."""

from __future__ import annotations

from mixle_mpi.contract.layout import Views
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.ties import Ties


def advance(searching: list, stats: Views, ties: Ties, data: Axis) -> None:
    """Reduce the sums of searches, banks with what they search, and go on with each. Collective."""
    for _, search in searching:
        data.allreduce(search.sums)
    ties.add_rows({bank.path: search.sums for bank, search in searching})
    for bank, search in searching:
        if search.wanted:
            search.advance(stats[bank.path])
