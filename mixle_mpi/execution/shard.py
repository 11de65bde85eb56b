"""Which units of which nodes a model shard holds, and the tree of what it holds."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.blocks import unit_range
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.layout import Layout
from mixle_mpi.contract.node import Cuts, Node
from mixle_mpi.contract.path import Path
from mixle_mpi.models.units import ManyUnits


class PathCuts(Cuts):
    """The nodes that a path means, cut into contiguous ranges of units: between `bounds`, by default evenly."""

    def __init__(self, pattern: str, shard: int, shards: int, bounds: tuple[int, ...] | None = None):
        if bounds is not None and (len(bounds) != shards + 1 or bounds[0] != 0 or list(bounds) != sorted(bounds)):
            raise ModelError(f"bounds {bounds} are not the borders of {shards} ranges of units")
        self.pattern, self.shard, self.shards, self.bounds = pattern, shard, shards, bounds

    def borders(self, units: int) -> tuple[int, ...]:
        if self.bounds is not None:
            return self.bounds
        return (*(unit_range(k, self.shards, units)[0] for k in range(self.shards)), units)

    def ranges(self, path: Path, members: np.ndarray, units: int):
        low, high, cut = super().ranges(path, members, units)
        cut = path.select(self.pattern, members)
        if self.bounds is None:
            first, stop = unit_range(self.shard, self.shards, units)
        elif cut.any() and self.bounds[-1] != units:
            raise ModelError(f"cut {self.pattern!r}: bounds {self.bounds} for {units} units")
        else:
            first, stop = self.bounds[self.shard : self.shard + 2]
        return np.where(cut, first, low), np.where(cut, stop, high), cut


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


def compile_tree(model: Node, cuts: Cuts | None, exclusive: bool):
    """The bank of a bound model: all of it, or what the cuts leave here."""
    one = np.zeros(1, np.int64)
    return model.compile([model], Path(), one, 1, np.array([exclusive]), cuts or Cuts()).stand_alone()


def layout_of(bank) -> Layout:
    """The flat buffers of a compiled tree."""
    return Layout([matrix for b in bank.walk() for matrix in b.matrices()])
