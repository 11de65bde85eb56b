"""The bank of a leaf: natural, table or own, for every family."""

from __future__ import annotations

import contextlib

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.errors import ModelError, NumericalError
from mixle_mpi.contract.family import Family, ResidualFamily, Search, Theta
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
        # the members of one innermost mixture share a row of the shared fields, which every shard holds
        self.groups = self.members // path.innermost
        self._total_groups = total_members // path.innermost
        self.mask = ("mask", node.columns) if node.encoding.missing and node.kind != "table" else None
        self.has_base = node.base_key in node.encoding.bases
        self.residual_members = np.empty(0, np.int64)
        self.natural_error = NATURAL_ERROR
        self.natural_possible = node.kind == "natural"
        if isinstance(node, ResidualFamily) and len(members):
            extent = np.maximum(np.abs(node.encoding.low), np.abs(node.encoding.high))
            self.natural_possible = not (extent > HUGE).any()
        self.num_features = node.num_features if self.natural_possible else 0
        self.block: NaturalBlock | None = None
        self._search: Search | None = None

    @property
    def is_term(self) -> bool:
        """Whether siblings can be evaluated with it in one product."""
        return self.node.kind == "natural"

    @property
    def _shared_name(self) -> str:
        return f"{self.path}#shared"

    @property
    def _names(self) -> list[str]:
        return [m.name for m in self.matrices()]

    def matrices(self) -> list[Matrix]:
        node, own = self.node, None
        own = Matrix(self.path, self.members, self.total_members, self.exclusive,
                     node.param_shapes(False), node.stat_shapes(False))  # fmt: skip
        if not (node.param_shapes(True) or node.stat_shapes(True)):
            return [own]
        return [own, Matrix(self._shared_name, np.arange(self._total_groups), self._total_groups,
                            np.zeros(self._total_groups, bool), node.param_shapes(True), node.stat_shapes(True),
                            pooled=True)]  # fmt: skip

    def _fields(self, views: Views) -> Theta:
        """One array (members, *shape) for each field; of shared fields copies, one for each member."""
        shared = views.get(self._shared_name, {})
        return views[self.path] | {name: view[self.groups] for name, view in shared.items()}

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
            bound = min(self.natural_error, NATURAL_SHARE * self.node.encoding.observed**0.5)
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
            table.look_up(self._prepared, tile.known(self.node.slot_key), out)
        else:
            self.node.score(self._prepared, tile.known(self.node.slot_key), out)
            self._hide_missing(tile, out)
        return out
        yield  # a generator that never yields: a leaf has nothing to reduce

    def _hide_missing(self, tile: Tile, out: np.ndarray) -> None:
        if self.mask is not None:
            out[:, ~tile.known(self.mask)] = 0.0

    def accumulate(self, tile: Tile, weights: np.ndarray):
        if self.node.kind == "natural":
            self._alone().accumulate(tile, weights)
        elif self.node.kind == "table":
            table.scatter(weights, tile.known(self.node.slot_key), self._counts)
        else:
            if self.mask is not None:
                weights = weights * tile.known(self.mask)
            x = tile.known(self.node.slot_key)
            if self._search is None:
                self.node.accumulate(self._prepared, x, weights, self._stats)
            else:
                self._search.accumulate(x, weights)
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
            self.node.features(tile.known(self.node.slot_key), present, out)

    def fill_base(self, tile: Tile, out: np.ndarray) -> None:
        out[:] = tile.column(self.node.base_key)

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        return self._eta, self._constant

    def collect(self, weight: np.ndarray, sums: np.ndarray) -> None:
        names = [name for name in self.node.stat_shapes(False) if name != "weight"]
        if len(self.residual_members):
            natural = np.ones(self.size, bool)
            natural[self.residual_members] = False
            weight = np.where(natural, weight, self._moments[0])
            _, first, second = self._moments
            moments = np.concatenate([first, self.node.second_moments(second)], axis=1)
            sums = np.where(natural[:, None], sums, moments) if self.natural_possible else moments
        self._stats["weight"] += weight
        flat_columns(self._stats, sums, names)

    def _numbers(self, tile: Tile) -> np.ndarray:
        x = tile.array(self, "numbers", len(self.node.columns), tile.n)
        x[:] = tile.known(self.node.slot_key)
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

    def begin_search(self, theta: Views, stats: Views) -> Search | None:
        if self.node.searches and not self.node.fixed:
            self._search = self.node.search(self._fields(theta), stats[self.path])
        return self._search

    def end_search(self) -> None:
        self._search = None

    def maximize(self, theta: Views, stats: Views, new: Views) -> None:
        for name in self._names:
            for field, value in theta[name].items():
                new[name][field][...] = value
        if self.node.fixed:
            return
        self._maximize_shared(stats, new)
        old, values = self._fields(theta), self._fields(stats)
        alive = self._alive(values)
        if len(alive):
            about = self._about[alive] if isinstance(self.node, ResidualFamily) else None
            self._write(new, alive, self._maximized(old, values, alive, about, self.node.maximize))

    def _maximize_shared(self, stats: Views, new: Views) -> None:
        """Every shard maximises the shared rows, also those of groups of which it holds no member."""
        shared = stats.get(self._shared_name, {})
        alive = np.flatnonzero(shared["pooled_weight"] > 0) if shared else np.empty(0, np.int64)
        if len(alive):
            try:
                found = self.node.maximize_shared({name: values[alive] for name, values in shared.items()})
            except NumericalError as error:
                raise NumericalError(f"{self.path} (members together): {error.args[0]}") from None
            for name, value in found.items():
                new[self._shared_name][name][alive] = value

    def _alive(self, stats: Theta) -> np.ndarray:
        return np.flatnonzero(self.node.weight(stats) > 0)

    def _maximized(self, theta: Theta, stats: Theta, members: np.ndarray, about, how) -> Theta:
        def take(fields):
            return {name: values[members] for name, values in fields.items()}

        try:
            return how(take(theta), take(stats), about)
        except NumericalError as error:
            number = members[error.args[1]] if len(error.args) > 1 else None
            where = self.path if number is None else f"{self.path} (member {self.members[number]})"
            raise NumericalError(f"{where}: {error.args[0]}") from None

    def _write(self, views: Views, members: np.ndarray, values: Theta) -> None:
        """Write values (members, *shape) of some members, without those of shared fields."""
        for name, value in values.items():
            if not self.node.params[name].shared:
                views[self.path][name][members] = value

    def start(self, new: Views, stats: Views) -> None:
        values = self._fields(stats)
        for name, value in self.node.default().items():
            shared = self.node.params[name].shared
            new[self._shared_name if shared else self.path][name][...] = value
        alive = self._alive(values)
        if len(alive):
            self._start(new, values, alive)
        with contextlib.suppress(NumericalError):
            self._maximize_shared(stats, new)
        self._write(new, np.arange(self.size), self.node.soften(self._fields(new)))
        if self._shared_name in new:
            for name, value in self.node.soften(new[self._shared_name]).items():
                new[self._shared_name][name][...] = value

    def _start(self, new: Views, stats: Theta, members: np.ndarray) -> None:
        """Start members where their rows put them; one whose rows have no maximum keeps the default."""
        about = np.zeros((len(members), len(self.node.columns))) if isinstance(self.node, ResidualFamily) else None
        try:
            self._write(new, members, self._maximized(self._fields(new), stats, members, about, self.node.start))
        except NumericalError:
            if len(members) > 1:
                for member in members:
                    self._start(new, stats, np.array([member]))

    def pool(self, stats: Views, first: bool) -> None:
        shared = stats.get(self._shared_name, {})
        if shared:
            counted = np.flatnonzero(self.exclusive | first)
            for name, value in self.node.pooled(stats[self.path]).items():
                np.add.at(shared[name], self.groups[counted], value[counted])

    def given(self, theta: Views) -> None:
        nodes = self.nodes
        same = all(n is nodes[0] for n in nodes)
        if self._shared_name in theta:
            self._given_shared(nodes[:1] if same else nodes, theta[self._shared_name])
        for local, member in enumerate(self.members[:1] if same else self.members):
            for name, value in nodes[member].encode_values(nodes[member].values).items():
                if value is not None:
                    at = np.arange(self.size) if same else np.array([local])
                    self._write(theta, at, {name: np.broadcast_to(value, (len(at), *np.shape(value)))})

    def _given_shared(self, nodes: list, theta: Theta) -> None:
        """The shared parameters, given to any member of a group: known to the shards that hold none of them too."""
        innermost = self.total_members // self._total_groups if len(nodes) > 1 else 1
        for member, node in enumerate(nodes):
            group = slice(None) if len(nodes) == 1 else member // innermost
            for name in self.node.param_shapes(True):
                value = node.encode_values(node.values)[name]
                if value is None:
                    continue
                row = theta[name][group]
                if not (np.isnan(row) | (row == value)).all():
                    raise ModelError(f"{self.path}: components that share one {name} were given different ones")
                row[...] = value

    def log_prior(self, theta: Views, first: bool) -> float:
        counted = self.exclusive | first
        return float(np.sum(np.where(counted, self.node.log_prior(self._fields(theta)), 0.0)))

    def restore(self, member: int, theta: Views) -> Family:
        values = self._fields(theta)
        return self.node.with_values(
            {name: value[member] for name, value in values.items()}
        )

    def num_free(self, copies: int = 1) -> int:
        own, shared = self.node.num_free()
        return own * (self.total_members // copies) + shared * max(self._total_groups // copies, 1)

    def tile_width(self) -> int:
        return self.block.tile_width() if self.block is not None else self.size if self.node.kind != "natural" else 0
