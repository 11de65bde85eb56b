"""A model as the planner sees it: alike children once, with their number, and what subtrees cost together.

A profile is the same for an estimator and for a fitted model of one structure. Nothing here is as long as
the number of components, unless they are all different.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mixle_mpi.contract.decomposition import DecompAxis, Decomposition, decomposition_for
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.work import Assumed, Cost
from mixle_mpi.models.composite import Record

GATHERING = (DecompAxis.COMPONENT, DecompAxis.STATE, DecompAxis.TOPIC)  # units read the same columns
FLOAT = 8  # bytes of a parameter or statistic


@dataclass(frozen=True)
class Held:
    """Float64 values that a worker holds: parameters, statistics, and what kernels keep."""

    params: float = 0.0
    stats: float = 0.0
    kernel: float = 0.0

    def __add__(self, other: Held) -> Held:
        return Held(self.params + other.params, self.stats + other.stats, self.kernel + other.kernel)

    def __mul__(self, copies: float) -> Held:
        return Held(self.params * copies, self.stats * copies, self.kernel * copies)

    @property
    def resident(self) -> float:
        """All values together; parameters twice, as new ones are written beside the current ones."""
        return 2.0 * self.params + self.stats + self.kernel


NOTHING = Held()


@dataclass(frozen=True)
class Sent:
    """Float64 values that are sent once an iteration, as `execution.owners` deals them out.

    Attributes
    ----------
    dealt : statistics that are reduce-scattered over the data axis; gathered : what owners send back
    summed, bounds : statistics that every data shard needs, added up, or by minimum and maximum
    pooled : statistics that members estimate together from
    copied : what model shards that hold the same copy from the first of them; common : of that, what all of them
        hold whatever units are theirs
    """

    dealt: float = 0.0
    gathered: float = 0.0
    summed: float = 0.0
    bounds: float = 0.0
    pooled: float = 0.0
    copied: float = 0.0
    common: float = 0.0

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.dealt + other.dealt, self.gathered + other.gathered, self.summed + other.summed,
                    self.bounds + other.bounds, self.pooled + other.pooled, self.copied + other.copied,
                    self.common + other.common)  # fmt: skip

    def __mul__(self, copies: float) -> Sent:
        return Sent(self.dealt * copies, self.gathered * copies, self.summed * copies, self.bounds * copies,
                    self.pooled * copies, self.copied * copies, self.common * copies)  # fmt: skip

    def everywhere(self) -> Sent:
        """The same where every data shard maximises everything."""
        return Sent(0.0, 0.0, self.dealt + self.summed, self.bounds, self.pooled, self.copied, self.common)


SILENCE = Sent()


class Share(NamedTuple):
    """The members of a bank that are maximised: FLOPs of each, whether they are leaves (1 or 0), and whether data
    shards share them. `place` tells one bank from another below a node: roles, of components their profile."""

    members: float
    flops: float
    leaves: float
    dealt: bool
    place: tuple[Hashable, ...] = ()

    def of(self, owners: int) -> float:
        """Members of the busiest of the data shards."""
        return -(-self.members // owners) if self.dealt else self.members



@dataclass(frozen=True)
class Load:
    """What a part of a model costs.

    Attributes
    ----------
    flops : E-step FLOPs of an observation that grow with the number of copies
    row_flops : E-step FLOPs of an observation that copies evaluated together share
    banks : everything that is maximised
    held, sent : values of each copy; shared, together : values that the copies of one innermost mixture share
    keyed : values of each key, held once whatever the number of copies
    scratch, row_scratch : float64 values of workspace for each row of a tile, by copy and shared
    """

    flops: float = 0.0
    row_flops: float = 0.0
    banks: tuple[Share, ...] = ()
    held: Held = NOTHING
    shared: Held = NOTHING
    sent: Sent = SILENCE
    together: Sent = SILENCE
    keyed: dict[str, Held] = field(default_factory=dict)
    scratch: float = 0.0
    row_scratch: float = 0.0

    def __add__(self, other: Load) -> Load:
        return Load(
            self.flops + other.flops, self.row_flops + other.row_flops, merged_banks(self.banks + other.banks),
            self.held + other.held, self.shared + other.shared, self.sent + other.sent, self.together + other.together,
            other.keyed | self.keyed, self.scratch + other.scratch, self.row_scratch + other.row_scratch,
        )  # fmt: skip

    def copies(self, count: float, together: bool = True) -> Load:
        """That of `count` copies; without `together`, what they share is left out, as counted elsewhere."""
        return Load(
            self.flops * count, self.row_flops * together,
            tuple(b._replace(members=b.members * count) for b in self.banks if b.members * count),
            self.held * count, self.shared * together, self.sent * count, self.together * together,
            self.keyed if count else {}, self.scratch * count, self.row_scratch * together,
        )  # fmt: skip

    def rows(self, rows: float) -> Load:
        """That for `rows` rows of each observation; there is room for all of them, also where some are missing."""
        room = max(rows, 1.0)
        return replace(self, flops=self.flops * rows, row_flops=self.row_flops * rows, scratch=self.scratch * room,
                       row_scratch=self.row_scratch * room)  # fmt: skip

    def below(self, place: Hashable) -> Load:
        """That of a child, as part of its parent."""
        return replace(self, banks=tuple(b._replace(place=(place, *b.place)) for b in self.banks))

    def gathered(self) -> Load:
        """That of an innermost mixture: what its components share is part of it."""
        return replace(self, held=self.held + self.shared, shared=NOTHING, sent=self.sent + self.together,
                       together=SILENCE)  # fmt: skip

    def pooled(self) -> Load:
        """That of a cut node whose statistics are partial sums on each model shard: every shard maximises it."""
        sent = replace(self.sent, dealt=0.0, gathered=0.0, summed=0.0,
                       pooled=self.sent.pooled + self.sent.dealt + self.sent.summed)  # fmt: skip
        return replace(self, banks=tuple(b._replace(dealt=False) for b in self.banks), sent=sent)

    def under(self, key: str | None) -> Load:
        """That of a node with a key: held once, and maximised by every data shard."""
        if key is None:
            return self
        banks = tuple(b._replace(dealt=False) for b in self.banks)
        keyed = {key: self.held + self.shared} | self.keyed
        return replace(self, banks=banks, held=NOTHING, shared=NOTHING, sent=self.sent.everywhere(),
                       together=self.together.everywhere(), keyed=keyed)  # fmt: skip

    @property
    def e_step(self) -> float:
        """E-step FLOPs of an observation."""
        return self.flops + self.row_flops

    @property
    def total_held(self) -> Held:
        return sum(self.keyed.values(), self.held + self.shared)

    def m_step(self, owners: int) -> float:
        """M-step FLOPs of the busiest of the data shards that share it: whole members of each bank."""
        return sum(b.of(owners) * b.flops for b in self.banks)

    def maximized(self, owners: int) -> float:
        """Parameter sets of leaves that the busiest of the data shards maximises."""
        return sum(b.of(owners) * b.leaves for b in self.banks)


def merged_banks(banks: tuple[Share, ...]) -> tuple[Share, ...]:
    """Members of one bank added up."""
    found: dict[tuple[Hashable, ...], Share] = {}
    for b in banks:
        known = found.get(b.place)
        found[b.place] = b if known is None else b._replace(members=known.members + b.members)
    return tuple(found.values())


def own_load(cost: Cost) -> Load:
    """What one member of a node costs without its children."""
    flops, dealt = cost.m_step.flops, not cost.everywhere
    read = cost.packed or cost.params
    added = cost.stats - cost.bounds
    sent = Sent(added * dealt, read * dealt, added * (not dealt), cost.bounds, 0.0, read)
    return Load(
        cost.member.flops, cost.row.flops,
        (Share(1.0, flops, float(cost.leaves), dealt),) if flops or cost.leaves else (),
        Held(cost.params, cost.stats, cost.kernel + cost.packed), Held(cost.shared_params, cost.shared_stats, 0.0),
        sent, Sent(pooled=cost.shared_stats, common=cost.shared_params), {}, cost.scratch_member, cost.scratch_row,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Run:
    """Children that follow one another and are alike: `count` from number `first` on, `role` with a `*`.

    `unit` as in `Branch`; `place` is the same for children that are one bank; `again` says that an earlier run
    has the same profile, so that what copies share is counted there.
    """

    role: str
    first: int
    count: int
    profile: Profile
    unit: bool
    rows: float
    place: Hashable = None
    again: bool = False

    def role_of(self, k: int) -> str:
        """The role of the run's child number `k`."""
        return self.role.replace("*", str(self.first + k))

    def load(self, count: int | None = None) -> Load:
        """That of all the run's children, or of `count` of them."""
        wanted = self.count if count is None else count
        return self.profile.load.copies(wanted, not self.again and wanted > 0).rows(self.rows).below(self.place)


@dataclass(frozen=True, eq=False)
class Profile:
    """A node: its own cost, its children as runs, and the `load` of the whole subtree of one member.

    `own` is what the node costs besides its units and its other children, `unit` what each unit costs it.
    """

    node: Node
    decomposition: Decomposition
    cost: Cost
    own: Load
    unit: Load
    runs: tuple[Run, ...]
    load: Load
    columns: dict[tuple[str, ...], float]
    passes: float

    @property
    def own_params(self) -> int:
        """Float64 values of the node's own parameters, those of its units among them."""
        unit = self.cost.unit
        return self.cost.params + (0 if unit is None else unit.params * self.decomposition.num_units)

    @property
    def key(self) -> str | None:
        return self.node.key

    @property
    def is_shardable(self) -> bool:
        return self.decomposition.is_shardable

    @property
    def gathers(self) -> bool:
        """Whether it is where copies share what they share."""
        return self.decomposition.axis in GATHERING

    def units(self) -> Iterator[Run]:
        """The runs on the node's axis."""
        return (r for r in self.runs if r.unit)

    def row_bytes(self) -> float:
        """Bytes of one encoded observation."""
        return sum(self.columns.values())


def profile_of(model: Node, assumed: Assumed | None = None) -> Profile:
    """The profile of a model. Raises TypeError for what is not a model."""
    decomposition_for(model)
    return _Profiler().profile(model, Assumed() if assumed is None else assumed)


def count_banks(profile: Profile) -> int:
    """Nodes that are evaluated, members that are evaluated together once."""
    return 1 + sum(count_banks(run.profile) for run in profile.runs if not run.again)


class _Profiler:
    """Makes each profile once: for the same object, and for siblings of one structure."""

    def __init__(self):
        self.made: dict[Hashable, Profile] = {}
        self.kept: list[Node] = []  # an id is only good while its object lives

    def profile(self, node: Node, assumed: Assumed) -> Profile:
        name = (id(node), assumed.place)
        if name not in self.made:
            self.kept.append(node)
            alike = (structure_of(node), assumed.place)
            if alike not in self.made:
                self.made[alike] = self._make(node, assumed)
            self.made[name] = self.made[alike]
        return self.made[name]

    def _make(self, node: Node, assumed: Assumed) -> Profile:
        runs: list[Run] = []
        for branch in node.branches(assumed):
            inside = assumed if branch.place is None else assumed.inside(*branch.place)
            child = self.profile(branch.node, inside)
            last = runs[-1] if runs else None
            number = numbered(branch.role)
            alike = last is not None and last.profile is child and (last.unit, last.rows) == (branch.unit, branch.rows)
            if last is not None and alike and number is not None and numbered(last.role) == number:
                runs[-1] = Run(last.role, last.first, last.count + branch.count, child, last.unit, last.rows)
            else:
                first = 0 if number is None or branch.role.endswith("*") else int(branch.role.removeprefix(number))
                role = branch.role if number is None else f"{number}*"
                runs.append(Run(role, first, branch.count, child, branch.unit, branch.rows))
        decomposition, cost = node.decomposition(), node.cost(assumed)
        gathers = decomposition.axis in GATHERING
        runs = _placed(runs, gathers)
        own, unit = own_load(cost), Load() if cost.unit is None else own_load(cost.unit)
        load = own + unit.copies(decomposition.num_units)
        columns, passes = dict(cost.columns), cost.passes
        for run in runs:
            load = load + run.load()
            passes = max(passes, run.profile.passes)
            for slot, size in run.profile.columns.items():
                # components read the same columns, factors each their own
                slot = slot if gathers or decomposition.axis is not DecompAxis.FACTOR else (run.role, *slot)
                columns[slot] = max(columns.get(slot, 0.0), size * run.rows)
        load = load.gathered() if gathers else load
        return Profile(node, decomposition, cost, own, unit, tuple(runs), load.under(node.key), columns, passes)


def _placed(runs: list[Run], gathers: bool) -> list[Run]:
    """The runs with their places: units that are gathered are one bank when they are of one profile."""
    seen: set[int] = set()
    placed = []
    for run in runs:
        place = id(run.profile) if gathers and run.unit else run.role
        again = gathers and id(run.profile) in seen
        placed.append(Run(run.role, run.first, run.count, run.profile, run.unit, run.rows, place, again))
        seen.add(id(run.profile))
    return placed


def numbered(role: str) -> str | None:
    """What precedes the number, or the star, of a role such as `component_3`; None for factors, fields and names."""
    stem = role.rstrip("0123456789*")
    return stem if stem in ("component_", "state_", "topic_") else None


def structure_of(node: Node) -> Hashable:
    """Equal for nodes that are planned alike: their signature, and where records say their columns."""
    columns = tuple(tuple(n.field_columns.items()) for n in node.walk() if isinstance(n, Record) and n.field_columns)
    return (type(node), node.signature(), columns)
