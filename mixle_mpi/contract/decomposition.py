"""How a node can be divided over model shards, and what its partial scores need to become whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np


class DecompAxis(Enum):
    """What the units of a node are."""

    NONE = "none"
    COMPONENT = "component"
    FACTOR = "factor"
    SEQUENCE = "sequence"
    TOPIC = "topic"
    STATE = "state"


class ReductionOp(Enum):
    """How the partial scores of the ranks of one data shard become the score of the node."""

    SUM = "sum"
    LOGSUMEXP = "logsumexp"
    GATHER = "gather"
    REPLICATE = "replicate"


@dataclass(frozen=True)
class Decomposition:
    """What a node declares: its axis, the number of units on it, and the reduction of their scores.

    `exact` says that cutting changes no result; `child_roles` names the roles of the children on the
    axis, `shared_children` those that every shard holds.
    """

    axis: DecompAxis
    num_units: int
    reduction: ReductionOp
    exact: bool = True
    child_roles: tuple[str, ...] = ()
    shared_children: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def atomic(cls) -> Decomposition:
        """The decomposition of a node that cannot be cut: one unit, held by every shard."""
        return cls(DecompAxis.NONE, 1, ReductionOp.REPLICATE)

    @property
    def is_shardable(self) -> bool:
        return self.axis is not DecompAxis.NONE and self.num_units > 1


@dataclass
class Partial:
    """What a cut node yields while it scores a tile, to be resumed with the reduced value.

    `values` is C-contiguous float64 and equally shaped on all ranks of the data shard: (members, rows)
    partial sums for SUM; (2, members, rows) maxima and scaled sums for LOGSUMEXP, of which the reduced
    value has the same shape: the log-sum-exp is value[0] + log(value[1]). For GATHER `values` (k,) are those for
    each rank one after another, `counts` how many for each, `expected` how many come from each, and `whole` how
    many all ranks send: it is resumed with what came, rank by rank. For REPLICATE it is resumed with the values
    of all ranks, (ranks, *shape).

    `axis` is "model" for the ranks of one data shard, of which `group` is the number of those that take part (see
    `contract.cuts`), "data" for those of one model shard.
    """

    reduction: ReductionOp
    values: np.ndarray
    counts: tuple[int, ...] = ()
    expected: tuple[int, ...] = ()
    whole: int = 0
    axis: str = "model"
    group: int = 0


def decomposition_for(node) -> Decomposition:
    """What a node declares. Raises TypeError for what is not a node of a model."""
    from mixle_mpi.contract.node import Node

    if not isinstance(node, Node):
        raise TypeError(f"{type(node).__name__} is not a model")
    return node.decomposition()
