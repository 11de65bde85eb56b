"""A grid of unequal devices whose places are given: borders of rows and units against all that there are."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

from mixle_mpi import DeviceSpec, Mixture, ModelError, MultivariateGaussian, Poisson, Resources
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.calibrate import relative_speeds
from mixle_mpi.execution.choose import WORTH, asked, choose, differing, given_resources
from mixle_mpi.execution.load import read
from mixle_mpi.planning.balance import plan_on, plan_shape


def machine(*throughputs: float, **known) -> Resources:
    return Resources(tuple(DeviceSpec(f"r{k}", throughput=float(t)) for k, t in enumerate(throughputs)), **known)


def bound(n: int, k: int):
    """A mixture of light and heavy components, on n rows."""
    parts = [MultivariateGaussian(3, structure="full" if j % 3 else "diagonal") for j in range(k)]
    return read(np.random.default_rng(n).normal(size=(n, 3)), Mixture(parts), Alone()).model


@pytest.mark.parametrize("seed", range(10))
def test_no_other_borders_are_faster(seed):
    rng = np.random.default_rng(seed)
    shape = [(2, 2), (1, 3), (2, 1), (1, 2), (3, 1)][seed % 5]
    n, k = int(rng.integers(6, 12)), int(rng.integers(3, 6))
    model, resources = bound(n, k), machine(*rng.choice([0.5, 1.0, 2.0, 3.0, 4.0], shape[0] * shape[1]))
    cut = "" if shape[1] > 1 else None
    choice = asked(model, n, resources, shape, cut)
    everything = [
        plan_on(model, resources, n_data=n, shape=shape, cut=cut, rows=[0, *rows, n],
                bounds=[0, *units, k] if cut == "" else None).extra["seconds"]["total"]
        for rows in combinations_with_replacement(range(n + 1), shape[0] - 1)
        for units in combinations_with_replacement(range(k + 1), shape[1] - 1)
    ]  # fmt: skip
    assert min(everything) <= choice.plan.extra["seconds"]["total"] <= min(everything) / WORTH


def test_devices_keep_their_places():
    model = read(np.zeros(40000), Mixture(Poisson(), 6), Alone()).model
    fast_last = plan_shape(model, machine(1.0, 3.0), n_data=40000, shape=(2, 1), cut=None, devices=[[0], [1]])
    assert fast_last.extra["devices"].tolist() == [[0], [1]]
    assert 9000 < fast_last.extra["rows"][1] <= 10000  # a quarter, less its M-step
    swapped = plan_shape(model, machine(1.0, 3.0), n_data=40000, shape=(2, 1), cut=None)
    assert swapped.extra["devices"].tolist() == [[1], [0]]


def test_a_slow_device_is_slow_at_calls_too():
    """Where calls are all that takes time, rows go by speed as well."""
    model, n = read(np.zeros(10**6), Mixture(Poisson(), 6), Alone()).model, 10**6
    slow = asked(model, n, machine(1.0, 3.0, call_seconds=1e-4), (2, 1), None)
    assert 0.2 < slow.row_bounds[1] / n < 0.25
    single = plan_on(model, machine(3.0, call_seconds=1e-4), n_data=400, shape=(1, 1), cut=None)
    thrice = plan_on(model, machine(1.0, call_seconds=1e-4), n_data=400, shape=(1, 1), cut=None)
    assert thrice.extra["seconds"]["total"] == pytest.approx(3 * single.extra["seconds"]["total"])


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_noise_of_a_measurement_leaves_borders_even(ranks):
    rng, model = np.random.default_rng(ranks), bound(5000, 6)
    for _ in range(50):
        speeds = relative_speeds(3e9 * np.exp(0.05 * rng.uniform(-1, 1, (3, ranks))))
        assert (speeds == 1.0).all()
    choice = asked(model, 5000, machine(*speeds), (ranks, 1), None)
    assert choice.row_bounds is None and choice.bounds is None


def test_given_numbers_win_over_known_ones():
    found, note = given_resources(Alone(), machine(2.5, latency_within=1e-3))
    assert (found.devices[0].throughput, found.latency_within, note) == (2.5, 1e-3, "")
    assert found.devices[0].memory_bytes > 0 and found.call_seconds > 0  # which are not given
    with pytest.raises(ModelError, match="there are 3 of them, but 1 rank$"):
        given_resources(Alone(), machine(1, 2, 3))
    assert differing(machine(1, 3), machine(1, 3.3)) == "" == differing(machine(2, 2), machine(1, 1))
    assert "rank 1 is given as 3 times as fast as rank 0, and was measured as 1 times" in differing(
        machine(1, 3), machine(1, 1)
    )


def test_borders_that_were_asked_for_are_kept():
    """A resumed fit has the same rows, whatever is measured now."""
    model = bound(5000, 6)
    first = choose(model, 5000, Alone(), machine(1, 3), shape=(2, 1), note="as given")
    assert first.row_bounds is not None and first.as_data()["note"] == "as given"
    again = choose(model, 5000, Alone(), machine(1, 1), shape=(2, 1), kept=first.record())
    assert (again.how, again.row_bounds) == ("asked", first.row_bounds)
    other = choose(model, 5000, Alone(), machine(1, 1), shape=(1, 2), kept=first.record())
    assert (other.how, other.row_bounds) == ("asked", None)
