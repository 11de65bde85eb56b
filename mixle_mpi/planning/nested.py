"""Cuts of several nodes at once: the units of a node are divided further, by the units of the nodes inside them."""

from __future__ import annotations

from mixle_mpi.planning.cuts import Cut, CutNode, Divided, Segment, Step, elsewhere_of, path_of, place_of, rest
from mixle_mpi.planning.profile import Load, Profile, Run

MOST_SEGMENTS = 4096  # nested cuts into more runs than this are not tried: there are units enough without
Inner = tuple[tuple[Step, ...], Profile]


def inside(unit: Profile, held_once: set[str], steps: tuple[Step, ...] = ()) -> Inner | None:
    """The first node in a unit that can be cut: the unit itself, or one below wrappers. What has a key that is
    `held_once` is not. It depends on the structure alone, so that whoever plans and whoever runs find the same."""
    if unit.key in held_once:
        return None
    if unit.is_shardable:
        return steps, unit
    found = [inside(run.profile, held_once, (*steps, Step(run, 0))) for run in unit.runs if run.count == 1]
    return next((f for f in found if f is not None), None)


class _Nest:
    """Builds the list of units of a nested cut."""

    def __init__(self, alone: bool, held_once: set[str]):
        self.alone = alone  # whether nobody else shares what units share
        self.held_once = held_once
        self.segments: list[Segment] = []
        self.groups: list[Load] = []
        self.owners: list[Load] = []
        self.nodes: list[CutNode] = []
        self.divided: list[Divided] = []
        self.numbers: dict[int, int] = {}
        self.payload = self.exchanged = self.steps = self.step_flops = 0.0
        self.at = 0

    def divide(self, node: Profile, way: tuple[Step, ...], path: str, rows: float, owners: tuple[int, ...],
               depth: int) -> bool:  # fmt: skip
        """Append the units of a node, divided further down to a depth. Whether it was short enough."""
        place, borders, axis = len(self.nodes), [self.at], node.decomposition.axis
        self.nodes.append(CutNode(path, axis, borders))
        self.divided.append(Divided(node, way, rows, {}, owners[-1] if owners else None))
        for run in node.units():
            deeper = inside(run.profile, self.held_once) if depth else None
            load = run.profile.load.rows(run.rows * rows)
            if deeper is None:
                self._append(run, load, node.unit.rows(rows), node.gathers, owners)
                borders.extend(range(borders[-1] + 1, self.at + 1))
            elif len(self.segments) + run.count > MOST_SEGMENTS:
                return False
            else:
                for k in range(run.count):
                    self.divided[place].inside[len(borders) - 1] = len(self.nodes)
                    if not self._inside(run, k, deeper, node.unit.rows(rows), path, rows, owners, depth):
                        return False
                    borders.append(self.at)
        if len(borders) == self.at - borders[0] + 1:  # nothing is inside
            self.nodes[place] = CutNode(path, axis, range(borders[0], self.at + 1))
        return len(self.segments) <= MOST_SEGMENTS

    def _append(self, run: Run, load: Load, unit: Load, gathers: bool, owners: tuple[int, ...]) -> None:
        group = self.numbers.setdefault(id(run.profile) if gathers else id(run), len(self.numbers))
        if group == len(self.groups):
            self.groups.append(Load(row_flops=load.row_flops * self.alone, row_scratch=load.row_scratch * self.alone))
        # what the units of one inner node share is counted with each unit: at most too much
        own = load.copies(1, False) + Load(held=load.shared, sent=load.together) + unit
        self.segments.append(Segment(run.count, own, group, owners))
        self.at += run.count

    def _inside(self, run: Run, k: int, deeper, unit: Load, path: str, rows: float, owners, depth: int) -> bool:
        steps, inner = deeper
        below = rows * run.rows
        for step in steps:
            below *= step.run.rows
        self.owners.append(rest(run.profile, steps).rows(run.rows * rows) + unit + Load(inner.cost.cut.flops * below))
        self.payload = max(self.payload, inner.cost.payload * below)
        self.exchanged = max(self.exchanged, inner.cost.exchanged * below)
        if inner.cost.step_flops > self.step_flops:
            self.steps, self.step_flops = inner.cost.steps * below, inner.cost.step_flops
        there = "/".join(filter(None, [path, run.role_of(k), path_of(steps)]))
        return self.divide(inner, steps, there, below, (*owners, len(self.owners) - 1), depth - 1)


def nested_cut(model: Profile, steps: tuple[Step, ...], node: Profile, depth: int, held_once: set[str]) -> Cut | None:
    """A node cut, and the nodes inside its units as well, to a depth; None when there are too many of them."""
    if any(s.number is None for s in steps):
        return None  # one list of units has no place for ranges of each member
    place = place_of(model, steps)
    rows = place.rows
    nest = _Nest(not place.elsewhere, held_once)
    if not nest.divide(node, steps, path_of(steps), rows, (), depth):
        return None
    # a contiguous range shares at most its first and its last inner node with others
    fixed = rest(model, steps) + Load(node.cost.cut.flops * rows)
    return Cut(model, tuple(nest.nodes), tuple(nest.divided), node.decomposition.reduction, fixed,
               tuple(nest.segments), tuple(nest.groups), tuple(nest.owners),
               node.cost.payload * rows + 2.0 * nest.payload, node.cost.messages + 1.0,
               node.cost.exchanged * rows + nest.exchanged, nest.steps, nest.step_flops,
               elsewhere=elsewhere_of(nest.segments, len(nest.groups), place), depth=depth)  # fmt: skip
