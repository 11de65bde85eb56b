"""Hidden Markov models."""

from __future__ import annotations

import copy

import numpy as np

from mixle_mpi.contract.decomposition import DecompAxis, Decomposition, ReductionOp
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Branch, Node, checked_key
from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.models.structure import StructureOnly, checked_child, checked_count


class HiddenMarkov(StructureOnly):
    """Sequences of steps that depend on a hidden state, which is a Markov chain.

    Parameters
    ----------
    emission : Node, or list of Node
        One model of which each of the `states` has a copy with parameters of its own, or a model for each.
    states : int, optional
    initial : (states,), transition : (states, states), optional; rows sum to one
    length : Node, optional
        The model of the number of steps.
    """

    child_keys = ("emission", "length")

    def __init__(self, emission, states: int | None = None, *, initial=None, transition=None,
                 length: Node | None = None, key: str | None = None, fixed: bool = False):  # fmt: skip
        where = "hidden_markov"
        if isinstance(emission, Node):
            if states is None:
                raise ModelError(f"{where}: how many states? give states=S, or a list of emissions")
            self.template: Node | None = emission
            self.emissions: tuple[Node, ...] | None = None
            self.num_states = checked_count(where, "states", states)
        else:
            self.template = None
            self.emissions = tuple(checked_child(where, "emission", e) for e in emission)
            self.num_states = len(self.emissions)
            if not self.emissions or states not in (None, self.num_states):
                raise ModelError(f"{where}: states = {states}, but the list has {self.num_states} emissions")
        self.length = None if length is None else checked_child(where, "length", length)
        s = self.num_states
        self.initial = self._checked("initial", initial, (s,))
        self.transition = self._checked("transition", transition, (s, s))
        self.key, self.fixed = checked_key(where, key), bool(fixed)

    def _checked(self, name: str, value, shape: tuple[int, ...]) -> np.ndarray | None:
        if value is None:
            return None
        p = np.array(value, dtype=float)
        if p.shape != shape or (p < 0).any() or (abs(p.sum(axis=-1) - 1) > 1e-8).any():
            raise ModelError(f"hidden_markov: {name} is not of shape {shape} with rows that add up to 1")
        return p

    def decomposition(self):
        return Decomposition(DecompAxis.STATE, self.num_states, ReductionOp.GATHER, child_roles=("state_*",),
                             shared_children=() if self.length is None else ("length",))  # fmt: skip

    def roles(self):
        if self.template is not None:
            yield "state_*", self.template
        else:
            yield from ((f"state_{s}", e) for s, e in enumerate(self.emissions or ()))
        if self.length is not None:
            yield "length", self.length

    def branches(self, assumed):
        steps = assumed.value("length")
        for role, child in self.roles():
            count = self.num_states if role == "state_*" else 1
            unit = role != "length"
            yield Branch(role, child, count, unit=unit, rows=steps if unit else 1.0)

    def cost(self, assumed):
        # each step: forward, backward and expected transitions multiply the S x S matrix (2 S^2 FLOPs each, in
        # vector loops), an exponential for each state and a logarithm. Cut by state, a step's emission scores
        # are brought together and its posteriors back
        s, steps = self.num_states, assumed.value("length")
        values = s + s * s
        return Cost(Work(flop=(6.0 * s * s + 8.0 * s) * steps, exp=s * steps, log=steps),
                    m_step=Work(flop=4.0 * values), params=values, stats=values, kernel=values,
                    scratch_member=4.0 * s * steps, columns={("offset",): 8.0},
                    payload=2.0 * s * steps, messages=2.0)  # fmt: skip

    def replace(self, change):
        changed = copy.copy(self)
        if self.template is not None:
            changed.template = change(self.template)
        else:
            done: dict[int, Node] = {}
            changed.emissions = tuple(done.setdefault(id(e), change(e)) for e in self.emissions or ())
        changed.length = None if self.length is None else change(self.length)
        return changed

    def signature(self):
        of = tuple(child.signature() for _, child in self.roles())
        return (type(self), self.num_states, self.key, self.fixed, of)

    def options(self):
        return super().options() | ({"fixed": True} if self.fixed else {})

    def described(self, describe):
        spec: dict = {}
        if self.template is not None:
            spec |= {"emission": describe(self.template), "states": self.num_states}
        else:
            spec["emission"] = [describe(e) for e in self.emissions or ()]
        if self.length is not None:
            spec["length"] = describe(self.length)
        given = {"initial": self.initial, "transition": self.transition}
        return spec | {k: v.tolist() for k, v in given.items() if v is not None}
