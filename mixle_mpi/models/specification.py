"""A model as plain data: what run files hold and saved models keep."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import ModelError, nearest
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.families.gaussian_process import GaussianProcess
from mixle_mpi.models.composite import Composite, Record
from mixle_mpi.models.hidden_markov import HiddenMarkov
from mixle_mpi.models.markov_chain import MarkovChain
from mixle_mpi.models.mixture import Mixture
from mixle_mpi.models.optional import Optional
from mixle_mpi.models.registry import BY_NAME
from mixle_mpi.models.sequence import Sequence, Steps
from mixle_mpi.models.topic_model import TopicModel

OF_CHILDREN = ("fields", "factors", "of")  # keys that a mixture's component may have, never the mixture


def build(spec: Any, where: str = "model") -> Node:
    """The model that a nested dict describes: `type` in snake_case, and the constructor's keywords.

    Children are nested dicts: `component` or `components` of a mixture, `of` of an optional, `factors`
    of a composite, `fields` of a record. A record's field may have `columns`, the names it reads.

    Raises
    ------
    ModelError
        Names the key by its path and the nearest known one.
    """
    if not isinstance(spec, dict):
        example = spec if isinstance(spec, str) and spec in BY_NAME else "categorical"
        raise ModelError(f'{where}: a table with a type is needed, as in {{ type = "{example}" }}, not {spec!r}')
    if "type" not in spec:
        raise ModelError(f"{where}: the type is missing; known: {', '.join(BY_NAME)}")
    kind = BY_NAME.get(spec["type"]) if isinstance(spec["type"], str) else None
    if kind is None:
        raise ModelError(f"{where}: no model is called {spec['type']!r}; {nearest(spec['type'], BY_NAME)}")
    keys = {k: v for k, v in spec.items() if k != "type"}
    known = _keywords(kind)
    for key in keys:
        if key not in known and kind is Mixture and key in OF_CHILDREN:
            raise ModelError(f"{where}: mixture has no key {key!r}; it belongs under [{where}.component]")
        if key not in known:
            raise ModelError(f"{where}: {spec['type']} has no key {key!r}; {nearest(key, known)}")
    for key, parameter in inspect.signature(kind).parameters.items():
        if isinstance(parameter.default, bool) and not isinstance(keys.get(key, False), bool):
            raise ModelError(f"{where}: {key} = {keys[key]!r} is neither true nor false")
    if kind is Record:
        return _record(keys, where)
    if kind is Composite:
        factors = keys.get("factors", [])
        if not isinstance(factors, list):
            raise ModelError(f"{where}.factors: a list of tables is needed")
        return Composite(*(build(f, f"{where}.factors[{i}]") for i, f in enumerate(factors)), key=keys.get("key"))
    if kind is Mixture:
        return _mixture(keys, where)
    if kind is Optional:
        if "of" not in keys:
            raise ModelError(f"{where}: optional needs the key 'of'")
        keys["of"] = build(keys["of"], f"{where}.of")
    if issubclass(kind, Steps):
        _children_of_steps(kind, keys, where)
    for key, parameter in inspect.signature(kind).parameters.items():
        if parameter.default is inspect.Parameter.empty and key not in keys:
            raise ModelError(f"{where}: {kind.type_name()} needs the key {key!r}")
    try:
        return kind(**keys)
    except (ModelError, TypeError) as error:  # a TypeError for a text or table where a number belongs
        raise ModelError(f"{where}: {error}") from None


def _children_of_steps(kind: type[Steps], keys: dict, where: str) -> None:
    """Build the children of a model of sequences, in place."""
    own = {Sequence: "element", HiddenMarkov: "emission"}.get(kind)
    if own is not None:
        if own not in keys:
            raise ModelError(f"{where}: {kind.type_name()} needs the key {own!r}")
        if kind is HiddenMarkov and isinstance(keys[own], list):
            keys[own] = [build(e, f"{where}.{own}[{i}]") for i, e in enumerate(keys[own])]
        else:
            keys[own] = build(keys[own], f"{where}.{own}")
    if "length" in keys:
        keys["length"] = build(keys["length"], f"{where}.length")


def _keywords(kind: type[Node]) -> list[str]:
    if kind is Composite:
        return ["factors", "key"]
    if kind is Record:
        return ["fields", "key"]
    return list(inspect.signature(kind).parameters)


def _record(keys: dict, where: str) -> Record:
    fields, columns = {}, {}
    if not isinstance(keys.get("fields"), dict):
        raise ModelError(f"{where}: record needs the key 'fields', a table of models")
    for name, spec in keys["fields"].items():
        spec = dict(spec) if isinstance(spec, dict) else spec
        if isinstance(spec, dict) and "columns" in spec:
            columns[name] = spec.pop("columns")
            if isinstance(columns[name], str):
                columns[name] = [columns[name]]
            if not (isinstance(columns[name], list) and all(isinstance(c, str) for c in columns[name])):
                raise ModelError(f"{where}.fields.{name}.columns: a list of column names is needed")
        fields[name] = build(spec, f"{where}.fields.{name}")
    return Record(fields, columns=columns, key=keys.get("key"))


def _mixture(keys: dict, where: str) -> Mixture:
    component, components = keys.pop("component", None), keys.pop("components", None)
    if isinstance(component, list):
        raise ModelError(f"{where}.component: one table is needed; a list goes under [[components]]")
    try:
        if isinstance(components, list):
            if component is not None:
                raise ModelError("mixture: give either component and a number of components, or the components")
            parts = [build(c, f"{where}.components[{i}]") for i, c in enumerate(components)]
            return Mixture(parts, **keys)
        if component is None:
            raise ModelError("mixture: the key 'component' is missing")
        return Mixture(build(component, f"{where}.component"), components, **keys)
    except ModelError as error:
        text = str(error)
        raise ModelError(text if text.startswith(where) else f"{where}: {text}") from None


def describe(node: Node, parameters: bool = True) -> dict[str, Any]:
    """The nested dict that `build` turns into an equal model; without parameters, its structure alone, and what is
    fixed, which a structure cannot be without."""
    spec: dict[str, Any] = {"type": node.type_name()}
    parameters = parameters or bool(vars(node).get("fixed"))
    if isinstance(node, GaussianProcess):
        spec |= node.described(parameters)
    elif isinstance(node, Family):
        for name in inspect.signature(type(node)).parameters:
            if name in ("levels", "dim"):
                value = node.__dict__.get(name)
                if value is not None:
                    spec[name] = list(value) if isinstance(value, tuple) else value
        if parameters:
            spec |= {k: np.asarray(v).tolist() for k, v in node.values.items() if v is not None}
    elif isinstance(node, Mixture):
        if node.template is not None and not parameters:
            spec |= {"component": describe(node.template, False), "components": node.num_components}
        elif node.template is not None and node.is_unfitted:
            spec |= {"component": describe(node.template), "components": node.num_components}
        else:
            spec["components"] = [describe(c, parameters) for c in node.components]
        if parameters and node.weights is not None:
            spec["weights"] = node.weights.tolist()
    elif isinstance(node, Optional):
        spec["of"] = describe(node.of, parameters)
        if node.p_missing is not None and (parameters or not node.estimate_missing):
            spec["p_missing"] = node.p_missing
    elif isinstance(node, Record):
        spec["fields"] = {name: describe(f, parameters) for name, f in node.fields.items()}
        for name, columns in node.field_columns.items():
            spec["fields"][name]["columns"] = list(columns)
    elif isinstance(node, Sequence):
        spec["element"] = describe(node.element, parameters)
    elif isinstance(node, HiddenMarkov):
        spec |= _described_states(node, parameters)
    elif isinstance(node, MarkovChain):
        spec |= _described_labels(node, parameters)
    elif isinstance(node, TopicModel):
        spec |= node.described(parameters)
    elif isinstance(node, Composite):
        spec["factors"] = [describe(f, parameters) for f in node.factors]
    if isinstance(node, Steps) and node.length is not None:
        spec["length"] = describe(node.length, parameters)
    return spec | node.options()


def _described_states(node: HiddenMarkov, parameters: bool) -> dict[str, Any]:
    """Emissions and chain of a hidden Markov model."""
    spec: dict[str, Any] = {}
    if node.template is not None and (not parameters or node.is_unfitted):
        spec |= {"emission": describe(node.template, parameters), "states": node.num_states}
    else:
        spec["emission"] = [describe(e, parameters) for e in node.emissions]
    if parameters:
        given = {"initial": node.initial, "transition": node.transition}
        spec |= {k: v.tolist() for k, v in given.items() if v is not None}
    return spec


def _described_labels(node: MarkovChain, parameters: bool) -> dict[str, Any]:
    """Levels and probabilities of a Markov chain."""
    spec: dict[str, Any] = {"levels": list(node.levels)} if node.levels else {}
    if parameters and node.initial is not None:
        first = [np.asarray(p).tolist() for p in node.parts[:-1]]
        spec["initial"] = first if node.order > 1 else first[0]
    if parameters and node.transition is not None:
        spec["transition"] = node.transition.tolist()
    return spec
