"""A fitted model: its tree with parameters in the user's units, and the exact flat vector behind it."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.node import Node
from mixle_mpi.execution.shard import layout_of


class FittedState:
    """The parameters (num_params,) of a root, in the layout of its uncut tree: what is scored and saved."""

    def __init__(self, theta: np.ndarray):
        self.theta = theta


def fitted(bank: Bank, theta: np.ndarray) -> Node:
    """The node of a compiled uncut tree with the parameters `theta`."""
    node = bank.restore(0, layout_of(bank).param_views(theta))
    vars(node)["state"] = FittedState(theta)
    return node


def state_of(node: Node) -> FittedState | None:
    """The exact parameters of a fitted root; None of a node that a user wrote or took out of a model."""
    state = node.__dict__.get("state")
    return state if isinstance(state, FittedState) else None
