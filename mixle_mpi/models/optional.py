"""Columns that may be missing."""

from __future__ import annotations

import copy

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Matrix
from mixle_mpi.contract.node import Branch, Node, checked_key
from mixle_mpi.contract.tile import Tile
from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.families.leaf import LeafBank
from mixle_mpi.families.logs import safe_log
from mixle_mpi.families.natural import NaturalBlock, Term
from mixle_mpi.models.sequence import Steps


class Optional(Node):
    """A model of rows that may be missing: a missing row adds nothing (ignorable missingness).

    With `p_missing` a missing row adds log(p_missing), a present one log(1 - p_missing) and the log
    density of `of`, so that being missing informs.

    Parameters
    ----------
    of : Node
    p_missing : float, optional
    estimate_missing : bool
        Estimate `p_missing`, from the share of missing rows or from the value given.
    """

    def __init__(self, of: Node, p_missing: float | None = None, *, estimate_missing: bool = False,
                 key: str | None = None):  # fmt: skip
        if not isinstance(of, Node):
            raise ModelError(f"optional: {of!r} is not a model")
        if p_missing is not None and not (isinstance(p_missing, (int, float)) and 0 <= p_missing <= 1):
            raise ModelError(f"optional: p_missing = {p_missing!r} is not a number in [0, 1]")
        self.key = checked_key("optional", key)
        self.of = of
        self.p_missing = None if p_missing is None else float(p_missing)
        self.estimate_missing = bool(estimate_missing)

    def roles(self):
        yield "of", self.of

    def replace(self, change):
        changed = copy.copy(self)
        changed.of = change(self.of)
        return changed

    def branches(self, assumed):
        yield Branch("of", self.of, rows=assumed.value("observed", quietly=True))

    def planned_terms(self, assumed) -> tuple[int, bool]:
        """Terms of a product that are there in every row, and whether more has to be evaluated by itself."""
        leaf = self.of if isinstance(self.of, Family) and self.of.planned_term(assumed) else None
        masked = leaf is None or leaf.encoding is None or leaf.encoding.missing
        return int(self.has_indicator) + int(not masked), leaf is None

    def cost(self, assumed):
        indicator = int(self.has_indicator)  # two features in the product, and two statistics
        always, rest = self.planned_terms(assumed)
        return Cost(Work(gemm=8.0 * indicator), params=indicator, stats=2 * indicator, kernel=4 * indicator,
                    scratch_member=float(rest), scratch_row=3.0 * indicator - max(always - 1, 0),
                    columns={("mask",): 1.0})  # fmt: skip

    @property
    def width(self):
        return self.of.width

    @property
    def has_indicator(self) -> bool:
        """Whether being missing has a probability."""
        return self.estimate_missing or self.p_missing is not None

    def place(self, scope):
        return self.replace(lambda child: child.place(scope))

    def options(self):
        return super().options() | ({"estimate_missing": True} if self.estimate_missing else {})

    def signature(self):
        return (type(self), self.key, self.has_indicator, self.estimate_missing, self.of.signature())

    def first_leaf(self) -> Family | None:
        """The first leaf below: all leaves below are missing in the same rows. None for sequences, which never are."""
        first = next(n for n in self.of.walk() if isinstance(n, (Family, Steps)))
        return first if isinstance(first, Family) else None

    def compile(self, nodes, path, members, total, holders, cuts):
        same = all(n is nodes[0] for n in nodes)
        below = [self.of] * total if same else [n.of for n in nodes]
        child = self.of.compile(below, path / "of", members, total, holders, cuts)
        return OptionalBank(nodes, path, members, total, holders, child)


class MissingTerm:
    """The indicator of missing rows, as a term: features (present, missing)."""

    num_features = 2
    has_base = False
    mask: tuple | None = None
    rows: np.ndarray | None = None
    counted: np.ndarray | None = None

    def __init__(self, bank: OptionalBank):
        self.bank = bank

    def fill(self, tile: Tile, present, out):
        mask = None if self.bank.mask is None else tile.column(self.bank.mask)
        out[0] = 1.0 if mask is None else mask
        np.subtract(1.0, out[0], out=out[1])

    def fill_base(self, tile, out):
        raise TypeError("an indicator has no base measure")

    def coefficients(self):
        p = self.bank.p_missing
        return np.stack([safe_log(1.0 - p), safe_log(p)], axis=1), np.zeros(len(p))

    def collect(self, weight, sums):
        self.bank.stats["observed"] += sums[:, 0]
        self.bank.stats["missing"] += sums[:, 1]

    def add_residual_scores(self, tile, present, out):
        pass

    def add_residual_moments(self, tile, present, weights):
        pass


class OptionalBank(Bank):
    """A child that is scored on the row set where it is observed.

    `terms` are the parts that a composite can evaluate with its siblings; `rest` says whether the child
    has to be evaluated by itself. A leaf leaves missing rows out by itself and needs no row set.
    """

    node: Optional

    def __init__(self, nodes, path, members, total, holders, child: Bank):
        super().__init__(nodes, path, members, total, holders)
        self.child = child
        node = self.node
        leaf = node.first_leaf()
        self.mask = ("mask", leaf.columns) if leaf is not None and leaf.encoding.missing else None
        self.terms: list[Term] = [MissingTerm(self)] if node.has_indicator else []
        self.rest = True
        if isinstance(child, LeafBank) and child.is_term:
            self.rest = False
            self.terms.append(child)
        else:
            child.stand_alone()
        self.block: NaturalBlock | None = None

    def stand_alone(self):
        if self.terms:
            self.block = NaturalBlock(self.size, self.terms)
        return self

    def children(self):
        return (self.child,)

    @property
    def _name(self) -> str:
        return f"{self.path}#missing"

    def matrices(self):
        if not self.node.has_indicator:
            return []
        one = (Combine.SUM, ())
        return [Matrix(self._name, self.members, self.total_members, self.holders,
                       {"p_missing": ()}, {"observed": one, "missing": one})]  # fmt: skip

    def prepare(self, theta, packed):
        if self.node.has_indicator:
            self.p_missing = theta[self._name]["p_missing"]
        self.child.prepare(theta, packed)
        if self.block is not None:
            self.block.prepare()

    def begin(self, stats):
        self.stats = stats.get(self._name, {})
        self.child.begin(stats)
        if self.block is not None:
            self.block.begin()

    def _row_set(self, tile: Tile) -> np.ndarray | None:
        """Observed rows of the tile, or None when the child takes the tile as it is."""
        if self.mask is None or isinstance(self.child, LeafBank):
            return None
        return np.flatnonzero(tile.known(self.mask))

    def score(self, tile: Tile):
        if self.block is not None:
            out = self.block.score(tile)
        else:
            out = tile.array(self, "scores", self.size, tile.n)
            out[:] = 0.0
        if self.rest:
            rows = self._row_set(tile)
            if rows is None:
                out += yield from self.child.score(tile)
            else:
                out[:, rows] += yield from self.child.score(tile.subset(self, rows))
        return out

    def accumulate(self, tile: Tile, weights):
        if self.block is not None:
            self.block.accumulate(tile, weights)
        if self.rest:
            rows = self._row_set(tile)
            if rows is None:
                yield from self.child.accumulate(tile, weights)
            else:
                observed = tile.row_set(self, rows)
                yield from self.child.accumulate(observed, np.ascontiguousarray(weights[:, rows]))

    def finish(self):
        if self.block is not None:
            self.block.finish()
        self.child.finish()

    def maximize(self, theta, stats, new, own):
        if self.node.has_indicator:
            rows = own[self._name]
            old = theta[self._name]["p_missing"][rows]
            observed, missing = (stats[self._name][name][rows] for name in ("observed", "missing"))
            total = observed + missing
            move = (total > 0) & self.node.estimate_missing
            new[self._name]["p_missing"][rows] = np.where(move, missing / np.where(move, total, 1.0), old)

    def start(self, new, stats, own):
        if self.node.has_indicator:
            rows = own[self._name]
            observed, missing = (stats[self._name][name][rows] for name in ("observed", "missing"))
            new[self._name]["p_missing"][rows] = (missing + 0.5) / (observed + missing + 1.0)

    def given(self, theta):
        nodes = self.nodes
        if self.node.has_indicator:
            for row, member in enumerate(self.members):
                if nodes[member].p_missing is not None:
                    theta[self._name]["p_missing"][row] = nodes[member].p_missing

    def restore(self, member, theta):
        changed = copy.copy(self.node)
        changed.of = self.child.restore(member, theta)
        if self.node.has_indicator:
            changed.p_missing = float(theta[self._name]["p_missing"][member])
        return changed

    def num_free(self, copies=1):
        return self.total_members // copies if self.node.estimate_missing else 0

    def tile_width(self):
        return self.block.tile_width() if self.block is not None else self.size * self.rest
