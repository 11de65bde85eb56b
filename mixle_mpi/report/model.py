"""A fitted model in a few readable lines."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.families.categorical import Categorical
from mixle_mpi.models.composite import Factors
from mixle_mpi.models.mixture import Mixture
from mixle_mpi.models.optional import Optional

MOST_LINES = 60
MOST_COMPONENTS = 12
MOST_VALUES = 8
WIDTH = 110


def model_lines(model: Node) -> list[str]:
    """Weights and parameters, one leaf a line; what is too long is cut and says so."""
    lines = list(_lines(model, "", ""))
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"... {len(lines) - MOST_LINES} more lines; the whole model is in model.json"]
    return lines


def _lines(node: Node, name: str, indent: str):
    if isinstance(node, Optional):
        missing = "" if node.p_missing is None else f" p_missing {_number(node.p_missing)}"
        yield from _lines(node.of, f"{name}{missing}", indent)
    elif isinstance(node, Family):
        yield f"{indent}{name + ': ' if name else ''}{_leaf(node)}"[:WIDTH]
    elif isinstance(node, Factors):
        if name:
            yield f"{indent}{name}"
            indent += "  "
        for factor, child in zip(node.names(), node.factors):
            yield from _lines(child, factor, indent)
    elif isinstance(node, Mixture):
        yield f"{indent}{name + ': ' if name else ''}mixture of {node.num_components}"
        for k in range(min(node.num_components, MOST_COMPONENTS)):
            yield from _lines(node.components[k], f"component_{k} weight {node.weights[k]:.4f}", indent + "  ")
        if node.num_components > MOST_COMPONENTS:
            yield f"{indent}  ... {node.num_components - MOST_COMPONENTS} more components"
    else:
        yield f"{indent}{name}: {node!r}"[:WIDTH]


def _leaf(node: Family) -> str:
    if isinstance(node, Categorical):
        order = np.argsort(-node.values["probabilities"], kind="stable")
        shares = [f"{node.levels[i]} {node.values['probabilities'][i]:.3f}" for i in order[:MOST_VALUES]]
        more = f", {len(order) - MOST_VALUES} more" if len(order) > MOST_VALUES else ""
        return f"{', '.join(shares)}{more}"
    return ", ".join(f"{name} {_value(v)}" for name, v in node.values.items() if v is not None)


def _value(value) -> str:
    array = np.asarray(value)
    if array.ndim == 0:
        return _number(float(array))
    shown = "; ".join(" ".join(_number(v) for v in row[:MOST_VALUES]) for row in np.atleast_2d(array)[:MOST_VALUES])
    return f"[{shown}{' ...' if max(array.shape) > MOST_VALUES else ''}]"


def _number(value: float) -> str:
    return f"{value:.5g}"
