"""The compiled form of a node: many parameter sets, evaluated on the same rows.

A bank evaluates `members` parameter sets. Scores and weights are arrays (members, n), rows last. `score`
and `accumulate` are generators: a node that is cut over model shards yields a `Partial` and is
resumed with the reduced value. They return by `return`, so a parent writes `yield from`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from mixle_mpi.contract.cuts import Holders
from mixle_mpi.contract.decomposition import Partial
from mixle_mpi.contract.layout import Matrix, Views
from mixle_mpi.contract.path import Path
from mixle_mpi.contract.tile import Tile

if TYPE_CHECKING:
    from mixle_mpi.contract.family import Search
    from mixle_mpi.contract.node import Node

Rows = Mapping[str, np.ndarray]  # matrix name -> local row numbers, int64, ascending
Packed = Mapping[str, np.ndarray]  # matrix name -> (rows, packed), see `Matrix`
Scoring = Generator[Partial, np.ndarray, np.ndarray]
Accumulating = Generator[Partial, np.ndarray, None]


class Bank:
    """Base of all banks.

    Attributes
    ----------
    nodes : the node of each member of the whole model; the first, `node`, carries what they have in common
    place, path : where it is in the tree, as a `Path` and in words, where `*` stands for every member
    members : (m,) int64, the numbers of the members held here among all members of the whole model
    total_members : how many the whole model has
    repaired : steps of sequences divided in time that were worked out again, over all passes
    settling : messages of that over all passes, (2,): of what shards tell each other, and of operators
    state_steps : steps times hidden states whose recursions were run here, over all passes
    searches : evaluations of expected log likelihoods of numeric M-steps; `searched`, of how many members, over all of
        them
    holders : which model shards hold each member
    kept_rows : (rows, values) what a fit keeps of the shard's rows from pass to pass; None for most banks. They are
        `kept_columns` of the `kept_width` values that the whole model has of a row
    """

    repaired: int = 0
    settling: np.ndarray = np.zeros(2, np.int64)
    state_steps: int = 0
    kept_rows: np.ndarray | None = None
    kept_columns: np.ndarray = np.empty(0, np.int64)
    kept_width: int = 0
    searches: int = 0
    searched: int = 0

    def __init__(
        self, nodes: list[Node], path: Path, members: np.ndarray, total_members: int, holders: Holders
    ):
        self.nodes = nodes
        self.node = nodes[0]
        self.place = path
        self.path = str(path)
        self.members = members
        self.total_members = total_members
        self.holders = holders

    @property
    def size(self) -> int:
        """Number of members held here."""
        return len(self.members)

    def children(self) -> tuple[Bank, ...]:
        return ()

    def stand_alone(self) -> Bank:
        """Tell the bank that no parent evaluates parts of it with siblings."""
        return self

    def take_other_form(self) -> bool:
        """Switch, to rehearse them, to kernels that other parameters or rows would call for; whether there are any."""
        return False

    def walk(self):
        """This bank and all below it, in tree order."""
        yield self
        for child in self.children():
            yield from child.walk()

    def matrices(self) -> list[Matrix]:
        """The matrices of this bank alone."""
        return []

    def derive(self, theta: Views, packed: Packed, own: Rows) -> None:
        """Write the packed rows of the members that this data shard maximises, from their parameters."""

    def prepare(self, theta: Views, packed: Packed) -> None:
        """Set up what kernels read: from the packed rows, where a matrix has them, else from the parameters."""

    def begin(self, stats: Views) -> None:
        """Start a pass over the data that adds to these statistics."""

    def score(self, tile: Tile) -> Scoring:
        """Log densities (members, n) of the tile's rows; the array is scratch that the caller may overwrite."""
        raise TypeError(f"{type(self).__name__} does not define score")

    def accumulate(self, tile: Tile, weights: np.ndarray) -> Accumulating:
        """Add the tile's statistics with posterior weights (members, n), which are only read."""
        raise TypeError(f"{type(self).__name__} does not define accumulate")

    def finish(self) -> None:
        """End the pass: statistics kept elsewhere are added to the vector."""

    def pool(self, stats: Views, own: Rows) -> None:
        """Add the part of `own` members to shared statistics: of those for which this shard answers."""

    def release(self) -> None:
        """Give back what was set up for kernels."""

    def start_rows(self, n: int) -> None:
        """Begin to keep what belongs to the shard's `n` rows, where the bank keeps anything."""

    def accept_rows(self) -> None:
        """Exchange what is kept of rows with what the last pass wrote: taken twice, it is as it was."""

    def begin_search(self, theta: Views, stats: Views) -> Search | None:
        """Start to look for what `maximize` needs beyond the reduced statistics; None for most banks."""
        return None

    def end_search(self) -> None:
        """Accumulate statistics again."""

    def maximize(self, theta: Views, stats: Views, new: Views, own: Rows) -> None:
        """Write the maximising parameters of `own` rows to `new`; members without weight keep their values."""

    def start(self, new: Views, stats: Views, own: Rows) -> None:
        """Write parameters to start from to `new`, `own` rows by the statistics of starting responsibilities."""

    def given(self, theta: Views) -> None:
        """Overwrite in `theta` the parameters that the user gave in the nodes that were compiled."""

    def log_prior(self, theta: Views) -> float:
        """Log prior density of the members for which this model shard answers.

        Parameters that are packed are known to their owners only, and have no prior.
        """
        return 0.0

    def restore(self, member: int, theta: Views) -> Node:
        """The node of one member (its local number), with parameters in the user's units."""
        raise TypeError(f"{type(self).__name__} does not define restore")

    def num_free(self, copies: int = 1) -> int:
        """Free parameters of all members of the whole model, this bank alone, where `copies` of each are one."""
        return 0

    def tile_width(self) -> int:
        """Float64 values of scratch for each row of a tile, this bank alone."""
        return self.size

    def step_banks(self) -> tuple[Bank, ...]:
        """The children whose rows are steps of this bank's rows."""
        return ()

    def step_width(self) -> int:
        """Float64 values of scratch for each step of a row of a tile, this bank alone."""
        return 0

    def widths(self) -> tuple[int, int]:
        """Float64 values of scratch of this bank and all below it: for each row, and for each step of a row.

        A bank without members is never evaluated.
        """
        if not self.size:
            return 0, 0
        row, step = self.tile_width(), self.step_width()
        of_steps = {id(child) for child in self.step_banks()}
        for child in self.children():
            own, below = child.widths()
            if id(child) in of_steps:
                step += own
            else:
                row, step = row + own, step + below
        return row, step
