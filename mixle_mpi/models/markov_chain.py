"""Markov chains: sequences of labels, each given the labels before it."""

from __future__ import annotations

import copy

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Matrix
from mixle_mpi.contract.node import Branch, Node, checked_key
from mixle_mpi.contract.scope import Scope
from mixle_mpi.contract.tile import Tile
from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.families.labelled import Labelled, at_least_zero, checked_levels, sorted_order
from mixle_mpi.families.logs import safe_log
from mixle_mpi.kernels import table
from mixle_mpi.kernels.elementary import LOG_ZERO
from mixle_mpi.models.sequence import Steps, StepsBank
from mixle_mpi.models.structure import checked_child, checked_count, checked_probabilities

MOST_CELLS = 2**31 - 2  # cells of a table are numbered by int32, and one more stands for labels that are no level
MOST_ORDER = 29  # of two labels a higher order has more cells


class MarkovChain(Steps):
    """Sequences of labels: log p(x) = log initial[x[0]] + sum_t log transition[x[t - 1], x[t]], of order 1.

    Of order r a step depends on the r labels before it, and each of the first r steps on all before it, with
    probabilities of its own. An empty sequence has log density 0, as has a number of steps without `length`; one
    with a label that is no level has -inf. Contexts that no data follow keep their probabilities.

    Parameters
    ----------
    levels : sequence of str, int or bool, optional
        By default the sorted union of the labels of all ranks. `1` and `"1"` differ.
    initial : (levels,), of order r a list of r arrays (levels,), (levels, levels), ..., optional
        Probabilities of step t < r, the last axis, given the t labels before it.
    transition : (levels,) * (order + 1), optional
        Probabilities of a label, the last axis, given the `order` labels before it; oldest first.
    order : int
    length : Node, optional
        The model of the number of steps.
    pseudo_count : float
        Added to each count: the mode under Dirichlet(1 + pseudo_count) priors.
    """

    def __init__(self, levels=None, initial=None, transition=None, *, order: int = 1, length: Node | None = None,
                 pseudo_count: float = 0.0, key: str | None = None, fixed: bool = False):  # fmt: skip
        where = self.type_name()
        self.order = checked_count(where, "order", order)
        if self.order > MOST_ORDER:
            raise ModelError(f"{where}: order = {order} is more than {MOST_ORDER}")
        self.labels = Labelled(checked_levels(where, levels))
        self.length = None if length is None else checked_child(where, "length", length)
        self.pseudo_count = at_least_zero(where, "pseudo_count", pseudo_count)
        self.key, self.fixed = checked_key(where, key), bool(fixed)
        self.initial: np.ndarray | list[np.ndarray] | None = None
        self.transition: np.ndarray | None = None
        if self.levels is None and not (initial is None and transition is None):
            raise ModelError(f"{where}: initial and transition need levels")
        if self.levels is not None:
            self._check_size()
            self._take(initial, transition)
        if self.fixed and (initial is None or transition is None):
            raise ModelError(f"{where}: fixed=True needs levels, initial and transition")

    def _check_size(self) -> None:
        levels = len(self.levels or ())
        cells = num_contexts(levels, self.order) * levels
        if cells > MOST_CELLS:
            raise ModelError(f"markov_chain: order {self.order} with {levels} levels has {cells:.3g} probabilities, "
                             f"more than {MOST_CELLS:.3g}; take a smaller order, or fewer levels")  # fmt: skip

    def _take(self, initial, transition) -> None:
        """Set what is given, with levels in the order in which they are kept."""
        levels, order = self.levels or (), sorted_order(self.levels or ())
        self.labels.levels = tuple(levels[i] for i in order)

        def checked(name: str, value, k: int) -> np.ndarray:
            p = checked_probabilities("markov_chain", name, value, (len(levels),) * (k + 1))
            return p[np.ix_(*[order] * (k + 1))]

        if initial is not None:
            if not isinstance(initial, (list, tuple, np.ndarray)) or not len(initial):
                raise ModelError(f"markov_chain: initial = {initial!r} is not a list of probabilities")
            alone = self.order == 1 and np.ndim(initial[0]) == 0
            parts = [initial] if alone else list(initial)
            if len(parts) != self.order:
                raise ModelError(f"markov_chain: initial has {len(parts)} arrays, not {self.order}: one for each of "
                                 "the first steps")  # fmt: skip
            names = ["initial"] if alone else [f"initial[{k}]" for k in range(self.order)]
            found = [checked(name, part, k) for k, (name, part) in enumerate(zip(names, parts))]
            self.initial = found[0] if self.order == 1 else found
        if transition is not None:
            self.transition = checked("transition", transition, self.order)

    @property
    def levels(self) -> tuple | None:
        return self.labels.levels

    @property
    def parts(self) -> list[np.ndarray | None]:
        """Probabilities of each of the first steps, and of later ones: (levels,) * (k + 1); None where absent."""
        first = [self.initial] if self.order == 1 else self.initial
        return [*([None] * self.order if first is None else first), self.transition]

    def step_models(self):
        return (self.labels,)

    def roles(self):
        yield "labels", self.labels
        if self.length is not None:
            yield "length", self.length

    def branches(self, assumed):
        if self.length is not None:  # what the labels cost is the chain's own
            yield Branch("length", self.length)

    def cost(self, assumed):
        # each step: its cell is found, once, and read and added to for each member, side by side
        steps, levels = assumed.value("length"), self.labels.assumed_sizes(assumed)["levels"]
        cells = num_contexts(levels, self.order) * levels
        return Cost(Work(lookup=0.6 * steps, scatter=0.6 * steps), Work(feature=20.0 * steps, byte=4.0 * steps),
                    Work() if self.fixed else Work(flop=20.0 * cells, log=cells), params=cells, stats=cells,
                    kernel=2 * cells, scratch_member=1.0, scratch_row=steps,
                    columns={("label",): 4.0 * steps, ("offset",): 8.0})  # fmt: skip

    def replace_both(self, of_steps, of_length):
        changed = copy.copy(self)
        changed.labels = of_steps(self.labels)
        changed.length = None if self.length is None else of_length(self.length)
        return changed

    def place(self, scope: Scope):
        scope.exactly(1, self.type_name())
        return super().place(scope)

    def bind(self, bindings):
        bound = super().bind(bindings)
        bound._check_size()
        return bound

    def signature(self):
        length = None if self.length is None else self.length.signature()
        return (type(self), self.order, self.key, self.fixed, self.pseudo_count, self.sequence,
                self.labels.signature(), length)  # fmt: skip

    def options(self):
        own = {"pseudo_count": self.pseudo_count, "fixed": self.fixed}
        order = {} if self.order == 1 else {"order": self.order}
        return super().options() | order | {k: v for k, v in own.items() if v}

    def compile(self, nodes, path, members, total, holders, cuts):
        length = self.compile_length(nodes, path, members, total, holders, cuts)
        return MarkovChainBank(nodes, path, members, total, holders, length)

    def with_table(self, probabilities: np.ndarray) -> MarkovChain:
        """A copy with all probabilities, (contexts, levels)."""
        changed, levels = copy.copy(self), len(self.levels or ())
        borders = [num_contexts(levels, k) for k in range(self.order)]
        parts = np.split(probabilities, borders)
        shaped = [np.array(p).reshape((levels,) * (k + 1)) for k, p in enumerate(parts)]
        changed.initial = shaped[0] if self.order == 1 else shaped[:-1]
        changed.transition = shaped[-1]
        return changed


def num_contexts(levels: int, order: int) -> int:
    """Sequences of at most `order` labels: rows of the table of a chain, shorter ones first."""
    return sum(levels**k for k in range(order + 1))


class MarkovChainBank(StepsBank):
    """Markov chains of all members: a table of the probabilities of all contexts, (contexts, levels), for each."""

    node: MarkovChain

    def __init__(self, nodes, path, members, total, holders, length: Bank | None):
        super().__init__(nodes, path, members, total, holders, length)
        levels = len(self.node.levels or ())
        self.shape = num_contexts(levels, self.node.order), levels

    def step_banks(self):
        return ()

    def matrices(self):
        return [Matrix(self.path, self.members, self.total_members, self.holders, {"probabilities": self.shape},
                       {"counts": (Combine.SUM, self.shape)})]  # fmt: skip

    def prepare(self, theta, packed):
        super().prepare(theta, packed)
        cells = self.shape[0] * self.shape[1]
        self._logs = np.empty((cells + 1, self.size))
        self._logs[:cells] = safe_log(theta[self.path]["probabilities"]).reshape(self.size, cells).T
        self._logs[cells] = LOG_ZERO

    def begin(self, stats):
        super().begin(stats)
        self._stats = stats[self.path]
        self._counts = np.zeros((self.shape[0] * self.shape[1] + 1, self.size))

    def _codes(self, steps: Tile) -> np.ndarray:
        """The cell (steps,) int32 that each step reads."""
        codes = steps.array(self, "codes", steps.n, dtype=np.int32)
        if steps.first_time(self):
            labels = steps.known(self.node.labels.slot_key)
            table.transitions(labels, steps.offsets, self.shape[1], self.node.order, codes)
        return codes

    def score(self, tile: Tile):
        steps = self.steps(tile)
        out = tile.array(self, "scores", self.size, tile.n)
        table.look_up_sums(self._logs, self._codes(steps), steps.offsets, out)
        if self.length is not None:
            out += yield from self.length.score(tile)
        return out

    def accumulate(self, tile: Tile, weights):
        steps = self.steps(tile)
        table.scatter_sums(weights, self._codes(steps), steps.offsets, self._counts)
        if self.length is not None:
            yield from self.length.accumulate(tile, weights)

    def finish(self):
        super().finish()
        self._stats["counts"] += self._counts[:-1].T.reshape(self.size, *self.shape)

    def _shares(self, counts: np.ndarray, old: np.ndarray) -> np.ndarray:
        """Shares (members, contexts, levels) of counts, old ones where there are none."""
        alive = counts.sum(axis=(1, 2), keepdims=True) > 0
        counts = counts + self.node.pseudo_count
        total = counts.sum(axis=2, keepdims=True)
        return np.where(alive & (total > 0), counts / np.where(total > 0, total, 1.0), old)

    def maximize(self, theta, stats, new, own):
        rows = own[self.path]
        old, counts = theta[self.path]["probabilities"][rows], stats[self.path]["counts"][rows]
        new[self.path]["probabilities"][rows] = old if self.node.fixed else self._shares(counts, old)

    def start(self, new, stats, own):
        rows, labels = own[self.path], self.node.labels
        found = self._shares(stats[self.path]["counts"][rows], labels.smooth_shares())
        new[self.path]["probabilities"][rows] = labels.softened(found)

    def given(self, theta):
        nodes = self.nodes
        same = all(n is nodes[0] for n in nodes)
        for row, member in enumerate(self.members[:1] if same else self.members):
            at = slice(None) if same else row
            first = 0
            for k, part in enumerate(nodes[member].parts):
                stop = first + self.shape[1] ** k
                if part is not None:
                    theta[self.path]["probabilities"][at, first:stop] = part.reshape(-1, self.shape[1])
                first = stop

    def log_prior(self, theta):
        if not self.node.pseudo_count:
            return 0.0
        prior = self.node.pseudo_count * safe_log(theta[self.path]["probabilities"]).sum(axis=(1, 2))
        return float(np.sum(np.where(self.holders.answers, prior, 0.0)))

    def restore(self, member, theta):
        changed = self.node.with_table(theta[self.path]["probabilities"][member])
        changed.length = None if self.length is None else self.length.restore(member, theta)
        return changed

    def num_free(self, copies=1):
        contexts, levels = self.shape
        return 0 if self.node.fixed else self.total_members // copies * contexts * max(levels - 1, 0)

    def step_width(self) -> int:
        """Float64 values of scratch for each step, this bank alone."""
        return 1
