"""A fitted model in a few readable lines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np

from mixle_mpi.contract.columns import LENGTH, SHIFTED, Encoding
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.families.bag import Words
from mixle_mpi.families.categorical import Categorical
from mixle_mpi.families.gaussian_process import GaussianProcess
from mixle_mpi.models.composite import Factors
from mixle_mpi.models.hidden_markov import HiddenMarkov
from mixle_mpi.models.markov_chain import MarkovChain
from mixle_mpi.models.mixture import Mixture
from mixle_mpi.models.optional import Optional
from mixle_mpi.models.sequence import Sequence
from mixle_mpi.models.topic_model import TopicModel

MOST_LINES = 60
MOST_COMPONENTS = 12
MOST_VALUES = 8
WIDTH = 110


def model_lines(
    model: Node, components: int = MOST_COMPONENTS, values: int = MOST_VALUES, lines: int = MOST_LINES,
    by_weight: bool = False,
) -> list[str]:  # fmt: skip
    """Weights and parameters, one leaf a line; what is too long is cut and says so.

    Parameters
    ----------
    components, values, lines : how many components of a mixture, categories or entries of a leaf, and lines
        are shown
    by_weight : components by falling weight, instead of by number
    """
    found = list(_Words(components, values, by_weight).of(model, "", ""))
    if len(found) > lines:
        found = [*found[:lines], f"... {len(found) - lines} more lines; the whole model is in model.json and model.npz"]
    return found


def column_lines(model: Node) -> list[str]:
    """The columns that the model reads, and what it made of them; one line for each."""
    lines: dict[tuple, str] = {}
    for leaf in model.walk():
        if isinstance(leaf, Family) and leaf.encoding is not None:
            e, name = leaf.encoding, ", ".join(leaf.columns)
            name = "number of steps" if name.endswith(LENGTH) else name
            if isinstance(leaf, Words):
                lines[leaf.columns] = f"{name}: {len(e.words)} words occur, of a vocabulary of {leaf.num_words}"
            elif e.levels:
                levels = ", ".join(map(label_text, e.levels[:MOST_VALUES]))
                more = f", {len(e.levels) - MOST_VALUES} more" if len(e.levels) > MOST_VALUES else ""
                lines[leaf.columns] = f"{name}: {len(e.levels)} categories: {levels}{more}"[:WIDTH]
            elif len(e.low):
                lines.setdefault(leaf.columns, f"{name}: {_range_text(e)}"[:WIDTH])
            else:
                lines.setdefault(leaf.columns, name)
    return list(lines.values())


def _range_text(e: Encoding) -> str:
    """The extremes of a slot's numbers in the user's units, and how they are encoded."""
    low, high = (e.shift + e.scale * v if e.key.kind in SHIFTED else v for v in (e.low, e.high))
    x = "x"
    if e.key.kind == "logarithm":
        low, high, x = np.exp(low), np.exp(high), "log x"
    ranges = "; ".join(f"{_number(a)} to {_number(b)}" for a, b in zip(low[:MOST_VALUES], high[:MOST_VALUES]))
    encoded = "as it is"
    if e.key.kind in SHIFTED:
        pairs = zip(e.shift[:MOST_VALUES], e.scale[:MOST_VALUES])
        encoded = "; ".join(f"({x} - {_number(a)}) / {_number(b)}" for a, b in pairs)
    return f"numbers from {ranges}, encoded {encoded}"


def label_text(label) -> str:
    """A label as it is printed: in quotes where it would not be told from what stands around it."""
    if isinstance(label, str) and (label != label.strip() or not label or "," in label or not label.isprintable()):
        return repr(label)
    return str(label)


class _Words:
    """A tree in words, with limits."""

    def __init__(self, components: int, values: int, by_weight: bool):
        self.components, self.values, self.by_weight = components, values, by_weight

    def of(self, node: Node, name: str, indent: str) -> Iterator[str]:
        if isinstance(node, Optional):
            missing = "" if node.p_missing is None else f" p_missing {_number(node.p_missing)}"
            yield from self.of(node.of, f"{name}{missing}", indent)
        elif isinstance(node, GaussianProcess):
            yield f"{indent}{name + ': ' if name else ''}{node.type_name()} mean {_number(node.values['mean'])}"
            yield f"{indent}  kernel {node.rounded(_number)!r}"[:WIDTH]
        elif isinstance(node, Family):
            yield f"{indent}{name + ': ' if name else ''}{self.leaf(node)}"[:WIDTH]
        elif isinstance(node, Factors):
            if name:
                yield f"{indent}{name}"
                indent += "  "
            for factor, child in zip(node.names(), node.factors):
                yield from self.of(child, factor, indent)
        elif isinstance(node, Mixture):
            yield f"{indent}{name + ': ' if name else ''}mixture of {node.num_components}"
            weights = np.asarray(node.weights)
            order = np.argsort(-weights, kind="stable") if self.by_weight else np.arange(node.num_components)
            for k in order[: self.components]:
                yield from self.of(node.components[int(k)], f"component_{k} weight {weights[k]:.4f}", indent + "  ")
            if len(order) > self.components:
                rest = float(weights[order[self.components :]].sum())
                yield f"{indent}  ... {len(order) - self.components} more components, weight {rest:.4f} together"
        elif isinstance(node, Sequence):
            yield f"{indent}{name + ': ' if name else ''}sequence"
            yield from self.of(node.element, "element", indent + "  ")
            if node.length is not None:
                yield from self.of(node.length, "length", indent + "  ")
        elif isinstance(node, HiddenMarkov):
            yield from self.chain(node, name, indent)
        elif isinstance(node, MarkovChain):
            yield from self.labels(node, name, indent)
        elif isinstance(node, TopicModel):
            yield from self.topics(node, name, indent)
        else:
            yield f"{indent}{name}: {node!r}"[:WIDTH]

    def chain(self, node: HiddenMarkov, name: str, indent: str) -> Iterator[str]:
        yield f"{indent}{name + ': ' if name else ''}hidden Markov model of {node.num_states} states"
        initial, transition = np.asarray(node.initial), np.asarray(node.transition)
        for s in range(min(node.num_states, self.components)):
            to = ", ".join(f"{p:.3f}" for p in transition[s, : self.values])
            more = f", {node.num_states - self.values} more" if node.num_states > self.values else ""
            yield f"{indent}  state_{s} initial {initial[s]:.3f}, transition {to}{more}"[:WIDTH]
            yield from self.of(node.emissions[s], "emission", indent + "    ")
        if node.num_states > self.components:
            yield f"{indent}  ... {node.num_states - self.components} more states"
        if node.length is not None:
            yield from self.of(node.length, "length", indent + "  ")

    def labels(self, node: MarkovChain, name: str, indent: str) -> Iterator[str]:
        levels, of = node.levels or (), "" if node.order == 1 else f" of order {node.order}"
        yield f"{indent}{name + ': ' if name else ''}Markov chain{of} of {len(levels)} labels"
        for part in node.parts:
            p = np.asarray(part)
            shape = p.shape[:-1]
            for context in islice(np.ndindex(shape), self.values):
                before = "after " + ", ".join(label_text(levels[i]) for i in context) if context else "first"
                yield f"{indent}  {before}: {self.shares(levels, p[context])}"[:WIDTH]
            if math.prod(shape) > self.values:
                yield f"{indent}  ... after {math.prod(shape) - self.values} more"
        if node.length is not None:
            yield from self.of(node.length, "length", indent + "  ")

    def topics(self, node: TopicModel, name: str, indent: str) -> Iterator[str]:
        number = f"{node.num_topics} topic{'s' * (node.num_topics != 1)}"
        yield f"{indent}{name + ': ' if name else ''}{node.type_name().replace('_', ' ')} of {number}"
        alpha = node.alpha
        weight = np.ones(node.num_topics) if alpha is None else alpha
        order = np.argsort(-weight, kind="stable") if self.by_weight else np.arange(node.num_topics)
        words = node.top_words(self.values)
        for k in order[: self.components]:
            own = "" if alpha is None else f" alpha {_number(alpha[k])}"
            yield f"{indent}  topic_{k}{own}: {', '.join(map(label_text, words[k]))}"[:WIDTH]
        if len(order) > self.components:
            yield f"{indent}  ... {len(order) - self.components} more topics"

    def shares(self, levels: tuple, shares: np.ndarray) -> str:
        """Labels with their probabilities, the most probable first."""
        order = np.argsort(-shares, kind="stable")
        shown = [f"{label_text(levels[i])} {shares[i]:.3f}" for i in order[: self.values]]
        more = f", {len(order) - self.values} more" if len(order) > self.values else ""
        return f"{', '.join(shown)}{more}"

    def leaf(self, node: Family) -> str:
        if isinstance(node, Categorical):
            return self.shares(node.levels or (), np.asarray(node.values["probabilities"]))
        words = ", ".join(f"{name} {self.value(v)}" for name, v in node.values.items() if v is not None)
        return f"{node.type_name()} {words}{' (of the log)' if node.slot == 'logarithm' else ''}"

    def value(self, value) -> str:
        array, most = np.asarray(value), self.values
        if array.ndim == 0:
            return _number(float(array))
        shown = "; ".join(" ".join(_number(v) for v in row[:most]) for row in np.atleast_2d(array)[:most])
        return f"[{shown}{' ...' if max(array.shape) > most else ''}]"


def _number(value: float) -> str:
    return f"{value:.5g}"
