"""The bank of a leaf: natural, table or own, for every family."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.errors import NumericalError
from mixle_mpi.contract.family import Family, ResidualFamily, Theta
from mixle_mpi.contract.layout import Matrix, Views
from mixle_mpi.contract.tile import Tile
from mixle_mpi.families.natural import NaturalBlock, flat_columns
from mixle_mpi.kernels import gaussian, table

# A member uses the natural form while one rounding of its largest terms stays below this, and below
# NATURAL_SHARE * sqrt(n) for n rows: roundings add up like a random walk, and the log likelihood of a
# few rows is to be as exact, relative to their number, as that of many.
NATURAL_ERROR = 1e-11
NATURAL_SHARE = 1e-13
HUGE = 1e75  # beyond this, squares of encoded numbers are not formed


class LeafBank(Bank):
    """A leaf's parameter sets. As a term of a `NaturalBlock` it can be evaluated with its siblings."""

    node: Family

    def __init__(self, nodes, path, members, total_members, exclusive):
        super().__init__(nodes, path, members, total_members, exclusive)
        node = self.node
        if node.encoding is None:
            raise ValueError(f"{path or 'the model'} is not bound to data")
        self.rows: np.ndarray | None = None
        self.mask = ("mask", node.columns) if node.encoding.missing and node.kind != "table" else None
        self.has_base = node.base_key in node.encoding.bases
        self.residual_members = np.empty(0, np.int64)
        self.natural_possible = node.kind == "natural"
        if isinstance(node, ResidualFamily) and len(members):
            extent = np.maximum(np.abs(node.encoding.low), np.abs(node.encoding.high))
            self.natural_possible = not (extent > HUGE).any()
        self.num_features = node.num_features if self.natural_possible else 0
        self.block: NaturalBlock | None = None

    @property
    def is_term(self) -> bool:
        """Whether siblings can be evaluated with it in one product."""
        return self.node.kind == "natural"

    @property
    def _shared_name(self) -> str:
        return f"{self.path}#shared"

    def matrices(self) -> list[Matrix]:
        node, own = self.node, None
        own = Matrix(self.path, self.members, self.total_members, self.exclusive,
                     node.param_shapes(False), node.stat_shapes(False))  # fmt: skip
        if not (node.param_shapes(True) or node.stat_shapes(True)):
            return [own]
        alone = np.array([bool(self.exclusive.all() and self.size == self.total_members)])
        return [own, Matrix(self._shared_name, np.zeros(1, np.int64), 1, alone,
                            node.param_shapes(True), node.stat_shapes(True))]  # fmt: skip

    def _fields(self, views: Views) -> Theta:
        """One array (members, *shape) for each field; shared fields (1, *shape)."""
        return views[self.path] | views.get(self._shared_name, {})

    # -- evaluation --------------------------------------------------------------------------------

    def prepare(self, theta: Views) -> None:
        values = self._fields(theta)
        if self.node.kind == "natural":
            if self.natural_possible:
                self._eta, self._constant = self.node.natural(values)
            if isinstance(self.node, ResidualFamily):
                self._prepare_residual(values)
            if self.block is not None:
                self.block.prepare()
        else:
            self._prepared = self.node.prepare(values)

    def _prepare_residual(self, values: Theta) -> None:
        mean, shape, constant = self.node.residual(values)
        if self.natural_possible:
            extent = self.node.feature_extent()
            error = 2.2e-16 * (np.abs(self._eta) @ extent)
            bound = min(NATURAL_ERROR, NATURAL_SHARE * self.node.encoding.observed**0.5)
            self.residual_members = np.flatnonzero(~(error < bound))
        else:
            self._eta, self._constant = np.empty((self.size, 0)), np.zeros(self.size)
            self.residual_members = np.arange(self.size)
        self._about = np.zeros_like(mean)
        if len(self.residual_members):
            self._eta[self.residual_members] = 0.0
            self._constant = self._constant.copy()
            self._constant[self.residual_members] = 0.0
            self._about[self.residual_members] = mean[self.residual_members]
            self._residual = tuple(np.ascontiguousarray(a) for a in (mean, shape, constant))

    def begin(self, stats: Views) -> None:
        self._stats = self._fields(stats)
        if self.block is not None:
            self.block.begin()
        if len(self.residual_members):
            d = self._residual[0].shape[1]
            second = d if self._residual[1].ndim == 2 else d * (d + 1) // 2
            self._moments = np.zeros(self.size), np.zeros((self.size, d)), np.zeros((self.size, second))
        if self.node.kind == "table":
            self._counts = np.zeros((self.size, self._prepared.shape[1]))

    def _alone(self) -> NaturalBlock:
        if self.block is None:
            raise RuntimeError(f"{self.path}: a natural leaf is evaluated by the block that it belongs to")
        return self.block

    def stand_alone(self) -> LeafBank:
        """Make the leaf a block of its own, where no parent evaluates it with siblings."""
        if self.is_term:
            self.block = NaturalBlock(self.size, [self])
        return self

    def score(self, tile: Tile):
        if self.node.kind == "natural":
            return self._alone().score(tile)
        out = tile.array(self, "scores", self.size, tile.n)
        out[:] = 0.0
        if self.node.kind == "table":
            table.look_up(self._prepared, tile.column(self.node.slot_key), out)
        else:
            self.node.score(self._prepared, tile.column(self.node.slot_key), out)
            self._hide_missing(tile, out)
        return out
        yield  # a generator that never yields: a leaf has nothing to reduce

    def _hide_missing(self, tile: Tile, out: np.ndarray) -> None:
        if self.mask is not None:
            out[:, ~tile.column(self.mask)] = 0.0

    def accumulate(self, tile: Tile, weights: np.ndarray):
        if self.node.kind == "natural":
            self._alone().accumulate(tile, weights)
        elif self.node.kind == "table":
            table.scatter(weights, tile.column(self.node.slot_key), self._counts)
        else:
            if self.mask is not None:
                weights = weights * tile.column(self.mask)
            self.node.accumulate(self._prepared, tile.column(self.node.slot_key), weights, self._stats)
        return
        yield

    def finish(self) -> None:
        if self.block is not None:
            self.block.finish()
        if self.node.kind == "table":
            counts = self._counts[:, : self._stats["counts"].shape[1]]
            self._stats["counts"] += counts
            self._stats["weight"] += counts.sum(axis=1)

    # -- as a term of a block ----------------------------------------------------------------------

    def fill(self, tile: Tile, present: np.ndarray, out: np.ndarray) -> None:
        if self.natural_possible:
            self.node.features(tile.column(self.node.slot_key), present, out)

    def fill_base(self, tile: Tile, out: np.ndarray) -> None:
        out[:] = tile.column(self.node.base_key)

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        return self._eta, self._constant

    def collect(self, weight: np.ndarray, sums: np.ndarray) -> None:
        names = [n for n in self.node.stats if n != "weight"]
        if len(self.residual_members):
            natural = np.ones(self.size, bool)
            natural[self.residual_members] = False
            weight = np.where(natural, weight, self._moments[0])
            moments = np.concatenate(self._moments[1:], axis=1)
            sums = np.where(natural[:, None], sums, moments) if self.natural_possible else moments
        self._stats["weight"] += weight
        flat_columns(self._stats, sums, names)

    def _numbers(self, tile: Tile) -> np.ndarray:
        x = tile.array(self, "numbers", len(self.node.columns), tile.n)
        x[:] = tile.column(self.node.slot_key)
        return x

    def add_residual_scores(self, tile: Tile, present: np.ndarray, out: np.ndarray) -> None:
        if len(self.residual_members):
            kernel = gaussian.diagonal_scores if self._residual[1].ndim == 2 else gaussian.full_scores
            mean, shape, constant = self._residual
            self._on_rows(out, lambda a: kernel(
                self._numbers(tile), self.residual_members, mean, shape, constant, present, a))  # fmt: skip

    def add_residual_moments(self, tile: Tile, present: np.ndarray, weights: np.ndarray) -> None:
        if len(self.residual_members):
            kernel = gaussian.diagonal_moments if self._residual[1].ndim == 2 else gaussian.full_moments
            own = weights if self.rows is None else weights[self.rows]
            kernel(self._numbers(tile), self.residual_members, self._residual[0], own, present, *self._moments)

    def _on_rows(self, out: np.ndarray, add) -> None:
        """Call `add` on the members of the block that this term serves."""
        if self.rows is None:
            add(out)
        else:
            own = out[self.rows]
            add(own)
            out[self.rows] = own

    # -- estimation --------------------------------------------------------------------------------

    def maximize(self, theta: Views, stats: Views, new: Views) -> None:
        old, values, target = self._fields(theta), self._fields(stats), self._fields(new)
        for name, value in old.items():
            target[name][...] = value
        alive = self._alive(values)
        if self.node.fixed or not len(alive):
            return
        about = self._about[alive] if isinstance(self.node, ResidualFamily) else None
        self._write(target, alive, self._maximized(old, values, alive, about))

    def _alive(self, stats: Theta) -> np.ndarray:
        return np.flatnonzero(self.node.weight(stats) > 0)

    def _maximized(self, theta: Theta, stats: Theta, members: np.ndarray, about) -> Theta:
        def take(fields, declared):
            return {k: v if declared[k].shared else v[members] for k, v in fields.items()}

        try:
            return self.node.maximize(take(theta, self.node.params), take(stats, self.node.stats), about)
        except NumericalError as error:
            number = members[error.args[1]] if len(error.args) > 1 else None
            where = self.path if number is None else f"{self.path} (member {self.members[number]})"
            raise NumericalError(f"{where}: {error.args[0]}") from None

    def _write(self, target: Theta, members: np.ndarray, values: Theta) -> None:
        for name, value in values.items():
            if self.node.params[name].shared:
                target[name][...] = value
            else:
                target[name][members] = value

    def start(self, new: Views, stats: Views) -> None:
        values, target = self._fields(stats), self._fields(new)
        for name, value in self.node.default().items():
            target[name][...] = value
        alive = self._alive(values)
        if len(alive):
            about = np.zeros((len(alive), len(self.node.columns))) if isinstance(self.node, ResidualFamily) else None
            self._write(target, alive, self._maximized(target, values, alive, about))
        self._write(target, np.arange(self.size), self.node.soften(target))

    def given(self, theta: Views) -> None:
        nodes = self.nodes
        target = self._fields(theta)
        same = all(n is nodes[0] for n in nodes)
        for local, member in enumerate(self.members if not same else self.members[:1]):
            encoded = nodes[member].encode_values(nodes[member].values)
            for name, value in encoded.items():
                if value is not None:
                    if same or self.node.params[name].shared:
                        target[name][...] = value
                    else:
                        target[name][local] = value

    def log_prior(self, theta: Views, first: bool) -> float:
        counted = self.exclusive | first
        return float(np.sum(np.where(counted, self.node.log_prior(self._fields(theta)), 0.0)))

    def restore(self, member: int, theta: Views) -> Family:
        values = self._fields(theta)
        return self.node.with_values(
            {k: v[0] if self.node.params[k].shared else v[member] for k, v in values.items()}
        )

    def num_free(self) -> int:
        own, shared = self.node.num_free()
        return own * self.total_members + shared

    def tile_width(self) -> int:
        return self.block.tile_width() if self.block is not None else self.size if self.node.kind != "natural" else 0
