"""What crosses the network in an iteration, and how long that takes.

All functions take numbers or arrays of them. What is not known of the network takes no time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.decomposition import ReductionOp
from mixle_mpi.planning.profile import FLOAT, Sent
from mixle_mpi.planning.resources import Resources


@dataclass(frozen=True)
class Network:
    """Latencies in seconds a message and seconds a byte, within and between nodes, and the ranks of a node."""

    latency: tuple[float, float]
    per_byte: tuple[float, float]
    ranks_per_node: int

    @property
    def known(self) -> bool:
        return any(self.latency) or any(self.per_byte)

    def _pick(self, pair: tuple[float, float], between):
        return np.where(between, pair[1], pair[0])


def network_of(resources: Resources) -> Network:
    """The network of some resources; devices of unknown node are on one node."""

    def inverse(bandwidth: float | None) -> float:
        return 0.0 if bandwidth is None else 1.0 / bandwidth

    counts = Counter(d.node for d in resources.devices)
    latency = resources.latency_within or 0.0, resources.latency_between or 0.0
    per_byte = inverse(resources.bandwidth_within), inverse(resources.bandwidth_between)
    return Network(latency, per_byte, max(counts.values(), default=1))


def hops(ranks):
    """Rounds of messages of a collective."""
    return np.ceil(np.log2(np.maximum(ranks, 1)))


def axis_bytes(reduction: ReductionOp, model_shards, payload, rows, exchanged=0.0):
    """Bytes that a rank receives on the model axis in one pass over its rows.

    LOGSUMEXP gathers the pairs of all shards; otherwise `payload` goes by Allreduce, which moves every value twice,
    and what is `exchanged` is held by one shard before, and by another afterwards.
    """
    m = np.asarray(model_shards, dtype=float)
    factor = m - 1.0 if reduction is ReductionOp.LOGSUMEXP else 2.0 * (m - 1.0) / m
    return FLOAT * (factor * payload + (m - 1.0) / (m * m) * exchanged) * rows


def crosses_nodes(net: Network, model_shards):
    """Whether some group of model shards is on several nodes."""
    return (np.asarray(model_shards) > net.ranks_per_node) | (net.ranks_per_node % np.asarray(model_shards) != 0)


def hidden_seconds(net: Network, model_shards: int, messages: float, work: float, tiles: int) -> float:
    """Of the seconds of `messages` reductions those that pass while other tiles are scored, when two are in flight: the
    latency between nodes, of all tiles but the last, as long as there is work. Ranks move the data themselves, mostly
    when they come back to ask for it, and within a node there is nothing else."""
    if tiles < 2 or not crosses_nodes(net, model_shards):
        return 0.0
    return min(messages * float(hops(model_shards)) * net.latency[1], work) * (tiles - 1) / tiles


def model_axis_seconds(net: Network, model_shards, received, messages):
    """Seconds that `messages` reductions take in which a rank receives so many bytes."""
    between = crosses_nodes(net, model_shards)
    cut = np.asarray(model_shards) > 1
    time = messages * hops(model_shards) * net._pick(net.latency, between) + received * net._pick(net.per_byte, between)
    return np.where(cut, time, 0.0)


def copy_seconds(net: Network, model_shards, values):
    """Seconds in which the first model shard gives the others what all of them hold, so many values."""
    between = crosses_nodes(net, model_shards)
    each = net._pick(net.latency, between) + FLOAT * values * net._pick(net.per_byte, between)
    return np.where(np.asarray(model_shards) > 1, hops(model_shards) * each, 0.0)


def data_messages(sent: Sent):
    """Messages over the data axis in an iteration."""
    return sum(np.sign(v) for v in (sent.dealt, sent.gathered, sent.summed, sent.pooled, sent.bounds))


def data_axis_seconds(net: Network, shards, model_shards, sent: Sent):
    """Seconds of an iteration's reductions over the data axis, and of the header over the whole grid.

    Statistics are reduce-scattered to owners, and what kernels read gathered from them: each value moves once.
    What every data shard needs moves twice.
    """
    ranks = np.asarray(shards) * np.asarray(model_shards)
    between = ranks > net.ranks_per_node
    latency, per_byte = net._pick(net.latency, between), net._pick(net.per_byte, between)
    d = np.asarray(shards, dtype=float)
    summed = sent.summed + sent.pooled + sent.bounds
    size = FLOAT * (sent.dealt + sent.gathered + 2.0 * summed) * (d - 1.0) / d
    reduced = np.where(d > 1, data_messages(sent) * hops(d) * latency + size * per_byte, 0.0)
    return reduced + np.where(ranks > 1, hops(ranks) * latency, 0.0)
