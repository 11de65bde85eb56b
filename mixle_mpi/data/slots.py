"""The slots of a placed model: which columns are read together, in one way, by which leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mixle_mpi.contract.columns import LENGTH, Encoding, SlotKey, label_key
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.data.bags import BagColumns
from mixle_mpi.data.table import SEQUENCE
from mixle_mpi.families.bag import Words
from mixle_mpi.families.labelled import Labelled
from mixle_mpi.models.bag import Bag
from mixle_mpi.models.optional import Optional
from mixle_mpi.models.sequence import Steps

WEIGHT = "weight"  # key of the column of sample weights


@dataclass
class Slot:
    """Columns that leaves read in one way; `families` by base key; `required` when one must be present, with what to
    do where it is not. `levels` are those that leaves declare, as `label_key`, once each.

    `single` when all rows on all ranks came as float32: `summarise` finds out. `ties` are the keyed nodes
    above its leaves, each with the leaf's place below: slots that share one are encoded alike.
    """

    key: SlotKey
    families: dict[tuple, Family] = field(default_factory=dict)
    required: str = ""
    levels: set[tuple] = field(default_factory=set)
    single: bool = False
    ties: set[tuple[str, str]] = field(default_factory=set)


@dataclass
class Slots:
    """All slots of a placed model, and the groups of them that an Optional wants missing together.

    `weight` is the column of sample weights, which no slot reads. `steps` (blocks,) is how many steps the
    sequences of each block of rows have, where there are any, of bags their distinct words: `summarise` counts them.
    `bags` are the bags of words among the sequences, by name.
    """

    slots: dict[SlotKey, Slot] = field(default_factory=dict)
    together: set[tuple[SlotKey, ...]] = field(default_factory=set)
    weight: str | None = None
    steps: np.ndarray | None = None
    bags: dict[str, Bag] = field(default_factory=dict)

    def wants(self) -> dict[str, str]:
        """Column -> "number", "text" or "integer"."""
        wants: dict[str, str] = {} if self.weight is None else {self.weight: "number"}
        for slot in self.slots.values():
            want = "number"
            if slot.key.kind == "label":
                declared = [v for levels in slot.levels for _, v in levels]
                integer = bool(declared) and all(isinstance(v, int) and not isinstance(v, bool) for v in declared)
                want = "integer" if integer else "text"
            want = f"{SEQUENCE}{want}" if slot.key.sequence else want
            for column in slot.key.columns:
                if column.endswith(LENGTH):  # of a sequence, whose steps say it
                    continue
                if wants.setdefault(column, want) != want:
                    raise ModelError(f"column {column!r} is read as {wants[column]} and as {want}")
        return wants


def slots_of(placed: Node, weight: str | None = None) -> Slots:
    """The slots that a placed model reads, beside the column of weights."""
    found = Slots(weight=weight)

    def visit(node: Node, optional: bool, keyed: dict[str, str]) -> None:
        if node.key is not None:
            keyed = keyed | {node.key: ""}
        if isinstance(node, Family):
            slot = found.slots.setdefault(node.slot_key, Slot(node.slot_key))
            slot.families.setdefault(node.base_key, node)
            slot.required = slot.required if optional or slot.required else node.if_missing
            slot.ties.update(keyed.items())
            if isinstance(node, Labelled) and node.levels is not None:
                slot.levels.add(tuple(map(label_key, node.levels)))
        if isinstance(node, Bag):
            _add_bag(found.bags, node)
        if isinstance(node, Optional):
            first = node.first_leaf()
            keys = {n.slot_key for n in node.of.walk()
                    if isinstance(n, Family) and first is not None and n.sequence == first.sequence}  # fmt: skip
            if len({k.columns for k in keys}) > 1:
                found.together.add(tuple(sorted(keys, key=lambda k: (k.columns, k.kind))))
        for role, child in node.roles():
            below = {key: f"{place}/{role}" for key, place in keyed.items()}
            # of a sequence that may be missing, its steps may not
            visit(child, isinstance(node, Optional) or (optional and not isinstance(node, Steps)), below)

    visit(placed, False, {})
    return found


def _add_bag(bags: dict[str, Bag], bag: Bag) -> None:
    """Add a bag to those of its model. Raises ModelError for two that read one column in different ways."""
    other, column = bags.setdefault(bag.sequence, bag), bag.words.columns[0]
    if (other.counts is None or bag.counts is None) and other.counts is not bag.counts:
        raise ModelError(f"column {column!r}: one bag of words reads it with counts, another one without")
    if other.counts is not None and bag.counts is not None and other.counts.columns != bag.counts.columns:
        raise ModelError(f"column {column!r}: bags of words read it with different counts, "
                         f"{other.counts.columns[0]!r} and {bag.counts.columns[0]!r}")  # fmt: skip
    if other.words.numbered and bag.words.numbered and other.words.num_words != bag.words.num_words:
        raise ModelError(f"column {column!r}: its models declare vocabularies of {other.words.num_words} and of "
                         f"{bag.words.num_words} words")  # fmt: skip


def alike_slots(slots: Slots, slot: Slot) -> list[Slot]:
    """The slots that are tied to one, directly or by way of others, in tree order."""
    ties, found = set(slot.ties), [slot]
    while True:
        found = [s for s in slots.slots.values() if s is slot or s.ties & ties]
        more = set().union(*(s.ties for s in found))
        if more == ties:
            break
        ties = more
    for other in found:
        if (other.key.kind, len(other.key.columns)) != (slot.key.kind, len(slot.key.columns)):
            key = sorted(k for k, _ in slot.ties & other.ties or slot.ties)[0]
            raise ModelError(f"key {key!r}: the nodes of one key must be of one family and size")
    return found


def declared_levels(key: SlotKey, slots: list[Slot]) -> tuple | None:
    declared = set().union(*(slot.levels for slot in slots))
    if len(declared) > 1:
        raise ModelError(f"column {key.columns[0]!r}: its models declare different levels")
    return tuple(v for _, v in declared.pop()) if declared else None


def kept_encoding(slots: list[Slot]) -> Encoding | None:
    """The encoding of a model fitted earlier, of which leaves of these slots are."""
    return next((f.encoding for s in slots for f in s.families.values() if f.encoding is not None), None)


def bag_columns(slots: Slots, matrix: bool) -> dict[str, BagColumns]:
    """The columns of each bag, with the vocabulary that was declared, or that of a model fitted earlier.

    `matrix` is that of the table that they are read from.
    """
    found = {}
    for name, bag in slots.bags.items():
        alike = alike_slots(slots, slots.slots[bag.words.slot_key])
        sizes = {f.num_words for s in alike for f in s.families.values() if isinstance(f, Words) and f.numbered}
        if len(sizes) > 1:
            raise ModelError(f"nodes of one key have vocabularies of {' and '.join(map(str, sorted(sizes)))} words")
        kept = kept_encoding(alike)
        levels = declared_levels(bag.words.slot_key, alike) if kept is None else kept.levels
        found[name] = BagColumns(bag.words, bag.counts, None if bag.words.numbered else levels, matrix)
    return found
