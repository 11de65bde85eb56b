"""From data and model to a bound model and the encoded rows of one data shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.blocks import balanced_rows, shard_rows
from mixle_mpi.contract.errors import DataError, ModelError, nearest
from mixle_mpi.contract.node import Bindings, Node
from mixle_mpi.contract.scope import Scope
from mixle_mpi.data.bag_memory import bags_in_memory
from mixle_mpi.data.bags import warn_of_outside
from mixle_mpi.data.bind import bindings, check, summarise
from mixle_mpi.data.encode import EncodedRows, EncodedSteps, encode, observed_rows
from mixle_mpi.data.exchange import exchange
from mixle_mpi.data.memory import MemoryTable
from mixle_mpi.data.open import Opened, is_path, open_data
from mixle_mpi.data.slots import WEIGHT, Slots, slots_of
from mixle_mpi.data.table import Table, together
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.grid import Grid
from mixle_mpi.models.bag import Bag
from mixle_mpi.models.composite import Composite, Record
from mixle_mpi.models.hidden_markov import HiddenMarkov
from mixle_mpi.models.sequence import Steps

Coords = list[tuple[int, int] | None]


@dataclass
class Read:
    """What all ranks have read together and bound, before rows are dealt out.

    `own` are the rows, first and after the last, that this rank parses where not all can see all of them;
    `kept` they encoded, where they are dealt more than once.
    """

    model: Node
    table: Table
    slots: Slots
    bindings: Bindings
    own: tuple[int, int]
    weights: object
    local: bool
    kept: EncodedRows | None = None

    @property
    def total(self) -> int:
        return self.table.total


@dataclass
class Loaded:
    """A bound model and the rows of this rank's data shard.

    `total` rows in all; `effective` the sum of the weights of those with anything observed; `weights`
    (n,) sample weights of the shard's rows, or None.
    """

    model: Node
    rows: EncodedRows
    total: int
    effective: float
    weights: np.ndarray | None


def load(data, model: Node, grid: Grid, *, divide: bool = True, **options) -> Loaded:
    """Place, summarise, bind, encode and deal out the rows. Collective; see `read`, for options too, and `deal`."""
    found = read(data, model, grid.world, **options)
    coords: Coords = [divmod(rank, grid.shape[1]) for rank in range(grid.world.size)]
    return deal(found, grid.world, coords, grid.shape[0], divide=divide)


def read(
    data, model: Node, world: Axis, *, strict: bool = True, local: bool = False, weights=None,
    sequence: str | None = None, warn: bool = False,
) -> Read:  # fmt: skip
    """Place, summarise and bind: all that there is to know before a grid is chosen. Collective.

    `strict`, for a fit, centres numbers and refuses rows outside the support of the only leaf that reads
    them; without it rows are only scored. `local` says that each
    rank brings its own rows of data in memory. `weights` are the sample weights (n,), or the name of a column
    of the data that holds them; the model does not see that column. `sequence` names the column that says of which
    sequence a row is, where data have one row a step; the model does not see it either, and rows are sequences.

    Raises
    ------
    ValueError, OSError
        The same on all ranks: data that do not fit the model, with row, column and value.
    """
    held = sequences_of(model)
    bags = {name: node.words for name, node in held.items() if isinstance(node, Bag)}
    if bags and sequence is None and not is_path(data):
        data = together(world, lambda: bags_in_memory(data, bags))
    opened = open_data(data, world, local, frozenset(held), sequence, frozenset(bags))
    if not opened.names and sequence is None:
        opened = without_rows(model.width or 0)
    named = isinstance(weights, str)
    if named and weights not in opened.names:
        raise DataError(f"weights: no column {weights!r}; {nearest(weights, opened.names)}")
    names = tuple(name for name in opened.names if not (named and name == weights))
    taken = {weights: "the sample weights"} if named else {}
    taken |= {} if sequence is None else {sequence: "which sequence a step is of"}
    placed = together(world, lambda: placed_on(model, names, taken))
    slots = slots_of(placed, weights if named else None)
    table = opened.read(slots.wants())
    own = (
        shard_rows(world.rank, world.size, table.total)
        if table.everywhere
        else (table.first, table.first + table.rows)
    )
    summaries = summarise(slots, table, own[0], own[1], world)
    check(slots, summaries, strict, table)
    warn_of_outside(summaries, table, world.rank == 0)
    bound_slots = bindings(slots, summaries, warn and world.rank == 0, centre=strict)
    return Read(placed.bind(bound_slots), table, slots, bound_slots, own, None if named else weights, local)


def placed_on(model: Node, names: tuple[str, ...], taken: dict[str, str]) -> Node:
    """The model on columns of these names; `taken` says what other columns hold. Raises ModelError."""
    try:
        return model.place(Scope(names))
    except ModelError as error:
        for name, what in taken.items():
            if f"no column {name!r}" in str(error):
                raise ModelError(f"{error}; {name!r} says {what}, and is no part of the model") from None
        raise


def deal(
    found: Read, world: Axis, coords: Coords, shards: int, row_bounds: Sequence[int] | None = None, keep: bool = False,
    divide: bool = True,
) -> Loaded:  # fmt: skip
    """Encode the rows and deal them out to the shards of a grid, for the last time unless `keep`. Collective.

    Parameters
    ----------
    coords : of each rank of `world` in the grid of so many data shards; None for one outside, who gets no rows
    row_bounds : borders of the rows of the data shards, by default even ones; of sequences each shard gets the steps
        of as many rows, and where the borders are not of rows but of steps, those very steps
    divide : whether the steps of few sequences may be dealt out, by default borders
    """
    return deal_to(found, world, [(coords, shards, row_bounds)], keep, divide)


def deal_to(
    found: Read, world: Axis, grids: Sequence[tuple[Coords, int, Sequence[int] | None]], keep: bool = False,
    divide: bool = True,
) -> Loaded:  # fmt: skip
    """As `deal`, to each of several grids without a common rank, all of which get every row. Collective.

    `grids` are the coordinates, the number of data shards and the borders of each.
    """
    total, ranges = found.total, [(0, 0)] * world.size
    chunk: tuple[int, int, int] | None = None  # shard, and steps of its rows, of this rank where they are dealt out
    for coords, shards, row_bounds in grids:
        divided = divide and in_time(found, coords, shards) and (row_bounds is None or row_bounds[-1] != total)
        borders = [0] * (shards + 1) if divided else default_borders(found, shards, row_bounds)
        chunks = chunk_borders(found, shards, row_bounds) if divided else []
        for rank, at in enumerate(coords):
            if at is None:
                continue
            ranges[rank] = borders[at[0]], borders[at[0] + 1]
            if divided:
                first, last, start, stop = chunk_of(found, *chunks[at[0] : at[0] + 2])
                ranges[rank] = first, last
                chunk = (at[0], start, stop) if rank == world.rank else chunk
    if found.kept is None and found.table.everywhere and not keep:
        rows = _encoded(found, world, *ranges[world.rank])
        found.table.close()
    else:
        if found.kept is None:
            found.kept = _encoded(found, world, *found.own)
            found.table.close()
        rows, found.kept = found.kept, None
        if keep:  # what is exchanged is given away, array by array
            found.kept = copied(rows)
        rows = exchange(rows, ranges, world)
    if chunk is not None:
        shard, start, stop = chunk
        rows.sequences = {name: steps.part(start, stop, shard) for name, steps in rows.sequences.items()}
    own_weights = rows.arrays.pop(WEIGHT, None)
    seen = observed_rows(found.bindings, rows)
    at = grids[0][0][world.rank]  # one grid has every row
    effective = np.array([mass_of(rows.n, seen, own_weights) if at is not None and at[1] == 0 else 0.0])
    world.allreduce(effective)
    return Loaded(found.model, rows, total, float(effective[0]), own_weights)


def in_time(found: Read, coords: Coords, shards: int) -> bool:
    """Whether the steps of sequences are dealt out rather than sequences: where there are fewer of these than data
    shards, each a hidden Markov model by itself, of which every shard holds the whole."""
    whole = all(at is None or at[1] == 0 for at in coords)
    return isinstance(found.model, HiddenMarkov) and whole and found.total < shards <= steps_of(found).sum()


def steps_of(found: Read) -> np.ndarray:
    """The steps of every block of rows, (blocks,); none where rows are no sequences."""
    return np.zeros(0, np.int64) if found.slots.steps is None else found.slots.steps


def chunk_borders(found: Read, shards: int, given: Sequence[int] | None) -> list[int]:
    """Borders of the steps of data shards, even or as given; each has one at least."""
    total = int(steps_of(found).sum())
    if given is None:
        return [shard * total // shards for shard in range(shards + 1)]
    borders = [0]
    for left, border in zip(range(shards - 1, 0, -1), given[1:]):
        borders.append(min(max(int(border), borders[-1] + 1), total - left))
    return [*borders, total]


def chunk_of(found: Read, start: int, stop: int) -> tuple[int, int, int, int]:
    """Rows, first and after the last, of which a shard holds steps `start` to `stop`, and which of their steps. Every
    row is a block, as there are few."""
    offsets = np.concatenate([[0], np.cumsum(steps_of(found))])
    total = int(offsets[-1])
    first = int(np.searchsorted(offsets[1:], start, side="right" if start else "left"))
    last = int(np.searchsorted(offsets[:-1], stop, side="left" if stop < total else "right"))
    return first, last, start - int(offsets[first]), stop - int(offsets[first])


def default_borders(found: Read, shards: int, given: Sequence[int] | None = None) -> list[int]:
    """Borders of the rows of data shards: even ones, or as given; of sequences by steps, as many as so many rows have
    in the mean."""
    total = found.total
    if found.slots.steps is not None and total:
        return balanced_rows(found.slots.steps, shards, total, None if given is None else np.array(given) / total)
    return [shard_rows(d, shards, total)[0] for d in range(shards)] + [total] if given is None else list(given)


def _encoded(found: Read, world: Axis, start: int, stop: int) -> EncodedRows:
    """The encoded rows `start` to `stop`, with their weights. Collective."""
    rows = together(world, lambda: encode(found.slots, found.bindings, found.model, found.table, start, stop))
    if found.weights is not None:
        given = (found.weights, found.total, found.local, stop - start, start)
        rows.arrays[WEIGHT] = together(world, lambda: checked_weights(*given))
    return rows


def sequences_of(model: Node) -> dict[str, Steps]:
    """The columns of data in memory that hold sequences for a model, with a node that reads them: "" for the rows
    themselves."""
    if isinstance(model, Steps):
        return {"": model}
    found: dict[str, Steps] = {}
    for role, child in model.roles():
        for name, node in sequences_of(child).items():
            if isinstance(model, Record):
                columns = model.field_columns.get(role, (role,)) if not name else (name,)
                found |= dict.fromkeys(columns, node)
            elif isinstance(model, Composite):
                found[name or role.removeprefix("factor_")] = node
            else:
                found[name] = node
    return found


def copied(rows: EncodedRows) -> EncodedRows:
    """The same arrays, so that those of one may be taken away."""
    sequences = {name: EncodedSteps(s.offsets, dict(s.arrays), s.single) for name, s in rows.sequences.items()}
    return EncodedRows(rows.first, rows.n, dict(rows.arrays), rows.single, sequences)


def without_rows(width: int) -> Opened:
    """Data in memory without rows, which do not say how many columns they have."""
    table = MemoryTable({str(j): np.empty(0) for j in range(width)})
    return Opened(table.names, lambda wants: table)


def mass_of(n: int, seen: np.ndarray | None, weights: np.ndarray | None) -> float:
    """The sum of the weights (n,) of the rows times how much of them is `seen` (n,), by default one each."""
    if weights is None:
        return float(n if seen is None else seen.sum())
    return float(weights.sum() if seen is None else (weights * seen).sum())


def checked_weights(weights, total: int, local: bool, n: int, start: int) -> np.ndarray:
    """The sample weights (n,) of the rows from `start` on. Raises DataError that names row and value."""
    try:
        w = np.asarray(weights, dtype=float)
    except (TypeError, ValueError):
        raise DataError("weights are not numbers") from None
    expected = n if local else total
    if w.shape != (expected,):
        raise DataError(f"weights of shape {w.shape} for {expected} rows")
    bad = ~(np.isfinite(w) & (w >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise DataError(f"row {at + (start if local else 0)}: the weight {w[at]} is not a number >= 0")
    return w if local else w[start : start + n].copy()


def parse_grid(grid) -> tuple[int, int] | None:
    """D and M of "2x3" or (2, 3), None of "auto". Raises ModelError."""
    if isinstance(grid, str) and grid == "auto":
        return None
    try:
        d, m = grid.lower().split("x") if isinstance(grid, str) else grid
        return int(d), int(m)
    except (ValueError, TypeError, AttributeError):
        raise ModelError(f"grid = {grid!r} is not \"auto\", \"DxM\" or (D, M)") from None


