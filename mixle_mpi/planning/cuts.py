"""The ways to cut a model: which units a shard can hold, and what every shard holds besides.

A cut has a list of units, in runs of equal ones. A plain cut divides one node, or with `*` the same node of all
members alike. A nested cut divides the units of a node further, by the units of the nodes inside them: a
shard is a contiguous range of the deepest units, and pays for each inner node that it holds a unit of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from mixle_mpi.contract.decomposition import DecompAxis, ReductionOp
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.work import by_states
from mixle_mpi.planning.profile import Load, Profile, Run, Sent, profile_of

MOST_SEGMENTS = 4096  # nested cuts into more runs than this are not tried: there are units enough without
DEEPEST = 4  # levels of nested cuts that are tried
INSIDE = "**"  # what a path ends in that cuts the nodes inside a node's units as well


@dataclass(frozen=True, eq=False)
class Segment:
    """`count` equal units one after another: the `load` of one, and the group whose members share rows and fields."""

    count: int
    load: Load
    group: int
    owners: tuple[int, ...] = ()


@dataclass(frozen=True)
class CutNode:
    """A node that is cut: its path (`*` for all members) and axis; unit k takes the places `borders[k]` to
    `borders[k + 1]` of the cut's list of units."""

    path: str
    axis: DecompAxis
    borders: Sequence[int]

    @property
    def first(self) -> int:
        return self.borders[0]

    @property
    def stop(self) -> int:
        return self.borders[-1]

    @property
    def units(self) -> int:
        """Places of the list that it takes."""
        return self.stop - self.first


@dataclass(frozen=True)
class Step:
    """A step down the tree: one child number of a run, or with None all its copies alike."""

    run: Run
    number: int | None

    @property
    def role(self) -> str:
        return self.run.role if self.number is None else self.run.role_of(self.number)


@dataclass(frozen=True, eq=False)
class Divided:
    """A cut node as the planner sees it.

    Attributes
    ----------
    way : steps to it from the root, or from the unit of another cut node that it is inside
    rows : of it for each observation
    inside : unit -> number of the cut node inside it
    owner : the number among a cut's `owners` of the unit that it is inside, None of the outermost
    """

    profile: Profile
    way: tuple[Step, ...]
    rows: float
    inside: dict[int, int]
    owner: int | None = None


@dataclass(frozen=True, eq=False)
class Cut:
    """A way to cut a model.

    Attributes
    ----------
    model : what is cut
    nodes : the nodes that are cut, in tree order, the first one outermost; `divided` says more of each
    fixed : what every shard has
    segments : the units
    groups : what each group of units costs once in a shard that holds any of it
    owners : what each inner cut node costs a shard that holds a unit of it
    payload : float64 values that a shard sends along the model axis for each observation
    exchanged : float64 values for each observation that model shards deal out among themselves
    messages : reductions over the model axis for each batch of tiles
    depth : levels of nodes inside others that are cut, 0 of a plain cut
    steps, step_flops : of recursions for each observation that are dealt out with the units, and FLOPs of each step
    elsewhere : for each group, the equal units of members that are not cut: they are maximised together
    """

    model: Profile
    nodes: tuple[CutNode, ...]
    divided: tuple[Divided, ...]
    reduction: ReductionOp
    fixed: Load
    segments: tuple[Segment, ...]
    groups: tuple[Load, ...]
    owners: tuple[Load, ...] = ()
    payload: float = 0.0
    messages: float = 1.0
    exchanged: float = 0.0
    steps: float = 0.0
    step_flops: float = 0.0
    elsewhere: tuple[float, ...] = ()
    depth: int = 0

    @property
    def path(self) -> str:
        """The path of the only node, or what `nested_path` reads."""
        first = self.nodes[0].path
        return first if not self.depth else "/".join(filter(None, [first, f"{INSIDE}{self.depth}"]))

    @property
    def axis(self) -> DecompAxis:
        return self.nodes[0].axis

    @property
    def units(self) -> int:
        return sum(s.count for s in self.segments)

    @property
    def nested(self) -> bool:
        return len(self.nodes) > 1

    def by_states(self, rows: float, model_shards: int) -> bool:
        """Whether the recursions of so many rows are divided by units rather than row by row."""
        longest = -(-rows // model_shards) * self.steps
        return by_states(rows * self.steps, longest, self.step_flops, model_shards)

    @cached_property
    def sent(self) -> Sent:
        """What the whole model sends. What members estimate together, every model shard has of all members."""
        units = (s.load.sent * s.count for s in self.segments)
        return sum((*units, *(g.sent for g in self.groups)), self.fixed.sent + self.fixed.together)

    @property
    def copied(self) -> float:
        """Values that all model shards hold and take from the first of them."""
        return self.fixed.sent.copied + self.fixed.together.copied + self.sent.common


def uncut(model: Profile) -> Cut:
    """The cut that is none: one unit, the whole model."""
    load = model.load
    shared = Load(row_flops=load.row_flops, held=load.shared, sent=load.together, row_scratch=load.row_scratch)
    return Cut(model, (CutNode("", DecompAxis.NONE, range(2)),), (), ReductionOp.REPLICATE, Load(),
               (Segment(1, load.copies(1, False), 0),), (shared,))  # fmt: skip


def cuts_of(model: Profile, nested: bool = True) -> Iterator[Cut]:
    """All cuts worth trying. Of alike single members only the first; nested ones come last."""
    repeated = repeated_keys(model)
    found = [(steps, node) for steps, node in shardable(model) if not _held_once(model, steps, node, repeated)]
    for steps, node in found:
        yield plain_cut(model, steps, node)
    if nested:
        for steps, node in found:
            before = 1
            for depth in range(1, DEEPEST + 1):
                cut = nested_cut(model, steps, node, depth, repeated)
                if cut is None or len(cut.nodes) == before:
                    break
                before = len(cut.nodes)
                yield cut


def shardable(model: Profile, steps: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Profile]]:
    """Every node that can be cut with the steps to it, in tree order, copies once by `*` and once alone."""
    if model.is_shardable:
        yield steps, model
    for run in model.runs:
        if run.count > 1 and sum(r.unit for r in model.runs) == 1:
            yield from shardable(run.profile, (*steps, Step(run, None)))
        yield from shardable(run.profile, (*steps, Step(run, 0)))


def repeated_keys(model: Profile) -> set[str]:
    """Keys that more than one node has."""
    counts: dict[str, float] = {}

    def visit(node: Profile, copies: float) -> None:
        if node.key is not None:
            counts[node.key] = counts.get(node.key, 0) + copies
        for run in node.runs:
            visit(run.profile, copies * run.count)

    visit(model, 1)
    return {key for key, count in counts.items() if count > 1}


def _held_once(model: Profile, steps: tuple[Step, ...], node: Profile, repeated: set[str]) -> bool:
    """Whether the node belongs to parameters that other places have as well: it is not cut, but held whole."""
    return any(p.key in repeated for p in (model, *(s.run.profile for s in steps), node) if p.key is not None)


def path_of(steps: tuple[Step, ...]) -> str:
    return "/".join(s.role for s in steps)


def alike(parent: Profile, run: Run) -> int:
    """How many children of the parent are evaluated together with those of the run: itself, and equal runs."""
    return sum(r.count for r in parent.runs if r.profile is run.profile) if parent.gathers else run.count


def rest(model: Profile, steps: tuple[Step, ...]) -> Load:
    """What the model costs without the units of the node at the end of the steps."""
    load = model.own + model.unit.copies(model.decomposition.num_units) if steps else model.own
    if not steps and model.cost.pooled:
        load = load.pooled()
    chosen = steps[0].run if steps else None
    for run in model.runs:
        if chosen is None:
            load = load if run.unit else load + run.load()
        elif run is chosen:
            inner = rest(run.profile, steps[1:]).rows(run.rows).below(run.place)
            if steps[0].number is None:
                load = load + inner.copies(run.count)
            else:
                others = alike(model, run) - 1
                alikes = run.profile.load.copies(others, others > 0).rows(run.rows).below(run.place)
                load = load + inner.copies(1, not others) + alikes
        elif not (model.gathers and run.profile is chosen.profile and steps[0].number is not None):
            load = load + run.load()
    return load.gathered() if model.gathers else load


@dataclass(frozen=True)
class _Place:
    """Where a node is: rows for each observation, members cut together, and members in its bank besides."""

    rows: float
    together: int
    elsewhere: int


def _place(model: Profile, steps: tuple[Step, ...]) -> _Place:
    rows, together, everyone, parent = 1.0, 1, 1, model
    for step in steps:
        rows *= step.run.rows
        together *= step.run.count if step.number is None else 1
        everyone *= alike(parent, step.run)
        parent = step.run.profile
    return _Place(rows, together, everyone - together)


def plain_cut(model: Profile, steps: tuple[Step, ...], node: Profile) -> Cut:
    """The cut of one node, of one member or of all alike."""
    place = _place(model, steps)
    segments, groups = _units(node, place)
    whole = sum(s.count for s in segments)
    cut = CutNode(path_of(steps), node.decomposition.axis, range(whole + 1))
    fixed = rest(model, steps) + Load(node.cost.cut.flops * place.rows * place.together)
    return Cut(model, (cut,), (Divided(node, steps, place.rows, {}),), node.decomposition.reduction, fixed,
               tuple(segments), tuple(groups),
               payload=node.cost.payload * place.rows * place.together, messages=node.cost.messages,
               exchanged=node.cost.exchanged * place.rows * place.together, steps=node.cost.steps * place.rows,
               step_flops=node.cost.step_flops * place.together,
               elsewhere=_elsewhere(segments, len(groups), place))  # fmt: skip


def _elsewhere(segments: list[Segment], groups: int, place: _Place) -> tuple[float, ...]:
    """For each group the units like its own that the members not cut have."""
    counts = [0] * groups
    for s in segments:
        counts[s.group] += s.count
    return tuple(n * place.elsewhere / place.together for n in counts)


def _units(node: Profile, place: _Place) -> tuple[list[Segment], list[Load]]:
    """The units of a node, and what each group of them shares, unless members elsewhere share it as well."""
    rows, together, alone = place.rows, place.together, not place.elsewhere
    numbers: dict[int, int] = {}
    segments: list[Segment] = []
    groups: list = []
    for run in node.units():
        load = run.profile.load.rows(run.rows * rows)
        group = numbers.setdefault(id(run.profile) if node.gathers else id(run), len(numbers))
        if group == len(groups):
            groups.append(Load(
                row_flops=load.row_flops * alone, held=load.shared * (together * node.gathers),
                sent=load.together * (together * node.gathers), row_scratch=load.row_scratch * alone,
            ))  # fmt: skip
        own = load.copies(together, False)
        own = own if node.gathers else own + Load(held=load.shared * together, sent=load.together * together)
        own = own + node.unit.rows(rows).copies(together)
        segments.append(Segment(run.count, own, group))
    return segments, groups


def inside(unit: Profile, held_once: set[str], steps: tuple[Step, ...] = ()) -> Inner | None:
    """The first node in a unit that can be cut: the unit itself, or one below wrappers. What has a key that is
    `held_once` is not. It depends on the structure alone, so that whoever plans and whoever runs find the same."""
    if unit.key in held_once:
        return None
    if unit.is_shardable:
        return steps, unit
    found = [inside(run.profile, held_once, (*steps, Step(run, 0))) for run in unit.runs if run.count == 1]
    return next((f for f in found if f is not None), None)


Inner = tuple[tuple[Step, ...], Profile]


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
    place = _place(model, steps)
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
               elsewhere=_elsewhere(nest.segments, len(nest.groups), place), depth=depth)  # fmt: skip


def nested_path(path: str) -> tuple[str, int]:
    """Path and depth of what is cut: "a/**" cuts the node at a and the nodes inside its units, down to the deepest that
    can be cut, "a/**1" those one level inside; depth 0 is of a plain path."""
    where, _, last = path.rpartition("/")
    depth = last.removeprefix(INSIDE)
    if not last.startswith(INSIDE) or not (depth == "" or (depth.isdecimal() and 1 <= int(depth) <= DEEPEST)):
        return path, 0
    return where, int(depth or DEEPEST)


def cut_words(path: str) -> str:
    """Where a model is cut, in words."""
    where, depth = nested_path(path)
    return (where or "the root") + (" and inside" if depth else "")


def nested_nodes(model: Node, path: str) -> tuple[CutNode, ...] | None:
    """The nodes that a path of a nested cut means; None for a plain path. Raises ModelError where there are none."""
    return cut_at(profile_of(model), path).nodes if nested_path(path)[1] else None


def cut_at(model: Profile, path: str) -> Cut:
    """The cut of the nodes at a path. Raises ModelError where there are none, or they are not alike."""
    where, depth = nested_path(path)
    node, steps = model, tuple[Step, ...]()
    for segment in filter(None, where.split("/")):
        step = next((s for run in node.runs if (s := step_to(run, segment)) is not None), None)
        several = sum(run.unit for run in node.runs) > 1
        if step is None or (step.number is None and several):
            why = "its nodes are not alike" if step is not None else f"there is no {segment!r}"
            raise ModelError(f"cut {path!r} cannot be planned: {why}")
        node, steps = step.run.profile, (*steps, step)
    if not node.is_shardable:
        raise ModelError(f"cut {path!r} cannot be planned: the node there has no units to divide")
    if not depth:
        return plain_cut(model, steps, node)
    cuts: list[Cut] = []
    for level in range(1, depth + 1):
        cut = nested_cut(model, steps, node, level, repeated_keys(model))
        if cut is None or len(cut.nodes) == (len(cuts[-1].nodes) if cuts else 1):
            break
        cuts.append(cut)
    if not cuts:
        raise ModelError(f"cut {path!r}: there are no nodes that can be cut inside the units of the node there")
    return cuts[-1]


def step_to(run: Run, segment: str) -> Step | None:
    """The step to the children of a run that a segment of a path names, if it does."""
    if "*" not in run.role:
        return Step(run, 0) if segment == run.role else None
    if segment == run.role:
        return Step(run, None)
    number = segment.removeprefix(run.role.removesuffix("*"))
    known = number.isdecimal() and segment != number and run.first <= int(number) < run.first + run.count
    return Step(run, int(number) - run.first) if known else None
