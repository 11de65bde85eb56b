"""Which units of which nodes a model shard holds, and the tree of what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, pairwise

import numpy as np

from mixle_mpi.contract.blocks import unit_range
from mixle_mpi.contract.cuts import ALONE, EVERYONE, Cuts, Holders, RangedCuts
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.layout import Layout
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.path import Path
from mixle_mpi.models.units import ManyUnits
from mixle_mpi.planning.cuts import CutNode
from mixle_mpi.planning.paths import nested_nodes
from mixle_mpi.planning.shards import even_bounds


class PathCuts(RangedCuts):
    """The nodes that a path means, cut alike into contiguous ranges of units: between `bounds`, by default evenly."""

    def __init__(self, pattern: str, shard: int, shards: int, bounds: tuple[int, ...] | None = None):
        if bounds is not None and (len(bounds) != shards + 1 or bounds[0] != 0 or list(bounds) != sorted(bounds)):
            raise ModelError(f"bounds {bounds} are not the borders of {shards} ranges of units")
        super().__init__(shards, shard, bounds or ())
        self.pattern, self.shards, self.even = pattern, shards, bounds is None

    def held(self, path, holders, members, total, units):
        found = super().held(path, holders, members, total, units)
        found.anywhere = path.meets(self.pattern)
        chosen = np.flatnonzero(path.select(self.pattern, members))
        if self.even:
            self.bounds = (*(unit_range(k, self.shards, units)[0] for k in range(self.shards)), units)
        if len(chosen):
            if self.bounds[-1] != units:
                raise ModelError(f"cut {self.pattern!r}: bounds {self.bounds} for {units} units")
            self.cut_at(found, chosen, range(units + 1), everyone=True)
        return found


class NestedCuts(RangedCuts):
    """Several nodes whose units lie in one list, which is dealt out between `bounds`, by default evenly.

    Parameters
    ----------
    nodes : the first one has all the others inside
    """

    def __init__(self, nodes: Sequence[CutNode], shard: int, shards: int, bounds: tuple[int, ...] | None = None):
        units = nodes[0].stop
        super().__init__(shards, shard, bounds or even_bounds(units, shards))
        if self.bounds[-1] != units:
            raise ModelError(f"bounds {self.bounds} for {units} units")
        self.first = nodes[0].path
        self.nodes = {node.path: node for node in nodes}
        self.depths = {len(path.split("/")) if path else 0 for path in self.nodes}

    def colours(self):
        found = super().colours()
        groups = {self.ranks_of(a, b) for node in self.nodes.values()
                  for a, b in (*pairwise(node.borders), (node.first, node.stop))}  # fmt: skip
        for ranks in sorted(group for group in groups if len(group) > 1 and group not in found):
            taken = {colour for other, colour in found.items() if not set(ranks).isdisjoint(other)}
            found[ranks] = next(colour for colour in count() if colour not in taken)
        return found

    def held(self, path, holders, members, total, units):
        found = super().held(path, holders, members, total, units)
        if len(path.segments) not in self.depths:
            return found
        found.anywhere = any(path.of(member) in self.nodes for member in range(total))
        for at, member in enumerate(members.tolist()):
            node = self.nodes.get(path.of(member))
            if node is not None:
                self.cut_at(found, np.array([at]), node.borders, everyone=node.path == self.first)
        return found


def cuts_of(model: Node, cut: str | None, shard: int, shards: int, bounds: tuple[int, ...] | None = None) -> Cuts:
    """What model shards hold of a bound model: cut at a path, or, where the path ends in `**`, at the node there and
    those inside its units, see `planning.cuts.nested_at`; None for the whole model on each."""
    if cut is None:
        return Cuts(shards, shard)
    nodes = nested_nodes(model, cut)
    return PathCuts(cut, shard, shards, bounds) if nodes is None else NestedCuts(nodes, shard, shards, bounds)


def cut_paths(model: Node) -> list[str]:
    """The paths of all nodes that can be cut, in tree order; `*` for the copies of one component."""
    found: list[str] = []

    def visit(node: Node, path: str) -> None:
        if node.decomposition().is_shardable:
            found.append(path)
        for role, child in node.roles():
            if not isinstance(child, Family):
                visit(child, f"{path}/{role}" if path else role)

    visit(model, "")
    return found


def check_cut(model: Node, pattern: str) -> str:
    """The path of the nodes to cut, as the banks know it. Raises ModelError when there are none."""
    if nested_nodes(model, pattern) is not None:
        return pattern
    nodes = [model]
    for segment in [s for s in pattern.split("/") if s]:
        below: list[Node] = []
        for node in nodes:
            if isinstance(node, ManyUnits) and segment.startswith(f"{node.word}_"):
                number = segment.removeprefix(f"{node.word}_")
                if number == "*":
                    below += [unit for _, unit in node.unit_roles()]
                elif number.isdigit() and int(number) < node.num_units:
                    below.append(node.units[int(number)])
            else:
                below += [child for role, child in node.roles() if role == segment]
        nodes = below
    if any(n.decomposition().is_shardable for n in nodes):
        return pattern
    known = ", ".join(repr(p) if p else "'' (the root)" for p in cut_paths(model)) or "none"
    raise ModelError(f"cut {pattern!r}: no node there that can be cut; nodes that can: {known}")


def compile_tree(model: Node, cuts: Cuts | None, alone: bool):
    """The bank of a bound model: all of it, or what the cuts leave here; `alone` on a single shard."""
    one, cuts = np.zeros(1, np.int64), cuts or Cuts()
    holders = Holders(np.array([ALONE if alone else EVERYONE]), cuts.groups)
    return model.compile([model], Path(), one, 1, holders, cuts).stand_alone()


def layout_of(bank) -> Layout:
    """The flat buffers of a compiled tree."""
    return Layout([matrix for b in bank.walk() for matrix in b.matrices()])
