"""One product for all natural leaves of a composite: scores = eta @ T(x), statistics = weights @ T(x).T.

A term owns a range of feature columns. Column 0 of the block is one for every row and carries the
constants of the terms that are observed in all rows; a term with missing rows has a column of its own
that is 1 where the row is observed, so that a missing cell adds nothing.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from mixle_mpi.contract.tile import Tile
from mixle_mpi.kernels import product


class Term(Protocol):
    """A part of a block: what a natural leaf, or the missing indicator of an Optional, contributes.

    `rows` are the block's members that the term serves, None for all of them, `counted` those of these that are scored,
    None for all; `mask` the key of its
    observed rows, None when no row is missing; `num_features` and `has_base` fix its columns.
    """

    rows: np.ndarray | None
    counted: np.ndarray | None
    mask: tuple | None
    num_features: int
    has_base: bool

    def fill(self, tile: Tile, present: np.ndarray, out: np.ndarray) -> None: ...
    def fill_base(self, tile: Tile, out: np.ndarray) -> None: ...
    def coefficients(self) -> tuple[np.ndarray, np.ndarray]: ...
    def collect(self, weight: np.ndarray, sums: np.ndarray) -> None: ...
    def add_residual_scores(self, tile: Tile, present: np.ndarray, out: np.ndarray) -> None: ...
    def add_residual_moments(self, tile: Tile, present: np.ndarray, weights: np.ndarray) -> None: ...


class NaturalBlock:
    """Terms evaluated together for `size` members."""

    def __init__(self, size: int, terms: list[Term]):
        self.size = size
        self.terms = terms
        self.ones = any(t.mask is None for t in terms)
        at = int(self.ones)
        self.constant_column: list[int] = []
        self.columns: list[slice] = []
        self.base_column: list[int | None] = []
        for t in terms:
            self.constant_column.append(0 if t.mask is None else at)
            at += t.mask is not None
            self.columns.append(slice(at, at + t.num_features))
            at += t.num_features
            self.base_column.append(at if t.has_base else None)
            at += t.has_base
        self.width = at
        self.eta = np.zeros((size, self.width))
        self.sums = np.zeros((size, self.width))

    def prepare(self) -> None:
        """Gather the terms' coefficients."""
        self.eta[:] = 0.0
        for t, at, columns, base in zip(self.terms, self.constant_column, self.columns, self.base_column):
            eta, constant = t.coefficients()
            rows = slice(None) if t.rows is None else t.rows
            if t.counted is not None:  # the statistics of the others are added up here too
                eta, constant, own = np.zeros_like(eta), np.zeros_like(constant), (eta, constant)
                eta[t.counted], constant[t.counted] = own[0][t.counted], own[1][t.counted]
            self.eta[rows, columns] = eta
            self.eta[rows, at] += constant
            if base is not None:
                self.eta[rows, base] = 1.0

    def begin(self) -> None:
        self.sums[:] = 0.0

    def _features(self, tile: Tile) -> np.ndarray:
        features = tile.array(self, "features", self.width, tile.n)
        if not tile.first_time(self):
            return features
        if self.ones:
            features[0] = 1.0
        for t, at, columns, base in zip(self.terms, self.constant_column, self.columns, self.base_column):
            if t.mask is not None:
                features[at] = tile.column(t.mask)
            t.fill(tile, features[at], features[columns])
            if base is not None:
                t.fill_base(tile, features[base])
        return features

    def score(self, tile: Tile) -> np.ndarray:
        """Log densities (members, n); scratch that the caller may overwrite."""
        features = self._features(tile)
        out = tile.array(self, "scores", self.size, tile.n)
        with np.errstate(over="ignore", invalid="ignore"):  # log 0 times a large number is log 0
            product.scores(self.eta, features, out)
        for t, at in zip(self.terms, self.constant_column):
            t.add_residual_scores(tile, features[at], out)
        return out

    def accumulate(self, tile: Tile, weights: np.ndarray) -> None:
        """Add weights (members, n) times the features of the tile."""
        features = self._features(tile)
        product.add_sums(weights, features, self.sums)
        for t, at in zip(self.terms, self.constant_column):
            t.add_residual_moments(tile, features[at], weights)

    def finish(self) -> None:
        """Hand the sums to the terms."""
        for t, at, columns in zip(self.terms, self.constant_column, self.columns):
            rows = slice(None) if t.rows is None else t.rows
            t.collect(self.sums[rows, at], self.sums[rows, columns])

    def tile_width(self) -> int:
        return self.size + self.width


def flat_columns(fields: dict[str, np.ndarray], matrix: np.ndarray, names: list[str]) -> None:
    """Add consecutive columns of matrix (members, s) to the named fields, in order."""
    at = 0
    for name in names:
        view = fields[name]
        width = math.prod(view.shape[1:])
        view += matrix[:, at : at + width].reshape(view.shape)
        at += width
