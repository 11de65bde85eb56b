"""The flat buffers: every parameter of the local tree in one vector, every statistic in another.

A bank declares matrices. A matrix has a row for each entity (member, component) that the shard
holds; its fields are ranges of columns. `Layout` places the matrices one after another and hands out
named views, so that one collective, one checkpoint array and one comparison of bytes cover the tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from mixle_mpi.contract.cuts import Holders
from mixle_mpi.contract.fields import Combine

Views = dict[str, dict[str, np.ndarray]]


@dataclass(frozen=True)
class Matrix:
    """A row for each entity that this shard holds, of `total_rows` in the whole model.

    `rows` are the whole model's row numbers, ascending; `holders` tells which model shards hold
    each. `params` and `stats` map a field's name to the shape of one row's value. `packed` float64 values of
    a row are what kernels read in place of the parameters; 0 where they read these. `pooled` says
    that the statistics are partial sums over members, to be summed over the model shards as well, and `divided` that
    they are partial sums over units of each row, which model shards divide; `everywhere`
    that all data shards need all rows' statistics, so that none maximises a part only.
    """

    name: str
    rows: np.ndarray
    total_rows: int
    holders: Holders
    params: dict[str, tuple[int, ...]] = field(default_factory=dict)
    stats: dict[str, tuple[Combine, tuple[int, ...]]] = field(default_factory=dict)
    packed: int = 0
    pooled: bool = False
    divided: bool = False
    everywhere: bool = False

    @property
    def param_width(self) -> int:
        return sum(math.prod(shape) for shape in self.params.values())

    def stat_width(self, combine: Combine) -> int:
        return sum(math.prod(shape) for how, shape in self.stats.values() if how is combine)


class Layout:
    """Where each matrix lies in the flat parameter and statistics vectors.

    The statistics vector has three segments, for the fields that combine by SUM, MIN and MAX; the last
    two are usually empty. All vectors are float64 and rows are contiguous.
    """

    def __init__(self, matrices: list[Matrix]):
        self.matrices = matrices
        self.num_params = self.num_packed = 0
        self._param_start: dict[str, int] = {}
        self._packed_start: dict[str, int] = {}
        for m in matrices:
            if m.name in self._param_start:
                raise ValueError(f"two matrices are named {m.name!r}")
            self._param_start[m.name], self._packed_start[m.name] = self.num_params, self.num_packed
            self.num_params += len(m.rows) * m.param_width
            self.num_packed += len(m.rows) * m.packed
        self._stat_start: dict[tuple[str, Combine], int] = {}
        self.segments: dict[Combine, slice] = {}
        at = 0
        for combine in Combine:
            start = at
            for m in matrices:
                self._stat_start[m.name, combine] = at
                at += len(m.rows) * m.stat_width(combine)
            self.segments[combine] = slice(start, at)
        self.num_stats = at

    def empty_stats(self) -> np.ndarray:
        """A statistics vector, (num_stats,), of nothing: zeros, and infinities for bounds."""
        stats = np.empty(self.num_stats)
        self.clear(stats)
        return stats

    def clear(self, stats: np.ndarray) -> None:
        """Make a statistics vector that of no rows, in place."""
        stats[self.segments[Combine.SUM]] = 0.0
        stats[self.segments[Combine.MIN]] = np.inf
        stats[self.segments[Combine.MAX]] = -np.inf

    def param_views(self, vector: np.ndarray) -> Views:
        """Matrix name -> field name -> view (rows, *shape) of a (num_params,) vector."""
        views: Views = {}
        for m in self.matrices:
            start, n, width = self._param_start[m.name], len(m.rows), m.param_width
            matrix = vector[start : start + n * width].reshape(n, width)
            views[m.name] = _columns(matrix, m.params)
        return views

    def stat_views(self, vector: np.ndarray) -> Views:
        """Matrix name -> field name -> view (rows, *shape) of a (num_stats,) vector."""
        views: Views = {}
        for m in self.matrices:
            views[m.name] = {}
            for combine in Combine:
                start, n, width = self._stat_start[m.name, combine], len(m.rows), m.stat_width(combine)
                matrix = vector[start : start + n * width].reshape(n, width)
                fields = {name: shape for name, (how, shape) in m.stats.items() if how is combine}
                views[m.name] |= _columns(matrix, fields)
        return views

    def packed_views(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """Matrix name -> view (rows, packed) of a (num_packed,) vector, of the matrices that have any."""
        return {m.name: vector[self.packed_slice(m)].reshape(len(m.rows), m.packed) for m in self.matrices if m.packed}

    def param_slice(self, m: Matrix, first: int = 0, stop: int | None = None) -> slice:
        """Where rows `first` to `stop` of a matrix, by default all, lie in the parameter vector."""
        return _rows(self._param_start[m.name], m.param_width, first, len(m.rows) if stop is None else stop)

    def packed_slice(self, m: Matrix, first: int = 0, stop: int | None = None) -> slice:
        """As `param_slice`, in the vector of packed rows."""
        return _rows(self._packed_start[m.name], m.packed, first, len(m.rows) if stop is None else stop)

    def sum_slice(self, m: Matrix, first: int = 0, stop: int | None = None) -> slice:
        """As `param_slice`, in the statistics vector, of the fields that are summed."""
        start, width = self._stat_start[m.name, Combine.SUM], m.stat_width(Combine.SUM)
        return _rows(start, width, first, len(m.rows) if stop is None else stop)

    def param_rows(self, vector: np.ndarray, name: str) -> np.ndarray:
        """The matrix of one name as a (rows, param_width) view of a (num_params,) vector."""
        m = next(m for m in self.matrices if m.name == name)
        start, n, width = self._param_start[name], len(m.rows), m.param_width
        return vector[start : start + n * width].reshape(n, width)

    def stat_rows(self, vector: np.ndarray, name: str, combine: Combine) -> np.ndarray:
        """The statistics of one name and combination as a (rows, width) view of a (num_stats,) vector."""
        m = next(m for m in self.matrices if m.name == name)
        start, n, width = self._stat_start[name, combine], len(m.rows), m.stat_width(combine)
        return vector[start : start + n * width].reshape(n, width)


def _rows(start: int, width: int, first: int, stop: int) -> slice:
    return slice(start + first * width, start + stop * width)


def _columns(matrix: np.ndarray, fields: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    views, at = {}, 0
    for name, shape in fields.items():
        width = math.prod(shape)
        views[name] = matrix[:, at : at + width].reshape(len(matrix), *shape)
        if views[name].size and not np.shares_memory(views[name], matrix):
            raise AssertionError(f"field {name!r} of shape {shape} is a copy, not a view")
        at += width
    return views
