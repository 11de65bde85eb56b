"""The bank of a leaf: natural, table or own, for every family."""

from __future__ import annotations

import contextlib
from functools import partial

import numpy as np

from mixle_mpi.contract.bank import Bank, Packed, Rows
from mixle_mpi.contract.errors import ModelError, NumericalError
from mixle_mpi.contract.family import Family, Forms, ResidualFamily, Search, Theta
from mixle_mpi.contract.layout import Matrix, Views
from mixle_mpi.contract.numeric import NumericFamily
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

    def __init__(self, nodes, path, members, total_members, holders):
        super().__init__(nodes, path, members, total_members, holders)
        node = self.node
        if node.encoding is None:
            raise ValueError(f"{str(path) or 'the model'} is not bound to data")
        self.rows: np.ndarray | None = None
        self.counted: np.ndarray | None = None
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

    def take_other_form(self):
        residual = isinstance(self.node, ResidualFamily)
        self.natural_error = -1.0 if residual else self.natural_error  # no number is exact enough
        return residual

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
        own = Matrix(self.path, self.members, self.total_members, self.holders,
                     node.param_shapes(False), node.stat_shapes(False), node.packed_width,
                     everywhere=node.searches)  # fmt: skip
        if not (node.param_shapes(True) or node.stat_shapes(True)):
            return [own]
        return [own, Matrix(self._shared_name, np.arange(self._total_groups), self._total_groups,
                            self.holders.everyone(self._total_groups), node.param_shapes(True), node.stat_shapes(True),
                            pooled=True)]  # fmt: skip

    def _fields(self, views: Views, rows: np.ndarray | None = None) -> Theta:
        """One array (members, *shape) for each field, of all members or some; of shared fields copies for each."""
        shared = views.get(self._shared_name, {})
        groups = self.groups if rows is None else self.groups[rows]
        own = {name: view if rows is None else view[rows] for name, view in views[self.path].items()}
        return own | {name: view[groups] for name, view in shared.items()}

    # -- evaluation --------------------------------------------------------------------------------

    def derive(self, theta: Views, packed: Packed, own: Rows) -> None:
        rows = own[self.path]
        if not (self.node.packed_width and isinstance(self.node, ResidualFamily) and len(rows)):
            return
        try:
            forms = self.node.forms(self._fields(theta, rows))
        except NumericalError as error:
            raise self._placed(error, rows) from None
        lower = np.tril_indices(forms.mean.shape[1])
        residual = self._needs_residual(forms.eta)[:, None]
        natural = np.concatenate([forms.constant[:, None], forms.eta], axis=1)
        about = np.concatenate([forms.peak[:, None], forms.mean, forms.shape[:, lower[0], lower[1]]], axis=1)
        packed[self.path][rows] = np.where(residual, about, natural)

    def _needs_residual(self, eta: np.ndarray) -> np.ndarray:
        """Which members (members,) would lose digits in the natural form."""
        if not self.natural_possible:
            return np.ones(len(eta), bool)
        error = 2.2e-16 * (np.abs(eta) @ self.node.feature_extent())
        return ~(error < min(self.natural_error, NATURAL_SHARE * self.node.encoding.observed**0.5))

    def prepare(self, theta: Views, packed: Packed) -> None:
        if self.node.kind == "natural":
            if self.node.packed_width:
                self._unpack(packed[self.path])
            elif isinstance(self.node, ResidualFamily):
                forms = self.node.forms(self._fields(theta))
                self._split(forms, self._needs_residual(forms.eta))
            else:
                self._eta, self._constant = self.node.natural(self._fields(theta))
            if self.block is not None:
                self.block.prepare()
        else:
            self._prepared = self.node.prepare(self._fields(theta))

    def _unpack(self, packed: np.ndarray) -> None:
        """The forms of packed rows: constant, d values, lower triangle. Its first diagonal entry is positive in
        the residual form (a whitening matrix) and negative in the natural one (minus half a precision)."""
        d = len(self.node.columns)
        residual = packed[:, 1 + d] > 0
        constant, eta, shape = packed[:, 0], packed[:, 1:], np.empty((0, d, d))
        if residual.any():
            rows, columns = np.tril_indices(d)
            shape = np.zeros((self.size, d, d))
            shape[:, rows, columns] = packed[:, 1 + d :]
        self._split(Forms(eta, constant, packed[:, 1 : 1 + d], shape, constant), residual)

    def _split(self, forms: Forms, residual: np.ndarray) -> None:
        """Take each member in its form; the natural parameters of those in the residual form are 0."""
        self.residual_members = np.flatnonzero(residual)
        self._eta = forms.eta if self.natural_possible else np.empty((self.size, 0))
        self._constant, self._about = forms.constant, np.zeros_like(forms.mean)
        if len(self.residual_members):
            self._eta, self._constant = self._eta.copy(), self._constant.copy()
            self._eta[self.residual_members] = 0.0
            self._constant[self.residual_members] = 0.0
            self._about[self.residual_members] = forms.mean[self.residual_members]
            self._residual = tuple(np.ascontiguousarray(a) for a in (forms.mean, forms.shape, forms.peak))

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

    def maximize(self, theta: Views, stats: Views, new: Views, own: Rows) -> None:
        for name in self._names:
            for field, value in theta[name].items():
                new[name][field][own[name]] = value[own[name]]
        if self.node.fixed:
            return
        self._maximize_shared(stats, new)
        alive = self._alive(stats, own)
        if len(alive):
            about = self._about[alive] if isinstance(self.node, ResidualFamily) else None
            numeric = isinstance(self.node, NumericFamily)
            how = partial(self.node.maximize_counted, count=self._count) if numeric else self.node.maximize
            self._write(new, alive, self._maximized(theta, stats, alive, about, how))

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

    def _alive(self, stats: Views, own: Rows) -> np.ndarray:
        """The members of this data shard with any weight."""
        rows = own[self.path]
        return rows[self.node.weight({name: value[rows] for name, value in stats[self.path].items()}) > 0]

    def _count(self, evaluations: int) -> None:
        """Take note of what the numeric M-step of one member took."""
        self.searches += evaluations
        self.searched += 1

    def _maximized(self, theta: Views, stats: Views, members: np.ndarray, about, how) -> Theta:
        try:
            return how(self._fields(theta, members), self._fields(stats, members), about)
        except NumericalError as error:
            raise self._placed(error, members) from None

    def _placed(self, error: NumericalError, members: np.ndarray) -> NumericalError:
        """The error with the path, and the member that its second argument counts among `members`."""
        number = members[error.args[1]] if len(error.args) > 1 else None
        where = (self.path or "the model") + ("" if number is None else f" (member {self.members[number]})")
        return NumericalError(f"{where}: {error.args[0]}")

    def _write(self, views: Views, members: np.ndarray, values: Theta) -> None:
        """Write values (members, *shape) of some members, without those of shared fields."""
        for name, value in values.items():
            if not self.node.params[name].shared:
                views[self.path][name][members] = value

    def start(self, new: Views, stats: Views, own: Rows) -> None:
        for name, value in self.node.default().items():
            shared = self.node.params[name].shared
            new[self._shared_name if shared else self.path][name][...] = value
        alive = self._alive(stats, own)
        if len(alive):
            self._start(new, stats, alive)
        with contextlib.suppress(NumericalError):
            self._maximize_shared(stats, new)
        self._write(new, own[self.path], self.node.soften(self._fields(new, own[self.path])))
        if self._shared_name in new:
            for name, value in self.node.soften(new[self._shared_name]).items():
                new[self._shared_name][name][...] = value

    def _start(self, new: Views, stats: Views, members: np.ndarray) -> None:
        """Start members where their rows put them; one whose rows have no maximum keeps the default."""
        about = np.zeros((len(members), len(self.node.columns))) if isinstance(self.node, ResidualFamily) else None
        try:
            self._write(new, members, self._maximized(new, stats, members, about, self.node.start))
        except NumericalError:
            if len(members) > 1:
                for member in members:
                    self._start(new, stats, np.array([member]))

    def pool(self, stats: Views, own: Rows) -> None:
        shared = stats.get(self._shared_name, {})
        if shared:
            rows = own[self.path]
            counted = rows[self.holders[rows].answers]
            for name, value in self.node.pooled({name: v[counted] for name, v in stats[self.path].items()}).items():
                np.add.at(shared[name], self.groups[counted], value)

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

    def log_prior(self, theta: Views) -> float:
        return float(np.sum(np.where(self.holders.answers, self.node.log_prior(self._fields(theta)), 0.0)))

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
