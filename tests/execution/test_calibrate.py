"""The measured machine: memory limits, speeds that noise does not part, fits of the network, and what is kept."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from mixle_mpi.execution import calibrate
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.calibrate import calibrated, fit_network, measured_resources, partners, relative_speeds
from mixle_mpi.execution.measured import Measured, cache_file, keep, recall
from mixle_mpi.execution.memory_limit import cgroup_limit, rank_memory, slurm_limit
from mixle_mpi.execution.threads import run_on_threads

MB, GB = 2**20, 2**30
NO_LIMIT = "9223372036854771712"  # of version 1

# -- memory ---------------------------------------------------------------------------------------


def groups(folder: Path, own: str, **limits: str) -> tuple[Path, Path]:
    """The file /proc/self/cgroup and the mounted groups; __ in a name is / of the path."""
    (folder / "own").write_text(own)
    for name, text in limits.items():
        path = folder / "mount" / name.replace("__", "/")
        path.mkdir(parents=True, exist_ok=True)
        file = "memory.limit_in_bytes" if name.startswith("memory") else "memory.max"
        (path / file).write_text(text + "\n")
    return folder / "own", folder / "mount"


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/job/step\n", {"job": "4000", "job__step": "max"}, 4000),
        ("0::/job/step\n", {"job": "4000", "job__step": "3000", "other": "5"}, 3000),
        ("0::/job/step\n", {"job": "2000", "job__step": "3000"}, 2000),
        ("0::/job\n", {"job": "max"}, None),
        ("5:cpu,memory:/job/a\n1:name=systemd:/x\n0::/\n", {"memory__job__a": NO_LIMIT, "memory__job": "700"}, 700),
        ("5:memory:/job\n", {"memory": NO_LIMIT, "memory__job": NO_LIMIT}, None),
        ("5:memory:/docker/abc\n", {"memory": "900"}, 900),  # the name outside the container
        ("0::/../..\n", {".": "800"}, 800),
        ("", {".": "600"}, 600),
        ("nonsense\n0::/job:with:colons\n", {"job:with:colons": "500"}, 500),
    ],
)
def test_limits_of_control_groups(tmp_path, own, limits, expected):
    assert cgroup_limit(*groups(tmp_path, own, **limits)) == expected


def test_no_control_groups_at_all(tmp_path):
    assert cgroup_limit(tmp_path / "absent", tmp_path / "nothing") is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"SLURM_MEM_PER_CPU": "2000"}, 2000 * MB),
        ({"SLURM_MEM_PER_CPU": "2000", "SLURM_CPUS_PER_TASK": "3"}, 6000 * MB),
        ({"SLURM_MEM_PER_NODE": "8000"}, 2000 * MB),
        ({"SLURM_MEM_PER_NODE": "0"}, None),  # all of the node
        ({"SLURM_MEM_PER_NODE": "8000", "SLURM_MEM_PER_CPU": "1000"}, 1000 * MB),
        ({"SLURM_MEM_PER_CPU": "much", "SLURM_CPUS_PER_TASK": ""}, None),
    ],
)
def test_limits_of_slurm(environment, expected):
    assert slurm_limit(4, environment) == expected


def test_a_rank_has_the_least_of_its_shares(tmp_path):
    own, mount = groups(tmp_path, "0::/job\n", job=str(8 * GB))

    def of(ranks=4, environment=(), physical=64 * GB, own=own):
        return rank_memory(ranks, dict(environment), own, mount, physical)

    assert of() == 2 * GB and of(ranks=1) == 8 * GB
    assert of(physical=4 * GB) == GB
    assert of(own=tmp_path / "absent") == 16 * GB
    assert of(environment={"SLURM_MEM_PER_CPU": "512"}) == GB // 2
    assert of(environment={"SLURM_MEM_PER_NODE": "1024"}) == GB // 4
    assert 0 < rank_memory(2) <= rank_memory(1)


# -- speeds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2, 3, 64])
def test_noise_does_not_make_ranks_unequal(ranks):
    rng = np.random.default_rng(ranks)
    speeds = 7e9 * np.exp(rng.uniform(-0.06, 0.06, (3, ranks)))
    assert (relative_speeds(speeds) == 1.0).all()


def test_a_disturbed_round_does_not_matter():
    speeds = np.full((3, 8), 5.0)
    speeds[0, 3], speeds[1, 6], speeds[2, 3] = 2.0, 9.0, 1.0
    assert (relative_speeds(speeds) == 1.0).all()
    speeds[1, 3] = 2.5
    assert relative_speeds(speeds).tolist() == [1.0] * 3 + [0.5] + [1.0] * 4


def test_kinds_of_ranks_are_told_apart():
    rng = np.random.default_rng(0)
    kinds = np.repeat([1.0, 0.5, 2.0], [20, 7, 5])
    order = rng.permutation(32)
    found = relative_speeds(3.0 * kinds[order] * np.exp(rng.uniform(-0.04, 0.04, (2, 32))))
    for kind in (1.0, 0.5, 2.0):
        (same,) = set(found[kinds[order] == kind].tolist())  # one number for all of a kind
        assert same == pytest.approx(kind, rel=0.06)
    assert (found[kinds[order] == 1.0] == 1.0).all()
    assert relative_speeds(np.array([[1.0, 1e-5]])).min() > 0  # never without any speed


# -- messages -------------------------------------------------------------------------------------


def test_partners_are_mutual():
    for nodes in ([0] * 5, [0, 1] * 3, [0, 0, 2, 2, 2, 5, 5], [0, 1, 2, 0, 1, 2, 0]):
        nodes = np.array(nodes)
        pairs = [partners(nodes, r) for r in range(len(nodes))]
        for rank, (inside, outside) in enumerate(pairs):
            members = np.flatnonzero(nodes == nodes[rank]).tolist()
            if inside is not None:
                assert members[inside] != rank and pairs[members[inside]][0] == members.index(rank)
            if outside is not None:
                assert nodes[outside] != nodes[rank] and pairs[outside][1] == rank
    assert partners(np.array([0, 1] * 2), 2) == (0, 3) and partners(np.zeros(1, int), 0) == (None, None)


def observed(latency: float, bandwidth: float) -> np.ndarray:
    rounds, nbytes = np.meshgrid([1.0, 3.0], [8.0, 512.0, 4096.0, 32768.0, 1e6])
    seconds = rounds * latency + nbytes / bandwidth
    return np.stack([rounds, nbytes, seconds, np.ones_like(seconds)], axis=-1).reshape(-1, 4)


@pytest.mark.parametrize(("latency", "bandwidth"), [(1e-6, 1e10), (2e-5, 1e8), (1e-3, 1e9), (1e-5, 1e7)])
def test_the_fit_finds_what_made_the_times(latency, bandwidth):
    assert fit_network(observed(latency, bandwidth)) == pytest.approx((latency, bandwidth), rel=1e-6)
    disturbed = observed(latency, bandwidth)
    disturbed[[1, 6], 2] *= 20.0
    assert fit_network(disturbed) == pytest.approx((latency, bandwidth), rel=0.3)


def test_the_fit_of_nothing_and_of_constant_times():
    assert np.isnan(fit_network(np.empty((0, 4)))).all()
    constant = observed(1e-6, 1e9)
    constant[:, 2] = 5e-6
    latency, bandwidth = fit_network(constant)
    assert 1e-6 < latency < 6e-6 and 0 < bandwidth < np.inf


# -- what is kept ---------------------------------------------------------------------------------

FOUND = Measured((1.0, 0.5), 4e10, 1e9, 2e10, 5e-7, latency_within=1e-6, bandwidth_within=3e9, seconds=1.5)
KEY = {"version": "1", "ranks": ["a", "b"]}


def test_the_file_is_where_the_user_wants_it():
    first = cache_file(KEY, {"XDG_CACHE_HOME": "/x"})
    assert first.parent == Path("/x/mixle_mpi")
    assert cache_file(KEY, {"XDG_CACHE_HOME": "/x", "MIXLE_MPI_CACHE": "/y/z"}) == Path("/y/z") / first.name
    assert cache_file(KEY, {}).parent == Path.home() / ".cache/mixle_mpi"
    for other in ({"version": "2"}, {"ranks": ["b", "a"]}):
        assert cache_file(KEY | other, {}).name != first.name


def test_what_is_kept_comes_back(tmp_path):
    path = tmp_path / "deep" / "file.json"
    assert recall(path, KEY, 2) is None
    keep(path, KEY, FOUND)
    again = recall(path, KEY, 2)
    assert again is not None and again.kept and [p.name for p in path.parent.iterdir()] == ["file.json"]
    assert dataclasses.replace(again, kept=False) == FOUND
    assert recall(path, KEY | {"version": "2"}, 2) is None and recall(path, KEY, 3) is None


@pytest.mark.parametrize(
    "change",
    [
        {"key": "0"}, {"throughputs": [1.0]}, {"throughputs": [1.0, 0.0]}, {"throughputs": None}, {"more": 1},
        {"flops_per_second": float("nan")}, {"flops_per_second": None}, {"latency_within": -1.0}, {"seconds": "long"},
        {"throughputs": [1.0, "1"]}, {"bandwidth_within": float("inf")}, {"throughputs": [1.0, 5e-324]},
        {"call_seconds": int("9" * 400)}, {"flops_per_second": 5e-324},
    ],
)  # fmt: skip
def test_a_damaged_file_is_none(tmp_path, change):
    path = tmp_path / "file.json"
    keep(path, KEY, FOUND)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert recall(path, KEY, 2) is None


@pytest.mark.parametrize("text", [b"", b"[1]", b"{", b"[" * 100_000, b"\xff\xfe", b"null", b'{"key": 3}'])
def test_what_is_no_file_of_ours_is_none(tmp_path, text):
    (tmp_path / "file.json").write_bytes(text)
    assert recall(tmp_path / "file.json", KEY, 2) is None


def test_where_nothing_can_be_written_nothing_is(tmp_path):
    (tmp_path / "file").write_text("no directory")
    keep(tmp_path / "file" / "below" / "m.json", KEY, FOUND)
    (tmp_path / "taken.json").mkdir()
    keep(tmp_path / "taken.json", KEY, FOUND)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "taken.json"]


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """Measuring in a few milliseconds, kept in a directory of the test."""
    monkeypatch.setenv("MIXLE_MPI_CACHE", str(tmp_path))
    monkeypatch.setattr(calibrate, "WINDOW", 1e-4)
    return tmp_path


def test_one_process_is_measured_once(quick):
    first = calibrated(Alone())
    assert not first.kept and first.throughputs == (1.0,) and first.flops_per_second > 1e7
    assert first.exps_per_second > 1e5 and first.stream_per_second > 1e6
    assert set(first.network.values()) == {None}
    again = calibrated(Alone())
    assert again.kept and again.flops_per_second == first.flops_per_second and again.seconds == first.seconds
    assert not calibrated(Alone(), anew=True).kept
    (file,) = quick.iterdir()
    file.write_text("damaged")
    assert not calibrated(Alone()).kept and calibrated(Alone()).kept
    machine = measured_resources(Alone(), first)
    assert machine.devices[0].memory_bytes == rank_memory(1) and machine.latency_within is None


def test_other_versions_and_threads_are_measured_anew(quick, monkeypatch):
    calibrated(Alone())
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert not calibrated(Alone()).kept
    monkeypatch.setattr(calibrate, "__version__", "0.0")
    assert not calibrated(Alone()).kept and calibrated(Alone()).kept
    assert len(list(quick.iterdir())) == 3


def test_all_ranks_have_the_same(quick):
    found = run_on_threads(3, 1, lambda grid: calibrated(grid.world))
    assert found[0] == found[1] == found[2] and len(found[0].throughputs) == 3
    again = run_on_threads(3, 1, lambda grid: measured_resources(grid.world, calibrated(grid.world)))
    assert again[0] == again[1] == again[2] and len(again[0].devices) == 3
    assert again[0].flops_per_second == found[0].flops_per_second and len(list(quick.iterdir())) == 1
