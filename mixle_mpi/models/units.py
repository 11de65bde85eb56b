"""Units of one node, of one kind or several: components of a mixture, states of a hidden Markov model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.node import Cuts, Node
from mixle_mpi.contract.path import Components, Path


@dataclass
class Units:
    """The compiled units of the members of a bank, member by member in the user's order.

    Attributes
    ----------
    banks : one for each kind of unit
    rows : of each bank, the numbers of its members among the units held here
    offsets : of each bank, those of member i are offsets[i] to offsets[i + 1] of its members
    low, high : (members,) the units of each member that are held here
    cut : numbers of the members whose units other shards hold as well
    """

    banks: list[Bank]
    rows: list[np.ndarray]
    offsets: list[np.ndarray]
    low: np.ndarray
    high: np.ndarray
    cut: np.ndarray


def unit_groups(units: Sequence[Node]) -> list[list[int]]:
    """Units that can be compiled into one bank, in order of first appearance."""
    groups: dict = {}
    for k, unit in enumerate(units):
        groups.setdefault(unit.signature(), []).append(k)
    return list(groups.values())


def compile_units(
    groups: list[list[int]], children: list[Sequence[Node]] | Node, word: str, path: Path, members: np.ndarray,
    total: int, exclusive: np.ndarray, cuts: Cuts,
) -> Units:  # fmt: skip
    """Compile the units of `members` of a node, each with as many units as the groups have together.

    Parameters
    ----------
    children : the units of every member of the whole model, or the one node of which all are copies
    word : what a unit is called in paths
    """
    k = sum(len(positions) for positions in groups)
    low, high, cut = cuts.ranges(path, members, k)
    banks, unit_rows, offsets = [], [], []
    starts = np.concatenate([[0], np.cumsum(high - low)])
    for positions in groups:
        of = np.array(positions)
        held = [np.flatnonzero((of >= a) & (of < b)) for a, b in zip(low, high)]
        ids = [m * len(of) + h for m, h in zip(members, held)]
        if isinstance(children, Node):
            below = [children] * (total * len(of))
        else:
            below = [units[p] for units in children for p in positions]
        banks.append(
            below[0].compile(
                below,
                path / Components(tuple(positions), k, word),
                np.concatenate(ids).astype(np.int64) if ids else np.empty(0, np.int64),
                total * len(of),
                np.repeat(exclusive | cut, [len(h) for h in held]),
                cuts,
            )
        )
        rows = [starts[i] + of[h] - low[i] for i, h in enumerate(held)]
        unit_rows.append(np.concatenate(rows).astype(np.int64) if rows else np.empty(0, np.int64))
        offsets.append(np.concatenate([[0], np.cumsum([len(h) for h in held])]).astype(np.int64))
    return Units([b.stand_alone() for b in banks], unit_rows, offsets, low, high, np.flatnonzero(cut))
