"""The cost of every shard worked out from the expanded tree, and the best plan by trying everything."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise, permutations

from mixle_mpi import Categorical, Composite, Gaussian, Laplace, Mixture, MultivariateGaussian, Optional, Poisson
from mixle_mpi.contract.decomposition import DecompAxis
from mixle_mpi.contract.work import Assumed
from mixle_mpi.planning.profile import profile_of
from mixle_mpi.planning.shards import TILES_IN_FLIGHT, workspace

GATHERING = (DecompAxis.COMPONENT, DecompAxis.STATE, DecompAxis.TOPIC)


def children(node) -> list[tuple[str, object, bool, float]]:
    """Role, child, whether it is a unit, and rows, of every child, copies one by one."""
    found = []
    for branch in node.branches(Assumed()):
        for k in range(branch.count):
            found.append((branch.role.replace("*", str(k)), branch.node, branch.unit, branch.rows))
    return found


def cut_patterns(node, path: str = "") -> Iterator[str]:
    """Paths of all nodes that can be cut, each member's own, and with `*` where all members are alike."""
    if node.decomposition().is_shardable:
        yield path
    own = children(node)
    alike = len({c.signature() for _, c, _, _ in own}) == 1 and len(own) > 1 and not isinstance(node, Composite)
    for role, child, _, _ in own:
        yield from cut_patterns(child, f"{path}/{role}".strip("/"))
    if alike:
        yield from cut_patterns(own[0][1], f"{path}/component_*".strip("/"))


def matches(path: str, pattern: str) -> bool:
    a, b = path.split("/"), pattern.split("/")
    return len(a) == len(b) and all(x == y or (y == "component_*" and x.startswith("component_")) for x, y in zip(a, b))


class Sums:
    """What a shard does and holds: banks are told apart by where they are and by structure."""

    def __init__(self):
        self.flops = 0.0
        self.row_flops: dict = {}
        self.members: dict = defaultdict(int)
        self.m_step: dict = {}
        self.everywhere: dict = {}
        self.held: dict = {}
        self.scratch = 0.0
        self.row_scratch: dict = {}

    def add(self, cost, bank, place, group, key, rows, copies=1):
        self.flops += copies * rows * cost.member.flops
        self.scratch += copies * rows * cost.scratch_member
        if cost.row.flops:
            self.row_flops[bank] = rows * cost.row.flops
        if cost.scratch_row:
            self.row_scratch[bank] = rows * cost.scratch_row
        self.members[bank] += copies
        self.m_step[bank] = cost.m_step.flops
        self.everywhere[bank] = cost.everywhere or bool(key)  # no data shard maximises a part of it only
        name = ("key", *key) if key else ("place", place)
        self.held[name] = tuple(copies * v for v in (cost.params, cost.stats, cost.kernel + cost.packed))
        if cost.shared_params or cost.shared_stats:
            self.held["shared", group, bank] = cost.shared_params, cost.shared_stats, 0

    def total(self, rows: int, owners: int, passes: float, row_bytes: float, tiles: int) -> tuple[float, float]:
        e_step = self.flops + sum(self.row_flops.values())
        m_step = sum(math.ceil(n / (1 if self.everywhere[bank] else owners)) * self.m_step[bank]
                     for bank, n in self.members.items())  # fmt: skip
        values = sum(2 * p + s + k for p, s, k in self.held.values())
        scratch = self.scratch + sum(self.row_scratch.values())
        return passes * rows * e_step + m_step, 8 * values + workspace(scratch, rows, tiles) + rows * row_bytes


def shard_sums(model, pattern: str | None, a: int, b: int) -> Sums:
    """What a shard costs that holds units a to b of the nodes that a pattern means, and all the rest."""
    sums = Sums()

    def visit(node, path, bank, group, key, rows):
        key = (*key, node.key) if node.key is not None and not key else key
        here = key and (*key, path[len(key[1]) :] if len(key) > 1 else "")
        cost, own = node.cost(Assumed()), children(node)
        cut = pattern is not None and matches(path, pattern)
        if node.key is not None and len(key) == 1:
            key = (node.key, path)
            here = (node.key, "")
        elif key:
            here = (key[0], path[len(key[1]) :])
        sums.add(cost, bank, path, group, here, rows)
        sums.flops += rows * cost.cut.flops * cut
        count = b - a if cut else node.decomposition().num_units
        if cost.unit is not None and count:
            sums.add(cost.unit, (*bank, "unit"), f"{path}#unit", group, here and (*here, "unit"), rows, count)
        gathers = node.decomposition().axis in GATHERING
        number = 0
        for role, child, unit, times in own:
            held = not (cut and unit) or a <= number < b
            number += unit
            if held:
                level = ("component", child.signature()) if gathers else role
                visit(child, f"{path}/{role}".strip("/"), (*bank, level), path if gathers else group, key, rows * times)

    visit(model, "", (), "", (), 1.0)
    return sums


def best_time(model, workers: int, n: int, memory: float, speeds: list[float] | None = None) -> float:
    """Seconds at 1 FLOP a second of the fastest plan that fits on equal workers, by trying all; inf when none."""
    profile = profile_of(model)
    passes, row_bytes = 1.0 + profile.passes, profile.row_bytes()
    best = math.inf
    for pattern in [None, *dict.fromkeys(cut_patterns(model))]:
        units = 1 if pattern is None else _units(model, pattern)
        made: dict = {}
        for m in range(1 if pattern is None else 2, min(workers, units) + 1):
            for d in range(1, min(workers // m, n) + 1):
                rows = math.ceil(n / d)

                def cost(a, b, rows=rows, d=d, made=made, pattern=pattern):
                    if (a, b) not in made:
                        made[a, b] = shard_sums(model, pattern, a, b)
                    tiles = 1 if pattern is None else TILES_IN_FLIGHT
                    time, size = made[a, b].total(rows, d, passes, row_bytes, tiles)
                    return time if size <= memory else math.inf

                times = {(a, b): cost(a, b) for a in range(units) for b in range(a + 1, units + 1)}
                times |= {(a, a): 0.0 for a in range(units + 1)}
                for inner in combinations_with_replacement(range(units + 1), m - 1):
                    best = min(best, max(times[r] for r in pairwise([0, *inner, units])))
    return best


def _units(model, pattern: str) -> int:
    """Units of the first node that a pattern means."""

    def find(node, path):
        if matches(path, pattern):
            return node.decomposition().num_units
        for role, child, _, _ in children(node):
            found = find(child, f"{path}/{role}".strip("/"))
            if found is not None:
                return found
        return None

    return find(model, "")


def random_tree(rng: random.Random, depth: int):
    """A small tree of leaves, composites, optionals and mixtures."""
    kind = rng.choice(["leaf", "composite", "mixture", "mixture", "list", "optional"]) if depth > 1 else "leaf"
    if kind == "composite":
        return Composite(*(random_tree(rng, depth - 1) for _ in range(rng.randint(1, 3))))
    if kind == "mixture":
        return Mixture(random_tree(rng, depth - 1), rng.randint(1, 5))
    if kind == "list":
        return Mixture([random_tree(rng, depth - 1) for _ in range(rng.randint(1, 3))])
    if kind == "optional":
        return Optional(random_tree(rng, depth - 1), estimate_missing=rng.random() < 0.5)
    key = rng.choice([None] * 9 + ["a"])
    return rng.choice([
        Gaussian(key=key and f"{key}1"), Poisson(), Categorical(list("abc")), Categorical(list(range(40))),
        MultivariateGaussian(rng.choice([2, 6]), key=key and f"{key}2"),
        MultivariateGaussian(3, structure="tied"), Laplace(),
    ])  # fmt: skip


def best_unequal_time(model, speeds: list[float], n: int) -> float:
    """As `best_time` on unequal workers without memory limits: all arrangements, rows and ranges."""
    profile = profile_of(model)
    passes = 1.0 + profile.passes
    best = math.inf
    for pattern in [None, *dict.fromkeys(cut_patterns(model))]:
        units = 1 if pattern is None else _units(model, pattern)
        sums = {(a, b): shard_sums(model, pattern, a, b) for a in range(units) for b in range(a + 1, units + 1)}
        for m in range(1 if pattern is None else 2, min(len(speeds), units) + 1):
            splits = [[0, *inner, units] for inner in combinations_with_replacement(range(units + 1), m - 1)]
            for d in range(1, min(len(speeds) // m, n) + 1):
                parts = {
                    r: [s.total(k, d, passes, 0.0, 1)[0] for k in range(n + 1)] for r, s in sums.items()
                }  # time at speed 1 by rows
                for chosen in set(permutations(speeds, d * m)):
                    groups = [chosen[k * m : (k + 1) * m] for k in range(d)]
                    for bounds in splits:
                        ranges = list(pairwise(bounds))
                        ends = [[max((parts[r][k] / s for r, s in zip(ranges, g) if r[0] < r[1])) for k in range(n + 1)]
                                for g in groups]  # fmt: skip
                        best = min(best, _deal(ends, n, best))
    return best


def _deal(ends: list[list[float]], n: int, limit: float) -> float:
    """The least largest end when n rows are dealt, ends[d][rows] not falling."""
    for value in sorted({e for group in ends for e in group if e < limit}):
        if all(g[0] <= value for g in ends) and sum(max(k for k in range(n + 1) if g[k] <= value) for g in ends) >= n:
            return value
    return limit
