"""Machines: files there and back, Spark's attributes, limits, and what the network costs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from mixle_mpi import DeviceSpec, Gaussian, Mixture, ModelError, Resources, balance_plan
from mixle_mpi.contract.decomposition import ReductionOp
from mixle_mpi.planning.coupling import axis_bytes, data_axis_seconds, hops, model_axis_seconds, network_of
from mixle_mpi.planning.grids import pools_of
from mixle_mpi.planning.machine import parse_bytes
from mixle_mpi.planning.profile import Sent

MACHINES = Path(__file__).parents[2] / "slurm" / "machines"


@pytest.mark.parametrize(("name", "cores", "nodes"), [("laptop", 2, 1), ("node", 64, 1), ("cluster", 262144, 4096)])
def test_the_machines_that_come_along(name, cores, nodes):
    machine = Resources.from_file(MACHINES / f"{name}.toml")
    assert len(machine.devices) == cores and len({d.node for d in machine.devices}) == nodes
    assert machine.latency_within is not None and machine.bandwidth_within is not None
    assert all(d.memory_bytes == 4 * 10**9 for d in machine.devices[:: max(cores // 7, 1)])


def test_part_of_a_machine():
    few = Resources.from_file(MACHINES / "cluster.toml", 130)
    assert [d.node for d in few.devices[::64]] == ["node0", "node1", "node2"]
    wide = Resources.from_file(MACHINES / "cluster.toml", 4096, 1)
    assert len({d.node for d in wide.devices}) == 4096 and wide.devices[0].memory_bytes == 256 * 10**9
    for ranks, each in [(65, None), (0, None), (2, 65), (2, 0)]:
        with pytest.raises(ModelError):
            Resources.from_file(MACHINES / "node.toml", ranks, each)


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_files_there_and_back(tmp_path, suffix):
    devices = [DeviceSpec(f"rank{r}", "cpu", 10**9, 1.0 + (r > 5), f"node{r // 3}") for r in range(9)]
    machine = Resources(tuple(devices), latency_between=2e-6, bandwidth_within=1e9, flops_per_second=3e10)
    machine.to_file(tmp_path / f"m.{suffix}")
    again = Resources.from_file(tmp_path / f"m.{suffix}")
    assert again == machine
    unknown = Resources.local(3)
    unknown.to_file(tmp_path / f"u.{suffix}")
    found = Resources.from_file(tmp_path / f"u.{suffix}")
    assert [(d.memory_bytes, d.throughput) for d in found.devices] == [(None, 1.0)] * 3
    assert found.latency_within is None


def test_the_ranks_of_a_node_are_together_in_the_file(tmp_path):
    cyclic = Resources(tuple(DeviceSpec(f"rank{r}", memory_bytes=10**9, node="ab"[r % 2]) for r in range(8)))
    cyclic.to_file(tmp_path / "m.toml")
    devices = Resources.from_file(tmp_path / "m.toml").devices
    assert [d.node for d in devices] == ["node0"] * 4 + ["node1"] * 4
    assert {d.memory_bytes for d in devices} == {10**9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes = 3", "list"),
        ("[[nodes]]\ncorse = 2", "did you mean 'cores'"),
        ("[[nodes]]\ncores = 0", "cores = 0"),
        ('[[nodes]]\nmemory = "4 XB"', "memory = '4 XB'"),
        ("[[nodes]]\n[network]\nlatency = 1", "latency"),
        ("[[nodes]]\nthroughput = -1", "throughput = -1"),
        ("[[nodes", "not TOML"),
        ("[[nodes]]\nthroughput = 1" + "0" * 400, "throughput"),
        ("[[nodes]]\nthroughput = 1e308", "throughput"),
        ("[[nodes]]\nmemory = 3\ncores = 4", "3 bytes for 4 cores"),
        ('[[nodes]]\nmemory = "1e400GB"', "memory"),
        ("[[nodes]]\ncount = 100000000000", "more than the"),
    ],
)
def test_what_is_no_machine_is_refused(tmp_path, text, message):
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises(ModelError, match=message):
        Resources.from_file(path)


def test_sizes_in_words():
    assert [parse_bytes(v, "x") for v in ("4GB", "2 KiB", "1.5e3", 7, "1TB")] == [4 * 10**9, 2048, 1500, 7, 10**12]
    for wrong in ("", "GB", "-1", "1.2.3GB", True, 0, 0.5, "0.5", ".", float("inf"), None, 10**400):
        with pytest.raises(ModelError):
            parse_bytes(wrong, "x")


class Conf:
    def __init__(self, **values):
        self.values = {k.replace("_", "."): v for k, v in values.items()}

    def get(self, name, default=None):
        return self.values.get(name, default)


class Context:
    """The documented attributes of a SparkContext."""

    def __init__(self, master, slots, **conf):
        self.master, self.defaultParallelism, self._conf = master, slots, Conf(**conf)

    def getConf(self):
        return self._conf


def test_spark_is_read_from_its_documented_attributes():
    cluster = Resources.from_spark(Context("yarn", 8, spark_executor_cores="4", spark_executor_memory="8g"))
    assert len(cluster.devices) == 8 and {d.memory_bytes for d in cluster.devices} == {2 * 2**30}
    assert [d.node for d in cluster.devices] == ["executor0"] * 4 + ["executor1"] * 4
    local = Resources.from_spark(Context("local[2]", 2))
    assert [d.memory_bytes for d in local.devices] == [None, None]


def test_a_device_without_speed_is_refused():
    with pytest.raises(ModelError, match="throughput"):
        DeviceSpec("d", throughput=0.0)


def test_unknown_networks_cost_nothing_and_known_ones_by_message_and_byte():
    assert not network_of(Resources.local(4)).known
    machine = Resources(Resources.local(4).devices, latency_within=1e-6, bandwidth_within=1e9)
    net = network_of(machine)
    assert hops(5) == 3
    # a maximum and a sum (16 bytes) of each of 10 rows from each of 3 others
    assert axis_bytes(ReductionOp.LOGSUMEXP, 4, 2.0, 10) == 480
    assert axis_bytes(ReductionOp.SUM, 4, 1.0, 10) == 120
    assert model_axis_seconds(net, 4, 480, 1) == pytest.approx(2e-6 + 480e-9)
    assert model_axis_seconds(net, 1, 480, 1) == 0.0
    # 100 statistics and 50 parameters, three quarters of which move; two reductions and the header
    assert data_axis_seconds(net, 4, 1, Sent(dealt=100, gathered=50)) == pytest.approx(6e-6 + 900e-9)


def test_a_slow_network_makes_plans_smaller():
    model, devices = Mixture(Gaussian(), 4), Resources.local(64).devices
    free = balance_plan(model, Resources(devices), n_data=64)
    slow = balance_plan(model, Resources(devices, latency_within=1e-3), n_data=64)
    assert free.workers_used == 64 and slow.workers_used == 1
    assert "network" in slow.rationale and slow.extra["seconds"]["data_axis"] == 0.0


def test_throughputs_share_the_rows():
    devices = [DeviceSpec(f"d{i}", throughput=t) for i, t in enumerate([4.0, 1.0, 1.0])]
    plan = balance_plan(Gaussian(), Resources.from_specs(devices), n_data=6_000_000)
    rows = plan.extra["rows"]
    assert plan.data_parallel == 3 and rows[1] - rows[0] == pytest.approx(4_000_000, rel=1e-3)


def cyclic(throughput=lambda rank: 1.0, nodes=2) -> Resources:
    """Eight ranks dealt to nodes in turn."""
    devices = [DeviceSpec(f"rank{r}", throughput=throughput(r), node=f"n{r % nodes}") for r in range(8)]
    return Resources.from_specs(devices)


def test_model_groups_stay_on_a_node():
    """Ranks are placed on two nodes in turn, and messages between nodes are slow."""
    resources = dataclasses.replace(cyclic(), latency_within=1e-6, bandwidth_within=2e9,
                                    latency_between=1e-3, bandwidth_between=1e7)  # fmt: skip
    plan = balance_plan(Mixture(Gaussian(), 1_000_000), resources, n_data=100_000)
    assert (plan.data_parallel, plan.model_parallel) == (2, 4)
    assert plan.extra["devices"].tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_devices_are_taken_fastest_first_then_node_by_node_then_by_rank():
    def order(resources):
        return [pool.numbers.tolist() for pool in pools_of(resources)]

    assert order(cyclic()) == [[0, 2, 4, 6, 1, 3, 5, 7]]
    assert order(cyclic(nodes=3)) == [[0, 3, 6, 1, 4, 7, 2, 5]]
    assert order(cyclic(lambda r: 2.0 if r in (3, 6, 7) else 1.0)) == [[6, 3, 7, 0, 2, 4, 1, 5]]
    assert order(Resources.local(4)) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("rows", [0, -1, True, 2.5])
def test_rows_that_are_none_are_refused(rows):
    with pytest.raises(ModelError, match="n_data"):
        balance_plan(Gaussian(), Resources.local(2), n_data=rows)


def test_no_devices_are_refused():
    with pytest.raises(ModelError, match="no device"):
        balance_plan(Gaussian(), Resources.from_specs([]), n_data=2)
