"""Nodes of one key are one set of parameters: their statistics are summed before they are maximised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Layout, Matrix
from mixle_mpi.execution.axis import Axis

REDUCE = {Combine.SUM: (np.add, 0.0, "sum"), Combine.MIN: (np.minimum, np.inf, "min"),
          Combine.MAX: (np.maximum, -np.inf, "max")}  # fmt: skip


@dataclass
class Tie:
    """Matrices whose rows are copies of `size` rows; `index` has for each matrix the copy's row, (rows,)."""

    key: str
    size: int
    matrices: list[Matrix]
    index: list[np.ndarray]


class Ties:
    """All ties of a local tree. Every shard has the same ones, in the same order."""

    def __init__(self, bank: Bank, layout: Layout, model: Axis | None):
        self.layout, self.model = layout, model
        self.ties = list(find_ties(bank).values())

    def names(self) -> set[str]:
        """The matrices that are tied."""
        return {m.name for tie in self.ties for m in tie.matrices}

    def copies(self) -> dict[str, int]:
        """Matrix that is tied -> how many copies of its rows the whole model has."""
        return {m.name: sum(other.total_rows for other in tie.matrices) // tie.size
                for tie in self.ties for m in tie.matrices}  # fmt: skip

    def apply(self, stats: np.ndarray, divided: bool) -> None:
        """Sum the statistics of tied rows, over the model shards too, and give all of them the sum. Collective.

        Of ties in which some rows' statistics are `divided` over model shards, once these are pooled, or of the others.
        """
        ties = [tie for tie in self.ties if any(m.divided for m in tie.matrices) is divided]
        for combine, (ufunc, empty, how) in REDUCE.items():
            for tie in ties:
                width = tie.matrices[0].stat_width(combine)
                if not width:
                    continue
                total = np.full((tie.size, width), empty)
                for m, index in zip(tie.matrices, tie.index):
                    counted = np.flatnonzero(m.holders.answers)
                    ufunc.at(total, index[counted], self.layout.stat_rows(stats, m.name, combine)[counted])
                if self.model is not None:
                    self.model.allreduce(total, how)
                for m, index in zip(tie.matrices, tie.index):
                    self.layout.stat_rows(stats, m.name, combine)[:] = total[index]

    def add_rows(self, arrays: dict[str, np.ndarray]) -> None:
        """Sum tied rows of other arrays (rows, width), by the name of the matrix that they go with. Collective."""
        for tie in self.ties:
            own = [(arrays[m.name], m, index) for m, index in zip(tie.matrices, tie.index) if m.name in arrays]
            if own:
                total = np.zeros((tie.size, own[0][0].shape[1]))
                for rows, m, index in own:
                    counted = np.flatnonzero(m.holders.answers)
                    np.add.at(total, index[counted], rows[counted])
                if self.model is not None:
                    self.model.allreduce(total)
                for rows, _, index in own:
                    rows[:] = total[index]

    def share_given(self, theta: np.ndarray) -> None:
        """Give tied rows the parameters that the user gave to any of them; NaN is not given. Collective.

        Raises ModelError when two different values were given to one key.
        """
        for tie in self.ties:
            width = tie.matrices[0].param_width
            low, high = np.full((tie.size, width), np.inf), np.full((tie.size, width), -np.inf)
            for m, index in zip(tie.matrices, tie.index):
                rows = self.layout.param_rows(theta, m.name)
                np.fmin.at(low, index, rows)
                np.fmax.at(high, index, rows)
            if self.model is not None:
                self.model.allreduce(low, "min")
                self.model.allreduce(high, "max")
            if ((low < high) & np.isfinite(low)).any():
                raise ModelError(f"key {tie.key!r}: nodes of one key were given different parameters")
            value = np.where(np.isfinite(low), low, np.nan)
            for m, index in zip(tie.matrices, tie.index):
                self.layout.param_rows(theta, m.name)[:] = value[index]


def find_ties(bank: Bank) -> dict[tuple[str, str], Tie]:
    """(key, matrix below the keyed node) -> tie, in tree order.

    Raises ModelError when nodes of one key are not alike, or a keyed node is below another.
    """
    ties: dict[tuple[str, str], Tie] = {}
    taken: dict[str, str] = {}
    kinds: dict[tuple[str, str], tuple] = {}
    for top in bank.walk():
        if top.node.key is None:
            continue
        for below in top.walk():
            # the trials of a binomial are data, not how it is estimated
            options = {k: v for k, v in below.node.options().items() if k != "trials"}
            kind = type(below.node), options, below.node.tied_form()
            if kinds.setdefault((top.node.key, below.path.removeprefix(top.path)), kind) != kind:
                raise ModelError(f"key {top.node.key!r}: the nodes of one key must be of one family and have the same "
                                 "options")  # fmt: skip
            for m in below.matrices():
                if m.name in taken:
                    raise ModelError(f"key {below.node.key!r}: {below.path} is below a node of key {taken[m.name]!r}, "
                                     "which ties it already; give one of them a key")  # fmt: skip
                taken[m.name] = top.node.key
                name = m.name.removeprefix(top.path)
                size = max(m.total_rows // top.total_members, 1)
                tie = ties.setdefault((top.node.key, name), Tie(top.node.key, size, [], []))
                like = tie.matrices[0] if tie.matrices else m
                if (tie.size, like.params, like.stats) != (size, m.params, m.stats):
                    raise ModelError(f"key {tie.key!r}: the nodes of one key must be of one family and size")
                tie.matrices.append(m)
                tie.index.append(m.rows % size)
    return ties


def count_free(bank: Bank, keys: set[str] | None = None) -> int:
    """Free parameters of the whole model; nodes of one key are counted once."""
    keys = set() if keys is None else keys
    if bank.node.key is not None:
        if bank.node.key in keys:
            return 0
        keys.add(bank.node.key)
        return sum(below.num_free(bank.total_members) for below in bank.walk())
    return bank.num_free() + sum(count_free(child, keys) for child in bank.children())
