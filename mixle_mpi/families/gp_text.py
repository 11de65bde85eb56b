"""Kernels as texts: what run files write and saved models keep, such as "rbf(length_scale=0.5) * matern32 + white"."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial

from mixle_mpi.contract.errors import ModelError, nearest
from mixle_mpi.families.gp_kernels import RBF, Kernel, Matern, White

KERNELS: dict[str, Callable[..., Kernel]] = {
    "rbf": RBF, "white": White, "matern": Matern, "squared_exponential": RBF,
    "matern12": partial(Matern, nu=0.5), "matern32": partial(Matern, nu=1.5), "matern52": partial(Matern, nu=2.5),
}  # fmt: skip


def kernel_of(text: str) -> Kernel:
    """The kernel that a text describes: names of kernels, with values of their hyperparameters by keyword, `+`, `*`
    and parentheses.

    Raises ModelError, which has the text and the nearest known name.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        raise refused(text, 'it is not an expression such as "rbf(length_scale=0.5) + white"') from None
    return _kernel(tree.body, text)


def _kernel(node: ast.expr, text: str) -> Kernel:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        left, right = _kernel(node.left, text), _kernel(node.right, text)
        return left + right if isinstance(node.op, ast.Add) else left * right
    called, keywords = (node.func, node.keywords) if isinstance(node, ast.Call) else (node, [])
    if not isinstance(called, ast.Name):
        raise refused(text, f"{ast.unparse(node)!r} is no kernel; known: {', '.join(KERNELS)}, and + and * of them")
    make = KERNELS.get(called.id)
    if make is None:
        raise refused(text, f"no kernel is called {called.id!r}; {nearest(called.id, KERNELS)}")
    if isinstance(node, ast.Call) and node.args:
        raise refused(text, f"{ast.unparse(node)!r}: values are given by keyword, as in variance=2")
    known = ["variance"] if make is White else ["variance", "length_scale", *(["nu"] if make is Matern else [])]
    values = {}
    for keyword in keywords:
        if keyword.arg not in known:
            raise refused(text, f"{called.id} has no keyword {keyword.arg!r}; {nearest(str(keyword.arg), known)}")
        if keyword.arg in values:
            raise refused(text, f"{called.id} has the keyword {keyword.arg!r} twice")
        values[keyword.arg] = _value(keyword.value, text)
    try:
        return make(**values)
    except ModelError as error:
        raise refused(text, str(error)) from None


def _value(node: ast.expr, text: str):
    """A number, None, or a list of them."""
    if isinstance(node, ast.List):
        return [_value(e, text) for e in node.elts]
    if isinstance(node, ast.Constant) and (node.value is None or type(node.value) in (int, float)):
        return node.value
    raise refused(text, f"{ast.unparse(node)!r} is not a positive number or a list of them")


def refused(text: str, why: str) -> ModelError:
    """A text that is no kernel."""
    return ModelError(f"kernel = {text!r}: {why}")
