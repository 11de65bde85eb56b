"""The bank of hidden Markov models: the recursions over the steps of many sequences."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.cuts import CutGroup
from mixle_mpi.contract.decomposition import Partial, ReductionOp
from mixle_mpi.contract.errors import NumericalError
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Matrix
from mixle_mpi.contract.tile import Chunk, Tile
from mixle_mpi.contract.work import by_states
from mixle_mpi.kernels import recursion, recursion_across
from mixle_mpi.kernels.normalise import place_labels
from mixle_mpi.models.chunks import Chain, Chunks
from mixle_mpi.models.hidden_markov import HiddenMarkov, recursion_work
from mixle_mpi.models.sequence import StepsBank
from mixle_mpi.models.state_columns import StateColumns
from mixle_mpi.models.state_exchange import StateExchange
from mixle_mpi.models.units import Units

NARROW = 6  # states, up to which recursions run across sequences
MANY = 8  # if there are so many at a time, on average
LOST = ("in some sequence a state falls more than 700 nats behind the others and is likely later, which recursions "
        "cannot follow")  # fmt: skip
WIDE, LARGE = 24, 4  # with so many states so many times as many steps are evaluated at once
STICKY = 0.5  # of the probability of a transition at the start, what stays in its state on top of an even share


class Packing:
    """Steps of several sequences in the order of `kernels.recursion`.

    Attributes
    ----------
    by_length : (sequences,) the sequences that have steps, longest first
    starts : (times + 1,) first packed row of each time
    order, sequence : (steps,) number of each packed row among the steps, and whose it is
    place : (steps,) the packed row of each step
    last : (sequences,) packed row of each last step
    """

    def __init__(self, offsets: np.ndarray):
        lengths = np.diff(offsets)
        by_length = np.argsort(-lengths, kind="stable")
        self.by_length = by_length[: np.count_nonzero(lengths)]
        longest = lengths[self.by_length]
        times = int(longest[0]) if len(longest) else 0
        active = len(longest) - np.searchsorted(longest[::-1], np.arange(times), side="right")
        self.starts = np.concatenate([[0], np.cumsum(active)]).astype(np.int64)
        self.order, self.place, self.sequence = np.empty((3, self.starts[-1]), np.int64)
        recursion.pack(offsets, self.by_length, self.starts, self.order, self.place, self.sequence)
        self.last = self.starts[longest - 1] + np.arange(len(longest))


@dataclass
class Filtered:
    """Some sequences of some members as `score` leaves them for `accumulate`.

    `first` is the first of the sequences in the tile; `saved` has for each of `members` densities, forward
    probabilities and scales of the packed steps, states first where they were worked out `across` sequences.
    """

    members: np.ndarray
    first: int
    packing: Packing
    across: bool
    saved: list[tuple[np.ndarray, np.ndarray, np.ndarray]]

    def last(self, k: int) -> np.ndarray:
        """Forward probabilities (sequences, states) of the last steps under saved member `k`, the longest first."""
        alpha = self.saved[k][1]
        return alpha[:, self.packing.last].T if self.across else alpha[self.packing.last]


class HiddenMarkovBank(StepsBank):
    """Hidden Markov models of all members; units are the states held here, member by member.

    Of members that are `cut` each model shard has the emissions of its own states, and all have the chain. Log
    densities of the steps are exchanged so that each shard runs whole sequences, and posteriors so that
    each gets those of its states, as parallel Fourier transforms exchange rows for columns. Where there are too few
    sequences for that, the recursion itself is divided by states.
    """

    node: HiddenMarkov
    other = False  # whether the form of kernels is taken that the sequences do not call for

    def __init__(self, nodes, path, members, total, holders, units: Units, length: Bank | None):
        super().__init__(nodes, path, members, total, holders, length)
        self.banks, self.unit_rows, self.held = units.banks, units.rows, units.held
        self.low, self.high = units.held.low, units.held.high
        self.first_unit = np.concatenate([[0], np.cumsum(self.high - self.low)])  # of each member
        self.whole = np.setdiff1d(np.arange(self.size), units.held.cut_members)
        self.exchanges = [StateExchange(group, self.first_unit, self.node.num_states) for group in units.held.cut]
        self._name = f"{path}#chain"

    def step_banks(self):
        return tuple(self.banks)

    def take_other_form(self):
        self.other = self.node.num_states <= NARROW
        return self.other

    def matrices(self):
        s = self.node.num_states
        shapes = {"initial": (s,), "transition": (s, s)}
        return [Matrix(self._name, self.members, self.total_members, self.holders, shapes,
                       {name: (Combine.SUM, shape) for name, shape in shapes.items()},
                       pooled=self.held.anywhere, divided=self.held.anywhere)]  # fmt: skip

    def prepare(self, theta, packed):
        super().prepare(theta, packed)
        self.initial = np.ascontiguousarray(theta[self._name]["initial"])
        self.transition = np.ascontiguousarray(theta[self._name]["transition"])
        self.back = np.ascontiguousarray(np.swapaxes(self.transition, 1, 2))

    def begin(self, stats):
        super().begin(stats)
        self._stats = stats[self._name]
        self._pairs = np.zeros_like(self._stats["transition"])  # over transition probabilities

    def _emissions(self, steps: Tile):
        """Log densities (units, steps) of the states held here."""
        if len(self.banks) == 1 and self.banks[0].size:
            return (yield from self.banks[0].score(steps))
        out = steps.array(self, "emissions", int(self.first_unit[-1]), steps.n)
        for bank, rows in zip(self.banks, self.unit_rows):
            if bank.size:
                out[rows] = yield from bank.score(steps)
        return out

    def _units(self, member: int) -> slice:
        return slice(int(self.first_unit[member]), int(self.first_unit[member + 1]))

    def _dealt(self, offsets: np.ndarray, shards: int) -> list[int]:
        """Borders of the sequences that each of so many shards runs: about as many steps for each."""
        steps = offsets[-1] * np.arange(1, shards) / shards
        inner = np.searchsorted(offsets, steps, side="left")
        return [0, *np.minimum(inner, len(offsets) - 1).tolist(), len(offsets) - 1]

    def _forward(self, tile: Tile, members, emissions, first: int, stop: int, offsets, out) -> Filtered:
        """Run sequences first to stop, to whose columns of out (members, n) the log densities are written; emissions
        (states, steps) of each member, of these sequences' steps alone."""
        packing = Packing(offsets[first : stop + 1] - offsets[first])
        steps, states = len(packing.order), self.node.num_states
        across = states <= NARROW and (steps >= MANY * (len(packing.starts) - 1)) != self.other
        shape = (states, steps) if across else (steps, states)
        kernels = recursion_across if across else recursion
        chains = Filtered(members, first, packing, across, [])
        for k, (m, scores) in enumerate(zip(members, emissions)):
            density, alpha = tile.array(self, f"density_{m}", *shape), tile.array(self, f"alpha_{m}", *shape)
            top, scale = np.empty(steps), np.empty(steps)
            kernels.densities(scores, packing.order if across else packing.place, density, top)
            kernels.forward(density, packing.starts, self.initial[m], self.transition[m], alpha, scale, scores,
                            packing.order, top)  # fmt: skip
            chains.saved.append((density, alpha, scale))
            with np.errstate(divide="ignore"):
                logs = np.log(scale) + top
                if self.node.terminal is not None:
                    logs[packing.last] += np.log(chains.last(k) @ self.node.end)
            out[m, first:stop] += np.bincount(packing.sequence, logs, stop - first)
        return chains

    def _backward(self, tile: Tile, chains: Filtered, weights: np.ndarray, to) -> None:
        """Posteriors times weights of what `_forward` ran, to `to` (states, steps) of each member; the chain's
        statistics are added up."""
        packing, end = chains.packing, self.node.end
        for m, (density, alpha, scale), out in zip(chains.members, chains.saved, to):
            of = np.ascontiguousarray(weights[m, chains.first + packing.by_length])
            if chains.across:
                recursion_across.backward(density, packing.starts, self.back[m], end, alpha, scale, of, self._pairs[m])
                self._stats["initial"][m] += alpha[:, : len(of)].sum(axis=1)
                recursion_across.spread(alpha, packing.order, out)
                continue
            before = tile.array(self, "before", *alpha.shape)
            recursion.backward(density, packing.starts, self.back[m], end, alpha, scale, of, before)
            self._pairs[m] += before[len(of) :].T @ density[len(of) :]  # of steps that are not the first
            self._stats["initial"][m] += alpha[: len(of)].sum(axis=0)
            recursion.spread(alpha, packing.order, out)

    def score(self, tile: Tile):
        steps = self.steps(tile)
        emissions = yield from self._emissions(steps)
        if steps.chunk is not None:
            return (yield from self._score_chunks(tile, steps, steps.chunk, emissions))
        out = np.zeros((self.size, tile.n))
        own = [emissions[self._units(m)] for m in self.whole]
        chains: list[Filtered | StateColumns] = [self._forward(tile, self.whole, own, 0, tile.n, steps.offsets, out)]
        for exchange in self.exchanges:
            group, cut = exchange.group, exchange.group.members
            if self._by_states(group, steps.offsets):
                held = np.stack([emissions[exchange.answered(m)] for m in cut])
                columns = StateColumns(held, steps.offsets, group, self.initial[cut], self.transition[cut],
                                       self.node.end)  # fmt: skip
                yield from columns.forward()
                out[cut] = columns.log_densities()
                chains.append(columns)
                continue
            dealt = self._dealt(steps.offsets, len(group.ranks))
            own = yield from exchange.to_sequences(emissions, steps.offsets, dealt)
            first, stop = dealt[group.place : group.place + 2]
            chains.append(self._forward(tile, cut, own, first, stop, steps.offsets, out))
            out[cut] = yield Partial(ReductionOp.SUM, np.ascontiguousarray(out[cut]), group=group.number)
        tile.saved[id(self)] = chains
        if self.length is not None:
            out += yield from self.length.score(tile)
        return out

    def accumulate(self, tile: Tile, weights):
        steps = self.steps(tile)
        labels = steps.labels.get(id(self))
        resp = steps.array(self, "resp", int(self.first_unit[-1]), steps.n)
        if labels is not None:
            self._from_labels(steps, labels, weights, resp)
        elif steps.chunk is not None:
            yield from self._posteriors_of_chunks(tile, steps, weights, resp)
        else:
            yield from self._posteriors(tile, steps, weights, resp)
        if id(self) in tile.captured:
            tile.captured[id(self)] = steps.offsets, resp.copy()
        for bank, rows in zip(self.banks, self.unit_rows):
            if bank.size:
                yield from bank.accumulate(steps, resp if len(self.banks) == 1 else resp[rows])
        if self.length is not None:
            yield from self.length.accumulate(tile, weights * self._begun(steps))

    def _posteriors(self, tile: Tile, steps: Tile, weights: np.ndarray, resp: np.ndarray):
        """Posteriors times weights, written to resp (units, steps); the chain's statistics are added up."""
        chains, s = tile.saved[id(self)], self.node.num_states
        self._backward(tile, chains[0], weights, [resp[self._units(m)] for m in self.whole])
        self.state_steps += len(self.whole) * s * steps.n
        for exchange, run in zip(self.exchanges, chains[1:]):
            group, cut = exchange.group, exchange.group.members
            if isinstance(run, StateColumns):
                starts, pairs = np.zeros((len(cut), s)), np.zeros((len(cut), s, s))
                posteriors = yield from run.backward(weights[cut], starts, pairs)
                self._stats["initial"][cut] += starts
                self._pairs[cut] += pairs
                yield from exchange.to_holders(posteriors, resp)
            else:
                dealt = self._dealt(steps.offsets, len(group.ranks))
                own = int(np.diff(steps.offsets[dealt])[group.place])
                posteriors = np.empty((len(cut), s, own))
                self._backward(tile, run, weights, posteriors)
                yield from exchange.to_states(posteriors, steps.offsets, dealt, resp)
            self.state_steps += posteriors.size

    def _by_states(self, group: CutGroup, offsets: np.ndarray) -> bool:
        """Whether the recursion of a group of members is divided by states: all its shards say the same."""
        shards = len(group.ranks)
        longest = int(np.diff(offsets[self._dealt(offsets, shards)]).max())
        flops = len(group.members) * recursion_work(self.node.num_states).flops
        return by_states(int(offsets[-1]), longest, flops, shards)

    def _begun(self, steps: Tile) -> np.ndarray:
        """(sequences,) 1 for sequences that begin here, 0 where another shard has the beginning."""
        begun = np.ones(len(steps.offsets) - 1)
        begun[:1] = not (steps.chunk is not None and steps.chunk.continued)
        return begun

    def _score_chunks(self, tile: Tile, steps: Tile, chunk: Chunk, emissions: np.ndarray):
        """As `score`, of sequences that are divided in time: what the steps held here contribute."""
        chains, order, s = [], np.arange(steps.n), self.node.num_states
        for m in range(self.size):
            names = f"density_{m}", f"alpha_{m}", f"beta_{m}"
            density, alpha, beta = (tile.array(self, name, steps.n, s) for name in names)
            top, scale = np.empty(steps.n), np.empty(steps.n)
            scores = emissions[self._units(m)]
            recursion.densities(scores, order, density, top)
            chains.append(Chain(self.initial[m], self.transition[m], self.back[m], scores, density, top, alpha, beta,
                                scale))  # fmt: skip
        chunks = tile.saved[id(self)] = Chunks(chains, steps.offsets, chunk, self.node.end)
        yield from chunks.forward()
        out = yield from chunks.log_densities()
        if self.length is not None:
            lengths = yield from self.length.score(tile)
            out += np.where(self._begun(steps) > 0, lengths, 0.0)
        return out

    def _posteriors_of_chunks(self, tile: Tile, steps: Tile, weights: np.ndarray, resp: np.ndarray):
        """Posteriors times weights of sequences that are divided in time; the chain's statistics are added up."""
        chunks = tile.saved[id(self)]
        yield from chunks.backward()
        chunks.statistics(weights, self._stats["initial"], self._pairs)
        for m, chain in enumerate(chunks.chains):
            recursion.spread(chain.beta, np.arange(steps.n), resp[self._units(m)])
        self.repaired += chunks.repaired
        self.settling = self.settling + chunks.settling
        self.state_steps += self.size * self.node.num_states * steps.n + self.node.num_states * chunks.repaired

    def _from_labels(self, steps: Tile, labels: np.ndarray, weights: np.ndarray, resp: np.ndarray) -> None:
        """Responsibilities of starting states, the same for all members; the chain starts by itself."""
        each = np.repeat(weights, np.diff(steps.offsets), axis=1)
        for m in range(self.size):
            positions = np.arange(self.low[m], self.high[m], dtype=np.int64)
            offsets = np.array([0, len(positions)])
            place_labels(labels, positions, offsets, each[m : m + 1], resp[self._units(m)], np.zeros(len(positions)))

    def pool(self, stats, own):
        """What several shards have of members that are not cut counts once."""
        if self.held.anywhere:
            others = self.whole[~self.holders[self.whole].answers]
            for name in ("initial", "transition"):
                stats[self._name][name][others] = 0.0

    def finish(self):
        super().finish()
        self._stats["transition"] += self._pairs * self.transition

    def maximize(self, theta, stats, new, own):
        rows = own[self._name]
        for name in ("initial", "transition"):
            old, counts = theta[self._name][name][rows], stats[self._name][name][rows]
            if not np.isfinite(counts).all():
                raise NumericalError(f"{self.path or 'hidden_markov'}: {LOST}")
            total = counts.sum(axis=-1, keepdims=True)
            move = (total > 0) & (not self.node.fixed)
            new[self._name][name][rows] = np.where(move, counts / np.where(total > 0, total, 1.0), old)

    def start(self, new, stats, own):
        rows, s = own[self._name], self.node.num_states
        new[self._name]["initial"][rows] = 1.0 / s
        new[self._name]["transition"][rows] = (1.0 - STICKY) / s + STICKY * np.eye(s)

    def given(self, theta):
        nodes = self.nodes
        for row, member in enumerate(self.members):
            for name in ("initial", "transition"):
                value = vars(nodes[member])[name]
                if value is not None:
                    theta[self._name][name][row] = value

    def restore(self, member, theta):
        changed, s = copy.copy(self.node), self.node.num_states
        changed.initial = np.array(theta[self._name]["initial"][member])
        changed.transition = np.array(theta[self._name]["transition"][member])
        emissions: list = [None] * s
        for bank, rows in zip(self.banks, self.unit_rows):
            for at, unit in enumerate(rows):
                if unit // s == member:
                    emissions[unit % s] = bank.restore(at, theta)
        changed._units = tuple(emissions)
        changed.length = None if self.length is None else self.length.restore(member, theta)
        return changed

    def num_free(self, copies=1):
        s = self.node.num_states
        return 0 if self.node.fixed else self.total_members // copies * (s - 1) * (s + 1)

    def tile_width(self):
        return self.size

    def step_width(self) -> int:
        """Float64 values of scratch for each step, this bank alone; said to be fewer where many sequences at a time are
        worth more than what stays in a cache, as they are multiplied by a wide matrix."""
        states = self.node.num_states
        return self.size * (4 * states + 2) // (LARGE if states >= WIDE else 1)
