"""Kernels are compiled before the first pass, by one rank of each node; the others load what it made.

numba's cache on disk is written without locks: ranks that compile at the same time do the same work, and may
leave an index and a kernel that do not belong together.
"""

from __future__ import annotations

import copy

import numpy as np

from mixle_mpi.contract.node import Node
from mixle_mpi.contract.tile import Chunk
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.grid import Grid, serial_grid
from mixle_mpi.execution.initialise import level_of
from mixle_mpi.models.mixture import Mixture
from mixle_mpi.models.topic_model import TopicModel
from mixle_mpi.models.units import ManyUnits
from mixle_mpi.planning.paths import cut_at, nested_path
from mixle_mpi.planning.profile import profile_of

ROWS = 8


class FirstRows:
    """The first rows of a source, and the first steps of their sequences."""

    def __init__(self, source):
        self.first, self.n, self._source = source.first, min(source.n, ROWS), source
        self.sequences = {name: FirstSteps(steps, self.n) for name, steps in source.sequences.items()}

    def column(self, key, start: int, stop: int) -> np.ndarray | None:
        return self._source.column(key, start, stop)

    def take(self, key, rows: np.ndarray) -> np.ndarray:
        return self._source.take(key, rows)


class FirstSteps(FirstRows):
    """The first steps of a source of steps, which are those of its first rows."""

    def __init__(self, source, rows: int):
        super().__init__(source)
        self.offsets = np.minimum(source.offsets[: rows + 1], self.n)
        self.chunk = None if source.chunk is None else Chunk(0, False, False)


class Mirror(Alone):
    """The first of two ranks, of which the other would do the same: what kernels a cut needs is known without it."""

    size = 2

    def allgather(self, value):
        return [value, value]

    def part(self, ranks, copy, colour=0):
        return self

    def allgather_array(self, array):
        return np.repeat(super().allgather_array(array), 2, axis=0)

    def exchange(self, array, counts, expected, whole):
        return np.resize(array, sum(expected)) if len(array) else np.zeros(sum(expected))


def warm(executor: Executor) -> None:
    """Compile or load the kernels that a model needs. Collective over the whole grid.

    On each node the lowest rank with rows goes first. It rehearses also the forms that only
    some parameters or rows call for, so that the others find them made.
    """
    source = executor.source
    node = executor.grid.world.node()
    with_rows = [rank for rank, n in enumerate(node.allgather(source.n)) if n > 0]
    leads = bool(with_rows) and node.rank == with_rows[0]
    if leads:
        rehearse(executor, every_form=node.size > 1)
    node.meet()
    if source.n > 0 and not leads:
        rehearse(executor, every_form=False)
    node.meet()  # so that nobody waits for the others in the next phase
    node.free()


def rehearse(executor: Executor, every_form: bool) -> None:
    """One pass over a few rows with hardly any components, alone: of the whole model, then as it is cut."""
    model, rows = small(executor.model), FirstRows(executor.source)
    one_pass(Executor(model, rows, serial_grid(), None), every_form)
    for cut in [] if executor.cut is None else rehearsed_cuts(executor.model, executor.cut, model):
        one_pass(Executor(model, rows, Grid(Alone(), Alone(), Mirror()), cut), every_form=False)


def rehearsed_cuts(model: Node, cut: str, smaller: Node) -> list[str]:
    """The paths at which a smaller tree is cut to rehearse a cut; of several nodes at once, one for each kind."""
    if not nested_path(cut)[1]:
        return [cut]
    kinds = {type(node.profile.node) for node in cut_at(profile_of(model), cut).divided}
    found: dict[type, str] = {}

    def visit(node: Node, path: str) -> None:
        if type(node) in kinds:
            found.setdefault(type(node), path)
        for role, child in node.roles():
            visit(child, f"{path}/{role}" if path else role)

    visit(smaller, "")
    return list(found.values())


def one_pass(executor: Executor, every_form: bool) -> None:
    """The kernels of one pass; with `every_form` also those that other parameters or rows would call for."""
    executor.prepare_start()
    executor.accumulate_labels({
        name: {id(b): np.zeros(source.n, np.int32) for b in executor.bank.walk() if level_of(b) == name}
        for name, source in {"": executor.source, **executor.source.sequences}.items()
    })  # fmt: skip
    executor.prepare_start()
    executor.e_step()
    executor.search()
    if every_form and any([bank.take_other_form() for bank in executor.bank.walk()]):
        executor.publish()
        executor.e_step()


def small(node: Node) -> Node:
    """The tree with at most two components in each mixture, one for each kind where there are several; two topics."""
    if isinstance(node, TopicModel):
        return node.with_fewer(2)
    if not isinstance(node, Mixture):
        return node.structure(small) if isinstance(node, ManyUnits) else node.replace(small)
    kept = copy.copy(node)
    if node.template is not None:
        kept.template, kept._units = small(node.template), None
        kept.num_units = min(node.num_units, 2)
    else:
        kept._units = tuple(small(node.components[positions[0]]) for positions in node.groups())
        kept.num_units = len(kept._units)
    kept.weights = None
    return kept
