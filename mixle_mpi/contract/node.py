"""The tree that a user writes: an estimator where parameters are absent, a distribution where given.

Nodes are not changed once made. `place` gives each leaf its columns, `bind` its encoding and sizes;
both return copies. `compile` makes the bank that is evaluated.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.columns import Encoding, SlotKey
from mixle_mpi.contract.cuts import Cuts, Holders
from mixle_mpi.contract.decomposition import Decomposition
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.path import Path
from mixle_mpi.contract.work import Assumed, Cost

if TYPE_CHECKING:
    from mixle_mpi.contract.scope import Scope

Bindings = dict[SlotKey, Encoding]


@dataclass(frozen=True)
class Branch:
    """A child as the planner sees it: `count` copies with parameters of their own.

    `role` of copies ends in `*`. `unit` says whether it lies on the node's axis; `rows` is how many rows of
    the child one observation of the node has; `place` is what a record says of its fields.
    """

    role: str
    node: Node
    count: int = 1
    unit: bool = False
    rows: float = 1.0
    place: tuple[str, int | None] | None = None


class Node:
    """Base of every class of which a model is built."""

    columns: tuple[str, ...] = ()
    key: str | None = None
    restarts: bool = False  # whether log densities come from inner rounds, anew in each pass, and may fall for that

    @classmethod
    def type_name(cls) -> str:
        """The class name in snake_case, as run files write it."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def decomposition(self) -> Decomposition:
        """How the node can be divided over model shards. A node that declares nothing is atomic."""
        return Decomposition.atomic()

    def roles(self) -> Iterator[tuple[str, Node]]:
        """Role and node of each child, once where several units are copies of one."""
        return iter(())

    def branches(self, assumed: Assumed) -> Iterator[Branch]:
        """All children, for the planner. By default those of `roles`, none of them on an axis."""
        for role, child in self.roles():
            yield Branch(role, child)

    def cost(self, assumed: Assumed) -> Cost:
        """What the node costs by itself, without its children. By default nothing."""
        return Cost()

    def replace(self, change: Callable[[Node], Node]) -> Node:
        """A copy whose children are `change(child)`; equal children stay one object."""
        return copy.copy(self)

    def walk(self) -> Iterator[Node]:
        """This node and all below it, copies once."""
        yield self
        for _, child in self.roles():
            yield from child.walk()

    @property
    def width(self) -> int | None:
        """How many columns the node reads in order; None where only the data can tell."""
        raise TypeError(f"{type(self).__name__} does not define width")

    def place(self, scope: Scope) -> Node:
        """A copy that knows its columns. Raises ModelError when they do not fit."""
        raise TypeError(f"{type(self).__name__} does not define place")

    def bind(self, bindings: Bindings) -> Node:
        """A copy whose leaves know encoding and sizes."""
        return self.replace(lambda child: child.bind(bindings))

    def signature(self) -> Hashable:
        """Nodes of equal signature can be compiled into one bank: same structure, other parameters."""
        raise TypeError(f"{type(self).__name__} does not define signature")

    def compile(
        self, nodes: list[Node], path: Path, members: np.ndarray, total: int, holders: Holders, cuts: Cuts
    ) -> Bank:
        """The bank of `nodes` (one for each member of the whole model), holding `members` of them."""
        raise TypeError(f"{type(self).__name__} does not define compile")

    def tied_form(self) -> Hashable:
        """What nodes of one key have in common besides their class and options."""
        return ()

    def options(self) -> dict[str, Any]:
        """The constructor's keywords that are not parameters and not children, where not the default."""
        return {} if self.key is None else {"key": self.key}

    # What a user calls on a model. The work is done above, in `execution`; this is the one place
    # where the rooms' one-way rule is broken, so that models have methods.

    def log_density(self, data, **options) -> np.ndarray:
        """Log density (n,) of each row in nats. Missing cells of Optional columns add nothing.

        Here and below `sequence="patient"` names the column that says of which sequence a row is, where data have one
        row a step, as in `optimize`.

        Raises ValueError when a parameter is absent or the data do not fit the model.
        """
        from mixle_mpi.execution.evaluate import log_density

        return log_density(self, data, **options)

    def posterior(self, data, path: str | None = None, **options) -> np.ndarray:
        """Posterior probability of each component, (n, components), of the mixture at `path`, else the root; of a
        mixture of steps, (steps, components); of a hidden Markov model, of each state in the steps of all sequences,
        (steps, states).

        Raises ValueError when there is neither there, a parameter is absent, or the data do not fit.
        """
        from mixle_mpi.execution.evaluate import posterior

        return posterior(self, data, path, **options)

    def viterbi(self, data, path: str | None = None, **options) -> list[np.ndarray]:
        """Most probable path of states (steps,) int64 of each sequence, of the hidden Markov model at `path`, else
        the root; -1 in a sequence of probability zero.

        Raises ValueError when there is none there, a parameter is absent, or the data do not fit.
        """
        from mixle_mpi.execution.evaluate import viterbi

        return viterbi(self, data, path, **options)

    def forecast(self, data, path: str | None = None, **options) -> np.ndarray:
        """Probabilities (sequences, states) of the state of the step that follows each sequence, of the hidden Markov
        model at `path`, else the root; NaN after a sequence of probability zero.

        A `Mixture` of the emissions with a row of it as weights is the distribution of the next step.

        Raises ValueError when there is none there, a parameter is absent, or the data do not fit.
        """
        from mixle_mpi.execution.evaluate import forecast

        return forecast(self, data, path, **options)

    def sample(self, n: int, seed: int = 0):
        """`n` independent rows, in the form that the model accepts; the same for the same seed.

        Returns an array where all columns are numbers, otherwise a list of tuples or dicts.
        """
        from mixle_mpi.execution.sample import sample

        return sample(self, n, seed)

    def save(self, path) -> None:
        """Write `model.json` and `model.npz` into the directory `path`, which is made."""
        from mixle_mpi.execution.saved import save

        save(self, path)

    @property
    def num_parameters(self) -> int:
        """Number of free parameters, as in BIC."""
        from mixle_mpi.execution.evaluate import num_parameters

        return num_parameters(self)

    def __repr__(self) -> str:
        from mixle_mpi.models.specification import describe

        inner = ", ".join(f"{k}={v!r}" for k, v in describe(self).items() if k != "type")
        return f"{type(self).__name__}({inner})"


def checked_key(where: str, key) -> str | None:
    """The key of nodes that are one set of parameters. Raises ModelError."""
    if key is not None and not (isinstance(key, str) and key):
        raise ModelError(f"{where}: key = {key!r} is not a text")
    return key
