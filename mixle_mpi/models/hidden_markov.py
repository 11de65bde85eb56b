"""Hidden Markov models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mixle_mpi.contract.decomposition import DecompAxis, Decomposition, ReductionOp
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Branch, Node, checked_key
from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.models.sequence import Steps
from mixle_mpi.models.structure import checked_child, checked_probabilities
from mixle_mpi.models.units import ManyUnits


def recursion_work(states: int) -> Work:
    """Work of the recursions of one step, as measured from 3 to 512 states: forward, backward and expected transitions
    multiply the matrix of transitions (2 FLOPs a value each, many sequences at once faster than a loop does), states
    are scaled and moved, with an exponential for each, and a step is packed and unpacked."""
    return Work(flop=3.7 * states * states + 60.0 * states + 1000.0, exp=states)


class HiddenMarkov(ManyUnits, Steps):
    """Sequences of steps that depend on a hidden state, which is a Markov chain.

    The log density of a sequence is that of its steps under all paths of states together; an empty sequence has
    log density 0. A transition or initial probability of 0 stays 0.

    Parameters
    ----------
    emission : Node, or list of Node
        One model of which each of the `states` has a copy with parameters of its own, or a model for each.
    states : int, optional
    initial : (states,), transition : (states, states), optional; rows sum to one
    length : Node, optional
        The model of the number of steps.
    terminal : list of int, optional
        The states in which a sequence may end; all by default.
    fixed : bool
        Keep `initial` and `transition` as they are.
    """

    word, counted = "state", "states"

    def __init__(self, emission, states: int | None = None, *, initial=None, transition=None,
                 length: Node | None = None, terminal=None, key: str | None = None, fixed: bool = False):  # fmt: skip
        where = "hidden_markov"
        self.take_units(emission, states)
        self.length = None if length is None else checked_child(where, "length", length)
        s = self.num_states
        self.initial = None if initial is None else checked_probabilities(where, "initial", initial, (s,))
        self.transition = None if transition is None else checked_probabilities(where, "transition", transition, (s, s))
        self.terminal = None if terminal is None else self._checked_terminal(terminal)
        self.key, self.fixed = checked_key(where, key), bool(fixed)
        if self.fixed and (self.initial is None or self.transition is None):
            raise ModelError(f"{where}: fixed=True needs initial and transition")

    def _checked_terminal(self, terminal) -> tuple[int, ...]:
        states = tuple(terminal) if isinstance(terminal, (list, tuple, np.ndarray)) else ()
        whole = all(isinstance(s, (int, np.integer)) and not isinstance(s, bool) for s in states)
        if not states or not whole or not all(0 <= s < self.num_states for s in states):
            raise ModelError(f"hidden_markov: terminal = {terminal!r} is not a list of states from 0 to "
                             f"{self.num_states - 1}")  # fmt: skip
        return tuple(sorted({int(s) for s in states}))

    @property
    def emissions(self) -> Sequence[Node]:
        """The model of each state."""
        return self.units

    @property
    def num_states(self) -> int:
        return self.num_units

    @property
    def end(self) -> np.ndarray:
        """(states,) 1 for the states in which a sequence may end, else 0."""
        end = np.ones(self.num_states)
        if self.terminal is not None:
            end[:] = 0.0
            end[list(self.terminal)] = 1.0
        return end

    def decomposition(self):
        return Decomposition(DecompAxis.STATE, self.num_states, ReductionOp.GATHER, child_roles=("state_*",),
                             shared_children=() if self.length is None else ("length",))  # fmt: skip

    def step_models(self):
        return (self.template,) if self.template is not None else tuple(self.emissions)

    def roles(self):
        yield from self.unit_roles()
        if self.length is not None:
            yield "length", self.length

    def branches(self, assumed):
        steps = assumed.value("length")
        for role, child in self.roles():
            count = self.num_states if role == "state_*" else 1
            unit = role != "length"
            yield Branch(role, child, count, unit=unit, rows=steps if unit else 1.0)

    def cost(self, assumed):
        # cut by state, the recursions are divided evenly: a step's emission scores are brought together, its
        # posteriors back, and the log densities of the sequences added up
        s, steps = self.num_states, assumed.value("length")
        values = s + s * s
        unit = Cost(recursion_work(s) * (steps / s), scratch_member=4.0 * steps)
        return Cost(Work(log=steps), m_step=Work(flop=4.0 * values), params=values, stats=values, kernel=values,
                    columns={("offset",): 8.0}, unit=unit, payload=1.0, messages=3.0, exchanged=2.0 * s * steps,
                    steps=steps, step_flops=recursion_work(s).flops, pooled=True)  # fmt: skip

    def replace(self, change):
        return self.replace_both(change, change)

    def replace_both(self, of_steps, of_length):
        changed = self.with_units(of_steps)
        changed.length = None if self.length is None else of_length(self.length)
        return changed

    def signature(self):
        length = None if self.length is None else self.length.signature()
        return (type(self), self.num_states, self.terminal, self.key, self.fixed, self.sequence,
                self.unit_signatures(), length)  # fmt: skip

    def options(self):
        own = {"terminal": None if self.terminal is None else list(self.terminal), "fixed": self.fixed}
        return super().options() | {k: v for k, v in own.items() if v}

    def compile(self, nodes, path, members, total, holders, cuts):
        from mixle_mpi.models.chain import HiddenMarkovBank

        units = self.compile_units(nodes, path, members, total, holders, cuts)
        length = self.compile_length(nodes, path, members, total, holders, cuts)
        return HiddenMarkovBank(nodes, path, members, total, holders, units, length)
