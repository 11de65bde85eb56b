"""Mixtures of one family or of several, of leaves or of whole trees."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.decomposition import DecompAxis, Decomposition, Partial, ReductionOp
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Matrix
from mixle_mpi.contract.node import Branch, Node, checked_key
from mixle_mpi.contract.tile import Tile
from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.families.logs import safe_log
from mixle_mpi.kernels import normalise
from mixle_mpi.models.units import ManyUnits, Units


class Mixture(ManyUnits):
    """Mixture: log p(x) = log sum_k weights[k] p_k(x).

    Parameters
    ----------
    component : Node, or list of Node
        One model of which there are `components` copies with parameters of their own, or the list of
        components, of one family or of several.
    components : int, optional
    weights : (components,), optional
    fixed : bool
        Keep the weights as they are.
    """

    word, counted = "component", "components"

    def __init__(self, component, components: int | None = None, *, weights=None, key: str | None = None,
                 fixed: bool = False):  # fmt: skip
        self.take_units(component, components)
        self.weights = None if weights is None else self._checked(weights)
        self.key = checked_key("mixture", key)
        self.fixed = bool(fixed)
        if self.fixed and weights is None:
            raise ModelError("mixture: fixed=True needs weights")

    def _checked(self, weights) -> np.ndarray:
        try:
            w = np.array(weights, dtype=float)
        except (TypeError, ValueError):
            raise ModelError(f"mixture: weights = {weights!r} are not numbers") from None
        if w.shape != (self.num_components,):
            raise ModelError(f"mixture: weights of shape {w.shape} for {self.num_components} components")
        if not (np.isfinite(w).all() and (w >= 0).all() and abs(w.sum() - 1) < 1e-8):
            raise ModelError(f"mixture: weights = {w.tolist()} are not probabilities that add up to 1")
        return w

    @property
    def components(self) -> Sequence[Node]:
        """The components in order; those of a fitted model are made when they are looked at."""
        return self.units

    @property
    def num_components(self) -> int:
        return self.num_units

    def decomposition(self):
        return Decomposition(
            DecompAxis.COMPONENT, self.num_components, ReductionOp.LOGSUMEXP, child_roles=("component_*",)
        )

    def roles(self):
        return self.unit_roles()

    def branches(self, assumed):
        if self.template is not None:
            yield Branch("component_*", self.template, self.num_components, unit=True)
        else:
            yield from (Branch(role, child, unit=True) for role, child in self.roles())

    def cost(self, assumed):
        # for a component `raise_maximum` and `weigh_exponentials` take 2 flops each, `add_exponentials` an
        # exponential; for a row NumPy's logarithm, a division and copies take 6 ns. The division for each component
        # in the M-step is not counted. A cut mixture sends a maximum and a sum
        unit = Cost(Work(exp=1.0, flop=4.0), params=1, stats=1, kernel=2)
        # a cut one rescales by an exponential, and copies
        return Cost(Work(flop=72.0), stats=1, everywhere=True, scratch_member=5.0, unit=unit, payload=2.0,
                    cut=Work(exp=1.0, flop=8.0))  # fmt: skip

    def replace(self, change):
        return self.with_units(change)

    @property
    def width(self):
        widths = {c.width for _, c in self.roles()} - {None}
        if len(widths) > 1:
            raise ModelError(f"mixture: its components read different numbers of columns: {sorted(widths)}")
        return widths.pop() if widths else None

    def place(self, scope):
        return self.replace(lambda child: child.place(scope))

    def options(self):
        return super().options() | ({"fixed": True} if self.fixed else {})

    def signature(self):
        return (type(self), self.num_components, self.key, self.fixed, self.unit_signatures())

    def compile(self, nodes, path, members, total, holders, cuts):
        units = self.compile_units(nodes, path, members, total, holders, cuts)
        return MixtureBank(nodes, path, members, total, holders, units)


class LazyComponents(Sequence):
    """The components of a fitted mixture, restored from the flat buffer when they are looked at."""

    def __init__(self, bank: MixtureBank, member: int, theta):
        self._bank, self._member, self._theta = bank, member, theta
        self._made: dict[int, Node] = {}

    def __len__(self):
        return self._bank.node.num_components

    def __getitem__(self, k):
        if isinstance(k, slice):
            return tuple(self[i] for i in range(*k.indices(len(self))))
        if not -len(self) <= k < len(self):
            raise IndexError(f"component {k} of {len(self)}")
        k %= len(self)
        if k not in self._made:
            self._made[k] = self._bank.restore_component(self._member, k, self._theta)
        return self._made[k]


class MixtureBank(Bank):
    """Mixtures of all members, each holding some of its components here.

    Units (components of members) are rows of one matrix, member by member in the user's order. Group g
    is a bank whose rows are the units `unit_rows[g]`; those of member i are offsets[g][i] to
    offsets[g][i + 1]. `cut` are the members whose components other shards hold as well.
    """

    node: Mixture

    def __init__(self, nodes, path, members, total, holders, units: Units):
        super().__init__(nodes, path, members, total, holders)
        self.banks, self.unit_rows, self.offsets, self.cut = units.banks, units.rows, units.offsets, units.held.cut
        self.unit_member, self.unit_number = units.member, units.number
        self.units = self.members[self.unit_member] * self.node.num_components + self.unit_number
        self.unit_holders = units.held.holders(self.unit_member, self.unit_number)
        counted = units.held.counted(self.unit_member, self.unit_number)
        # of each group, where the units of each member begin that count for its density
        self.starts = [offsets[:-1] + np.array([np.count_nonzero(~counted[rows[a:b]]) for a, b in pairwise(offsets)],
                                               np.int64)
                       for rows, offsets in zip(self.unit_rows, self.offsets)]  # fmt: skip

    def children(self):
        return tuple(self.banks)

    def matrices(self):
        one = (Combine.SUM, ())
        return [
            Matrix(f"{self.path}#components", self.units, self.total_members * self.node.num_components,
                   self.unit_holders, {"weight": ()}, {"count": one}),
            Matrix(f"{self.path}#total", self.members, self.total_members, self.holders, {}, {"weight": one},
                   everywhere=True),
        ]  # fmt: skip

    def prepare(self, theta, packed):
        log_weights = safe_log(theta[f"{self.path}#components"]["weight"])
        self.log_weights = [np.ascontiguousarray(log_weights[rows]) for rows in self.unit_rows]
        for bank in self.banks:
            bank.prepare(theta, packed)

    def begin(self, stats):
        self._stats = stats
        self.counts = [np.zeros(len(rows)) for rows in self.unit_rows]
        self.total_weight = np.zeros(self.size)
        for bank in self.banks:
            bank.begin(stats)

    def score(self, tile: Tile):
        top = tile.array(self, "top", self.size, tile.n)
        total = tile.array(self, "total", self.size, tile.n)
        top[:] = -np.inf
        total[:] = 0.0
        scores = []
        for bank, log_weights, offsets in zip(self.banks, self.log_weights, self.offsets):
            part = (yield from bank.score(tile)) if bank.size else np.empty((0, tile.n))
            normalise.raise_maximum(part, log_weights, offsets, top)
            scores.append(part)
        for part, log_weights, offsets, starts in zip(scores, self.log_weights, self.offsets, self.starts):
            normalise.add_exponentials(part, log_weights, offsets, starts, top, total)
        # responsibilities are exp(score - own top) * scale; scale is 1 / total when nothing is cut
        scale = tile.array(self, "scale", self.size, tile.n)
        scale[:] = 1.0
        for group in self.cut:
            own_top, cut = top[group.members], group.members
            pair = np.stack([own_top, total[cut]])
            top[cut], total[cut] = yield Partial(ReductionOp.LOGSUMEXP, pair, group=group.number)
            normalise.rescale(own_top, top[cut], own_top)
            scale[cut] = own_top
        normalise.divide_by_total(scale, total, top)
        out = np.log(total, out=tile.array(self, "scores", self.size, tile.n))
        out += top
        tile.saved[id(self)] = scores
        return out

    def responsibilities(self, tile: Tile, weights) -> list[np.ndarray]:
        """Posterior weights (units of the group, n) for each group; counts are added up."""
        labels = tile.labels.get(id(self))
        result = []
        for g, (rows, offsets) in enumerate(zip(self.unit_rows, self.offsets)):
            if labels is not None:
                resp = tile.array(self, f"resp_{g}", len(rows), tile.n)
                normalise.place_labels(labels, self.unit_number[rows], offsets, weights, resp, self.counts[g])
            else:
                resp = tile.saved[id(self)][g]
                factor = tile.array(self, "factor", self.size, tile.n)
                np.multiply(weights, tile.array(self, "scale", self.size, tile.n), out=factor)
                normalise.weigh_exponentials(resp, offsets, factor, self.counts[g])
            result.append(resp)
        return result

    def accumulate(self, tile: Tile, weights):
        self.total_weight += weights.sum(axis=1)
        if id(self) in tile.captured:
            scale = tile.array(self, "scale", self.size, tile.n)[self.unit_member]
            own = [part * scale[rows] for part, rows in zip(tile.saved[id(self)], self.unit_rows)]
            tile.captured[id(self)] = np.arange(tile.n) if tile.index is None else tile.index, own
        resp = self.responsibilities(tile, weights)
        for bank, part in zip(self.banks, resp):
            if bank.size:
                yield from bank.accumulate(tile, part)

    def finish(self):
        count = self._stats[f"{self.path}#components"]["count"]
        for rows, counts in zip(self.unit_rows, self.counts):
            count[rows] += counts
        self._stats[f"{self.path}#total"]["weight"] += self.total_weight
        for bank in self.banks:
            bank.finish()

    def _counts(self, stats, rows) -> tuple[np.ndarray, np.ndarray]:
        """Posterior weight of some units, and of the members that they belong to."""
        total = stats[f"{self.path}#total"]["weight"][self.unit_member[rows]]
        return stats[f"{self.path}#components"]["count"][rows], total

    def maximize(self, theta, stats, new, own):
        rows = own[f"{self.path}#components"]
        old = theta[f"{self.path}#components"]["weight"][rows]
        count, total = self._counts(stats, rows)
        move = (total > 0) & (not self.node.fixed)
        new[f"{self.path}#components"]["weight"][rows] = np.where(move, count / np.where(total > 0, total, 1.0), old)

    def start(self, new, stats, own):
        rows, even = own[f"{self.path}#components"], 1.0 / self.node.num_components
        count, total = self._counts(stats, rows)
        # a component that no row starts in keeps a small weight, or it could never get one
        share = np.where(total > 0, count / np.where(total > 0, total, 1.0), even)
        new[f"{self.path}#components"]["weight"][rows] = 0.99 * share + 0.01 * even

    def given(self, theta):
        nodes = self.nodes
        weight = theta[f"{self.path}#components"]["weight"]
        if all(n is nodes[0] for n in nodes):
            if nodes[0].weights is not None:
                weight[...] = nodes[0].weights[self.unit_number]
            return
        for row, unit in enumerate(self.units):
            own = nodes[unit // self.node.num_components].weights
            if own is not None:
                weight[row] = own[unit % self.node.num_components]

    def restore(self, member, theta):
        changed = copy.copy(self.node)
        weights = theta[f"{self.path}#components"]["weight"][self.unit_member == member]
        changed.weights = np.array(weights)
        changed._units = LazyComponents(self, member, theta)
        changed.template = self.node.template
        return changed

    def restore_component(self, member: int, k: int, theta) -> Node:
        """The node of component k of one member; the whole mixture must be held here."""
        unit = int(np.flatnonzero((self.unit_member == member) & (self.unit_number == k))[0])
        for bank, rows in zip(self.banks, self.unit_rows):
            at = np.flatnonzero(rows == unit)
            if len(at):
                return bank.restore(int(at[0]), theta)
        raise IndexError(f"component {k} is not held here")

    def num_free(self, copies=1):
        return 0 if self.node.fixed else self.total_members // copies * (self.node.num_components - 1)

    def tile_width(self):
        return 5 * self.size
