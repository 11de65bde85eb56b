"""The machine, measured: how fast ranks compute and messages travel when all ranks are at work.

Shared memory bandwidth, cores that several ranks share and the like are in the numbers, because all ranks are
timed at the same time. Messages are described as plans reckon with them (`planning.coupling`): latency by
round of messages and bytes received by bandwidth.
"""

from __future__ import annotations

import itertools
import math
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from mixle_mpi import __version__
from mixle_mpi.contract.decomposition import ReductionOp
from mixle_mpi.execution.axis import Alone, Axis
from mixle_mpi.execution.grid import MpiAxis, library_version, ping_pong
from mixle_mpi.execution.measured import Measured, cache_file, keep, recall
from mixle_mpi.execution.memory_limit import rank_memory
from mixle_mpi.execution.processor import cpu_model
from mixle_mpi.kernels import product
from mixle_mpi.kernels.normalise import add_exponentials
from mixle_mpi.planning.coupling import axis_bytes, hops
from mixle_mpi.planning.resources import DeviceSpec, Resources

ROUNDS = 3  # everything is measured so many times
WINDOWS, WINDOW = 5, 0.02  # a speed is the median of so many windows, of so many seconds each
ALIKE = 1.0 / 0.85  # ranks whose speeds have a smaller ratio are equally fast
SIZES = 1, 64, 512, 4096, 32768, 131072  # float64 values of a message
CALLS, MOST, ENOUGH = 9, 300, 0.02  # timed at once, of a size at most, and after so many seconds no more
TOLERATED = 0.25  # errors of the logarithm of a time; larger ones are outliers
PAIR = 0.25  # weight of a message between two ranks


def calibrated(world: Axis, anew: bool = False) -> Measured:
    """What is kept of these ranks, else, or `anew`, what they measure now in a few seconds. Collective.

    The same on every rank: rank 0 alone reads and writes the file.
    """
    key = _key(world)
    found = recall(cache_file(key), key, world.size) if world.rank == 0 and not anew else None
    found = world.allgather(found)[0]
    if found is None:
        found = world.allgather(measure(world))[0]
        if world.rank == 0:
            keep(cache_file(key), key, found)
    return found


def _key(world: Axis) -> dict[str, Any]:
    """What a measurement depends on: the ranks' hosts, processors, cores and threads, and the versions."""
    threads = sorted((k, v) for k, v in os.environ.items() if k.endswith("_NUM_THREADS"))
    own = socket.gethostname(), cpu_model(), len(os.sched_getaffinity(0)), threads
    mpi = library_version() if isinstance(world, MpiAxis) else None
    return {"version": __version__, "mpi": mpi, "numpy": np.__version__, "ranks": world.allgather(own)}


def measured_resources(world: Axis, measured: Measured, comm=None) -> Resources:
    """The ranks as devices, with the memory that each may use now. Collective.

    `comm` is the communicator of `world`, for grids.
    """
    node = world.node()
    own = socket.gethostname(), rank_memory(node.size)
    node.free()
    devices = tuple(
        DeviceSpec(f"rank{rank}", memory_bytes=memory, throughput=throughput, node=host)
        for rank, ((host, memory), throughput) in enumerate(zip(world.allgather(own), measured.throughputs))
    )
    return Resources(devices, comm, flops_per_second=measured.flops_per_second,
                     call_seconds=measured.call_seconds, **measured.network)  # fmt: skip


def measure(world: Axis) -> Measured:
    """Time kernels and messages, in several rounds. Collective; the ranks may round the results differently.

    Of messages the fastest round counts, as what else runs on a machine can only slow them down; of kernels the
    median, as they will run among others for long.
    """
    began = time.perf_counter()
    calls = kernel_calls()
    node = world.node()
    for first in (True, False):  # the first rank of a node compiles, the others load what it made
        if first == (node.rank == 0):
            for _, call in calls:
                call()
        node.barrier()
    nodes = np.array(world.allgather(node.allgather(world.rank)[0]))
    inside, outside = partners(nodes, world.rank)
    speeds, within, between = [], [], []
    for _ in range(ROUNDS):
        speeds.append(_speeds(world, calls))
        within.append(observations(node, inside))
        world.barrier()
        between.append(observations(world if nodes.any() else Alone(), outside))
    node.free()
    fits = [fit_network(np.min(rounds, axis=0)) for rounds in (within, between)]
    network = _known_median(world.allgather_array(np.array(fits)))
    everyone = world.allgather_array(np.stack(speeds))
    throughputs = relative_speeds(np.sqrt(everyone[:, :, 0] * everyone[:, :, 1]).T)
    gemm, exp, stream, small = np.median(everyone[throughputs == 1.0], axis=(0, 1)).tolist()
    (within_latency, within_bandwidth), (between_latency, between_bandwidth) = network
    return Measured(tuple(throughputs.tolist()), gemm, exp, stream, 1.0 / small, within_latency, between_latency,
                    within_bandwidth, between_bandwidth, time.perf_counter() - began)  # fmt: skip


def _known_median(fits: np.ndarray) -> list[tuple[float | None, float | None]]:
    """For each kind of message the medians over ranks of fits (ranks, kinds, 2), NaN where a rank has none."""
    found: list[tuple[float | None, float | None]] = []
    for kind in range(fits.shape[1]):
        known = fits[np.isfinite(fits[:, kind, 0]), kind]
        latency, bandwidth = np.median(known, axis=0).tolist() if len(known) else (None, None)
        found.append((latency, bandwidth))
    return found


# -- computing ------------------------------------------------------------------------------------


def kernel_calls() -> list[tuple[float, Callable[[], object]]]:
    """The kernels that are timed, each with its units: FLOPs of a product, exponentials, bytes of a copy, calls."""
    rng = np.random.default_rng(0)
    eta, out, sums = rng.normal(size=(32, 153)), np.empty((32, 1300)), np.zeros((32, 153))
    tiles = itertools.cycle(rng.normal(size=(4, 153, 1300)))  # as in an E-step, features are not in the nearest cache
    scores = -np.abs(rng.normal(size=(32, 2048)))
    weights, offsets = np.full(32, -3.0), np.array([0, 32])
    top, total = np.zeros((1, 2048)), np.zeros((1, 2048))
    source = np.ones(1 << 20)
    target = np.empty_like(source)
    little = np.zeros(8)

    def products() -> None:
        x = next(tiles)
        product.scores(eta, x, out)
        product.add_sums(out, x, sums)

    return [
        (4.0 * 32 * 153 * 1300, products),
        (32.0 * 2048, lambda: add_exponentials(scores, weights, offsets, offsets[:-1], top, total)),
        (2.0 * source.nbytes, lambda: np.copyto(target, source)),
        (16.0, lambda: [np.add(little, little, out=little) for _ in range(16)]),
    ]


def _speeds(world: Axis, calls) -> np.ndarray:
    """Units a second of every kernel, (kernels,), on this rank while the others run the same. Collective."""
    found = []
    for units, call in calls:
        world.barrier()
        found.append(units * _calls_per_second(call))
    return np.array(found)


def _calls_per_second(call: Callable[[], object]) -> float:
    rates = []
    for _ in range(WINDOWS):
        count, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < WINDOW:
            call()
            count += 1
        rates.append(count / spent)
    return float(np.median(rates))


def relative_speeds(speeds: np.ndarray) -> np.ndarray:
    """Throughputs (ranks,) of speeds (rounds, ranks): few different ones, 1 for the median rank.

    A rank counts with the round in which it was nearest to the median rank, so that what disturbs it once does
    not matter. Ranks within 15 per cent of the median are alike; so are, of the others, those within 15 per
    cent of their median, and so on.
    """
    logs = np.log(speeds / np.median(speeds, axis=1, keepdims=True))
    nearest = np.take_along_axis(logs, np.abs(logs).argmin(axis=0)[None], axis=0)[0]
    result, left, base = np.empty(len(nearest)), np.arange(len(nearest)), None
    while len(left):
        centre = np.sort(nearest[left])[(len(left) - 1) // 2]
        base = centre if base is None else base
        alike = np.abs(nearest[left] - centre) <= math.log(ALIKE)
        result[left[alike]] = float(f"{math.exp(centre - base):.2g}")
        left = left[~alike]
    return result


# -- messages -------------------------------------------------------------------------------------


def partners(nodes: np.ndarray, rank: int) -> tuple[int | None, int | None]:
    """With whom a rank exchanges messages: its neighbour's number within the node, and a rank of another node.

    `nodes` (ranks,) names the node of each rank by a number. Nodes 0 and 1, 2 and 3 ... are paired, in order of
    their numbers, and so are the first, second ... ranks of the two. None for who is left over.
    """
    members = np.flatnonzero(nodes == nodes[rank])
    place = int(np.searchsorted(members, rank))
    names = np.unique(nodes)
    other = int(np.searchsorted(names, nodes[rank])) ^ 1
    across = np.flatnonzero(nodes == names[other]) if other < len(names) else ()
    inside = place ^ 1 if place ^ 1 < len(members) else None
    return inside, int(across[place]) if place < len(across) else None


def observations(axis: Axis, partner: int | None) -> np.ndarray:
    """(rounds of messages, bytes received, seconds, weight) of reductions and messages of all sizes, (k, 4).

    Plans have reductions only, so messages between pairs weigh less. Without other ranks k = 0. Collective.
    """
    if not isinstance(axis, MpiAxis) or axis.size == 1:
        return np.empty((0, 4))
    found, m = [], axis.size
    for values in SIZES:
        whole, piece = np.zeros(values), np.zeros(max(values // m, 1))
        reduced = axis_bytes(ReductionOp.SUM, m, values, 1)
        gathered = axis_bytes(ReductionOp.LOGSUMEXP, m, len(piece), 1)
        found += [
            (hops(m), reduced, _seconds(axis, partial(axis.allreduce, whole)), 1.0),
            (hops(m), gathered, _seconds(axis, partial(axis.allgather_array, piece)), 1.0),
            (1.0, whole.nbytes, _seconds(axis, partial(_there_and_back, axis, partner, whole)) / 2.0, PAIR),
        ]
    return np.array(found, dtype=float)


def _there_and_back(axis: MpiAxis, partner: int | None, message: np.ndarray) -> None:
    if partner is not None:
        ping_pong(axis, partner, message)


def _seconds(axis: Axis, call: Callable[[], object]) -> float:
    """Seconds of a call that ranks make together: the median, on the slowest rank. Collective.

    Calls are timed one by one: where other processes take the core from a rank, few calls wait for it.
    """
    call()
    times: list[float] = []
    spent, slowest = np.zeros(1), np.zeros(1)
    while len(times) < MOST and spent[0] < ENOUGH:
        for _ in range(CALLS):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        spent[0] = sum(times)
        axis.allreduce(spent, "max")  # so that all go on, or none
    slowest[0] = np.median(times)
    axis.allreduce(slowest, "max")
    return float(slowest[0])


def fit_network(observed: np.ndarray) -> tuple[float, float]:
    """Latency in seconds a round, and bandwidth in bytes a second, that explain `observations`; NaN without any.

    The least weighted sum of log((rounds * latency + bytes / bandwidth) / seconds)^2, large errors taken
    linearly (Huber), by Gauss-Newton steps in the logarithms, which keeps both numbers positive.
    """
    if not len(observed):
        return math.nan, math.nan
    rounds, nbytes, seconds, given = observed.T
    half = np.median(nbytes)
    start = np.log([np.median((seconds / rounds)[nbytes <= half]), np.median((seconds / nbytes)[nbytes >= half])])
    at = start.copy()
    for _ in range(50):
        parts = np.stack([rounds * np.exp(at[0]), nbytes * np.exp(at[1])])
        whole = parts.sum(axis=0)
        error, slope = np.log(whole / seconds), parts / whole
        weight = given / np.maximum(np.abs(error) / TOLERATED, 1.0)
        step = np.linalg.solve((slope * weight) @ slope.T + 1e-6 * np.eye(2), -(slope * weight) @ error)
        at = np.clip(at + np.clip(step, -1.0, 1.0), start - 7.0, start + 7.0)  # at most a factor of a thousand
        if np.abs(step).max() < 1e-9:
            break
    return float(np.exp(at[0])), float(np.exp(-at[1]))
