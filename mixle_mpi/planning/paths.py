"""All cuts of a model, and those that paths name."""

from __future__ import annotations

from collections.abc import Iterator

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.planning.cuts import INSIDE, Cut, CutNode, Step, held_once, plain_cut, repeated_keys, shardable
from mixle_mpi.planning.nested import nested_cut
from mixle_mpi.planning.profile import Profile, Run, profile_of

DEEPEST = 4  # levels of nested cuts that are tried


def cuts_of(model: Profile, nested: bool = True) -> Iterator[Cut]:
    """All cuts worth trying. Of alike single members only the first; nested ones come last."""
    repeated = repeated_keys(model)
    found = [(steps, node) for steps, node in shardable(model) if not held_once(model, steps, node, repeated)]
    for steps, node in found:
        yield plain_cut(model, steps, node)
    if nested:
        for steps, node in found:
            before = 1
            for depth in range(1, DEEPEST + 1):
                cut = nested_cut(model, steps, node, depth, repeated)
                if cut is None or len(cut.nodes) == before:
                    break
                before = len(cut.nodes)
                yield cut


def nested_path(path: str) -> tuple[str, int]:
    """Path and depth of what is cut: "a/**" cuts the node at a and the nodes inside its units, down to the deepest that
    can be cut, "a/**1" those one level inside; depth 0 is of a plain path."""
    where, _, last = path.rpartition("/")
    depth = last.removeprefix(INSIDE)
    if not last.startswith(INSIDE) or not (depth == "" or (depth.isdecimal() and 1 <= int(depth) <= DEEPEST)):
        return path, 0
    return where, int(depth or DEEPEST)


def cut_words(path: str) -> str:
    """Where a model is cut, in words."""
    where, depth = nested_path(path)
    inside = {0: "", 1: " and inside"}.get(depth, f" and {depth} levels inside")
    return (where or "the root") + inside


def nested_nodes(model: Node, path: str) -> tuple[CutNode, ...] | None:
    """The nodes that a path of a nested cut means; None for a plain path. Raises ModelError where there are none."""
    return cut_at(profile_of(model), path).nodes if nested_path(path)[1] else None


def cut_at(model: Profile, path: str) -> Cut:
    """The cut of the nodes at a path. Raises ModelError where there are none, or they are not alike."""
    where, depth = nested_path(path)
    node, steps = model, tuple[Step, ...]()
    for segment in filter(None, where.split("/")):
        step = next((s for run in node.runs if (s := step_to(run, segment)) is not None), None)
        several = sum(run.unit for run in node.runs) > 1
        if step is None or (step.number is None and several):
            why = "its nodes are not alike" if step is not None else f"there is no {segment!r}"
            raise ModelError(f"cut {path!r} cannot be planned: {why}")
        node, steps = step.run.profile, (*steps, step)
    if not node.is_shardable:
        raise ModelError(f"cut {path!r} cannot be planned: the node there has no units to divide")
    if not depth:
        return plain_cut(model, steps, node)
    cuts: list[Cut] = []
    for level in range(1, depth + 1):
        cut = nested_cut(model, steps, node, level, repeated_keys(model))
        if cut is None or len(cut.nodes) == (len(cuts[-1].nodes) if cuts else 1):
            break
        cuts.append(cut)
    if not cuts:
        raise ModelError(f"cut {path!r}: there are no nodes that can be cut inside the units of the node there")
    return cuts[-1]


def step_to(run: Run, segment: str) -> Step | None:
    """The step to the children of a run that a segment of a path names, if it does."""
    if "*" not in run.role:
        return Step(run, 0) if segment == run.role else None
    if segment == run.role:
        return Step(run, None)
    number = segment.removeprefix(run.role.removesuffix("*"))
    known = number.isdecimal() and segment != number and run.first <= int(number) < run.first + run.count
    return Step(run, int(number) - run.first) if known else None
