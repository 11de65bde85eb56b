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
from mixle_mpi.contract.work import by_states
from mixle_mpi.planning.profile import Load, Profile, Run, Sent

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


def held_once(model: Profile, steps: tuple[Step, ...], node: Profile, repeated: set[str]) -> bool:
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


def place_of(model: Profile, steps: tuple[Step, ...]) -> _Place:
    rows, together, everyone, parent = 1.0, 1, 1, model
    for step in steps:
        rows *= step.run.rows
        together *= step.run.count if step.number is None else 1
        everyone *= alike(parent, step.run)
        parent = step.run.profile
    return _Place(rows, together, everyone - together)


def plain_cut(model: Profile, steps: tuple[Step, ...], node: Profile) -> Cut:
    """The cut of one node, of one member or of all alike."""
    place = place_of(model, steps)
    segments, groups = _units(node, place)
    whole = sum(s.count for s in segments)
    cut = CutNode(path_of(steps), node.decomposition.axis, range(whole + 1))
    fixed = rest(model, steps) + Load(node.cost.cut.flops * place.rows * place.together)
    return Cut(model, (cut,), (Divided(node, steps, place.rows, {}),), node.decomposition.reduction, fixed,
               tuple(segments), tuple(groups),
               payload=node.cost.payload * place.rows * place.together, messages=node.cost.messages,
               exchanged=node.cost.exchanged * place.rows * place.together, steps=node.cost.steps * place.rows,
               step_flops=node.cost.step_flops * place.together,
               elsewhere=elsewhere_of(segments, len(groups), place))  # fmt: skip


def elsewhere_of(segments: list[Segment], groups: int, place: _Place) -> tuple[float, ...]:
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
