"""What one model shard of a nested cut holds, counted exactly: bank by bank, as the executor compiles them.

The search for a plan adds up what units cost; what they share with others of their kind, in nodes of which a shard
holds only a part, is counted here.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from mixle_mpi.contract.cuts import RangedCuts
from mixle_mpi.planning.cuts import Cut, Step, repeated_keys
from mixle_mpi.planning.profile import NOTHING, SILENCE, Held, Profile, Run, Sent, Share, own_load
from mixle_mpi.planning.shards import RangeCost


@dataclass(frozen=True)
class Whole:
    """A member that a shard holds whole."""


@dataclass(frozen=True)
class Way:
    """A member that is whole but for what lies behind a step."""

    step: Step
    behind: Holding


@dataclass(frozen=True)
class Range:
    """A member that is cut: number `node` of the cut's nodes."""

    node: int


Holding = Whole | Way | Range
WHOLE = Whole()


@dataclass(eq=False)
class Bank:
    """Members and units of one bank that a shard holds.

    They have `rows` rows for each observation, and `room` for so many; `cut` members are cut, and `pooled` says that
    the bank's own statistics are partial sums.
    """

    profile: Profile
    rows: float
    room: float
    members: float = 0.0
    units: float = 0.0
    cut: float = 0.0
    keyed: str | None = None
    pooled: bool = False


class Account:
    """The banks of one shard.

    Parameters
    ----------
    bounds : borders of the units of all model shards, of which this is number `shard`
    places : those of the banks whose members are cut, `cut_places`
    once : keys that more than one node has
    """

    def __init__(self, cut: Cut, bounds: tuple[int, ...], shard: int, places: set, once: set[str]):
        self.cut, self.start, self.stop = cut, bounds[shard], bounds[shard + 1]
        self.cuts = RangedCuts(len(bounds) - 1, shard, bounds)
        self.places, self.once = places, once
        self.banks: dict[tuple[Hashable, ...], Bank] = {}
        self._visit(cut.model, (), (1.0, 1.0), [(1.0, behind(cut, 0))], None)

    def _visit(self, profile: Profile, place: tuple, rows: tuple[float, float],
               members: list[tuple[float, Holding]], key: str | None) -> None:  # fmt: skip
        """Add so many members of each kind to the bank at a place, and what they hold to those below."""
        key = key if key is not None else profile.key
        bank = self.banks.setdefault(place, Bank(profile, *rows, keyed=key, pooled=self._is_pooled(profile, place)))
        ranges = [(count, h.node) for count, h in members if isinstance(h, Range)]
        bank.members += sum(count for count, _ in members)
        bank.units += profile.decomposition.num_units * sum(c for c, h in members if not isinstance(h, Range))
        for count, number in ranges:
            low, high = self.held(number)
            bank.units += count * (high - low)
            bank.cut += count
        at = 0
        for run in profile.runs:
            below = list(self._below(run, at, members))
            at += run.count if run.unit else 0
            if any(count for count, _ in below):
                here = rows[0] * run.rows, rows[1] * max(run.rows, 1.0)
                self._visit(run.profile, (*place, run.place), here, below, key)

    def _is_pooled(self, profile: Profile, place: tuple) -> bool:
        """Whether the statistics of a bank are partial sums, as some of its members are cut here or elsewhere."""
        return profile.cost.pooled and place in self.places

    def _below(self, run: Run, first: int, members: list[tuple[float, Holding]]) -> Iterator[tuple[float, Holding]]:
        """The children of members along a run, whose units begin with number `first`."""
        whole = 0.0
        for count, holding in members:
            if isinstance(holding, Way) and holding.step.run is run:
                some = run.count if holding.step.number is None else 1
                whole += count * (run.count - some)
                yield count * some, holding.behind
            elif isinstance(holding, Range) and run.unit:
                low, high = self.held(holding.node)
                borders, inside = self.cut.nodes[holding.node].borders, self.cut.divided[holding.node].inside
                for unit in range(max(low, first), min(high, first + run.count)):
                    if unit in inside and not self.start <= borders[unit] < borders[unit + 1] <= self.stop:
                        yield count, behind(self.cut, inside[unit])
                    else:
                        whole += count
            else:
                whole += count * run.count
        yield whole, WHOLE

    def held(self, node: int) -> tuple[int, int]:
        """The units of a cut node that the shard holds."""
        low, _, high = self.cuts.units_of(self.cuts.groups.shard, self.cut.nodes[node].borders)
        return low, high

    def cost(self, owners: int, everyone: tuple[Held, Sent]) -> RangeCost:
        """What the shard costs in a pass, its M-step shared by so many data shards; `everyone` has what is `shared`."""
        (held, sent), keyed = everyone, dict[str, Held]()
        flops = m_step = maximized = scratch = 0.0
        for bank in self.banks.values():
            cost, node, unit = bank.profile.cost, bank.profile.own, bank.profile.unit
            own, units = node.copies(bank.members), unit.copies(bank.units)
            flops += bank.rows * (own.e_step + units.e_step + cost.cut.flops * bank.cut)
            scratch += bank.room * (own.scratch + own.row_scratch + units.scratch + units.row_scratch)
            if bank.keyed in self.once and bank.members:
                keyed = bank.profile.load.keyed | keyed
            for load in (own.pooled() if bank.pooled else own, units):
                held = held if bank.keyed in self.once else held + load.held
                load, sent = load.under(bank.keyed), sent + load.under(bank.keyed).sent
                shares: tuple[Share, ...] = load.banks
                m_step += sum(share.of(owners) * share.flops for share in shares)
                maximized += sum(share.of(owners) * share.leaves for share in shares)
        return RangeCost(sum(keyed.values(), held), sent, 0.0, flops, m_step, maximized, scratch)


def accounts(cut: Cut, bounds: tuple[int, ...], owners: int) -> list[RangeCost]:
    """What each model shard costs in a pass, with the M-step shared by so many data shards."""
    places, once, everyone = cut_places(cut), repeated_keys(cut.model), shared(cut.model)
    return [Account(cut, bounds, k, places, once).cost(owners, everyone) for k in range(len(bounds) - 1)]


def behind(cut: Cut, node: int) -> Holding:
    """What a member holds from which steps lead to a cut node: from the root, or from the unit that it is inside."""
    holding: Holding = Range(node)
    for step in reversed(cut.divided[node].way):
        holding = Way(step, holding)
    return holding


def cut_places(cut: Cut) -> set[tuple[Hashable, ...]]:
    """The places of the banks whose members are cut, as `Account` names them."""
    places: list[tuple[Hashable, ...]] = [()] * len(cut.divided)

    def visit(number: int, start: tuple[Hashable, ...]) -> None:
        node = cut.divided[number]
        places[number] = (*start, *(step.run.place for step in node.way))
        owners = [run.place for run in node.profile.units() for _ in range(run.count)] if node.inside else []
        for unit, below in node.inside.items():
            visit(below, (*places[number], owners[unit]))

    visit(0, ())
    return set(places)


def shared(model: Profile) -> tuple[Held, Sent]:
    """What members of innermost mixtures share, which every model shard has of all of them."""
    def visit(profile: Profile) -> tuple[tuple[Held, Sent], tuple[Held, Sent]]:
        """Of a member: what it shares with others of a mixture around it, and what is shared inside it."""
        load = own_load(profile.cost)
        (held, sent), (inner_held, inner_sent) = (load.shared, load.together), (NOTHING, SILENCE)
        for run in profile.runs:
            outside, within = visit(run.profile)
            times = run.count * (not profile.gathers) or int(not run.again)
            held, sent = held + outside[0] * times, sent + outside[1] * times
            inner_held, inner_sent = inner_held + within[0] * run.count, inner_sent + within[1] * run.count
        if profile.gathers:
            return (NOTHING, SILENCE), (held + inner_held, sent + inner_sent)
        return (held, sent), (inner_held, inner_sent)

    outside, within = visit(model)
    return outside[0] + within[0], outside[1] + within[1]
