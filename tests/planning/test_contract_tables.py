"""Every worked case of the contract: what the plan must be, and what the reference got wrong."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mixle_mpi import (
    Categorical,
    Composite,
    DecompAxis,
    DeviceSpec,
    Gaussian,
    HiddenMarkov,
    Mixture,
    ModelParallelEstimator,
    MultivariateGaussian,
    Optional,
    Record,
    ReductionOp,
    Resources,
    auto_balanced_estimator,
    balance_plan,
    decompose_model,
    subtree_work,
)
from mixle_mpi.contract.work import Assumed
from mixle_mpi.models.hidden_markov import recursion_work
from mixle_mpi.planning.balance import plan_grid
from mixle_mpi.planning.profile import profile_of

G = Gaussian


def workers(count: int = 1, throughputs=None, memory=None) -> Resources:
    speeds = [1.0] * count if throughputs is None else throughputs
    rooms = memory if isinstance(memory, list) else [memory] * len(speeds)
    return Resources.from_specs(
        [DeviceSpec(f"d{i}", throughput=s, memory_bytes=m) for i, (s, m) in enumerate(zip(speeds, rooms))]
    )


# -- section 6 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("components", "rows", "count", "grid"),
    [(4, 10_000, 8, (8, 1)), (32, 1, 8, (1, 8)), (16, 4, 8, (4, 2))],
)
def test_worked_cases(components, rows, count, grid):
    plan = balance_plan(Mixture(G(), components), workers(count), n_data=rows)
    assert (plan.data_parallel, plan.model_parallel) == grid
    assert plan.workers_used == count and plan.workers_idle == 0


def test_a_model_that_is_too_big_is_cut_by_memory_and_the_rest_goes_to_the_rows():
    model = Mixture(MultivariateGaussian(20), 5000)
    room = 45 * 10**6
    whole = balance_plan(model, workers(16), n_data=10**5)
    assert whole.model_parallel == 1 and whole.extra["bytes"]["total"] > room
    plan = balance_plan(model, workers(16, memory=room), n_data=10**5)
    assert plan.fits and plan.model_parallel > 1 and plan.data_parallel > 1 and plan.workers_used == 16
    assert plan.extra["bytes"]["total"] <= room and "memory" in plan.rationale


def test_one_atomic_leaf_with_one_row_is_one_worker():
    plan = balance_plan(G(), workers(8), n_data=1)
    assert (plan.workers_used, plan.workers_idle, plan.axis) == (1, 7, DecompAxis.NONE)
    assert "7 workers idle" in plan.rationale and not plan.model_cuts


# -- section 8 -------------------------------------------------------------------------------------


def test_heavy_beside_light_components_leaves_no_worker_without_units():
    model = Mixture([MultivariateGaussian(100)] + [G()] * 63)
    plan = balance_plan(model, workers(16), n_data=4)
    assert all(c.stop > c.start for c in plan.model_cuts)
    assert plan.workers_used == plan.data_parallel * plan.model_parallel
    # the same grid with the cut that is forced: the heavy one alone
    one = balance_plan(model, workers(2), n_data=1)
    if one.is_model_parallel:
        assert (one.model_cuts[0].start, one.model_cuts[0].stop) == (0, 1)


def test_a_unit_that_does_not_fit_is_said_so():
    model = Mixture([MultivariateGaussian(100)] + [G()] * 15)
    heavy = 8 * (1 + 100 + 100 * 100)  # its weight, mean and covariance
    plan = balance_plan(model, workers(8, memory=heavy - 1), n_data=4)
    assert not plan.fits
    assert str(heavy) in plan.rationale and str(heavy - 1) in plan.rationale


def test_known_limits_hold_beside_unknown_ones():
    model, room = Mixture(MultivariateGaussian(20), 5000), 30 * 10**6
    limits = [room, None, room, room]
    plan = balance_plan(model, workers(4, memory=limits), n_data=10_000)
    assert balance_plan(model, workers(1), n_data=10_000).extra["bytes"]["total"] > room
    assert plan.fits and plan.extra["bytes"]["total"] > 0
    if plan.model_parallel == 1:
        assert set(np.ravel(plan.extra["devices"]).tolist()) == {1}
    else:
        assert all(c.device.memory_bytes is None or c.stop - c.start < 3000 for c in plan.model_cuts)
    tiny = balance_plan(Mixture([MultivariateGaussian(100)] * 8), workers(4, memory=[10, None, 10, 10]), n_data=4)
    assert tiny.fits and np.ravel(tiny.extra["devices"]).tolist() == [1]


def test_a_look_up_is_cheap_whatever_the_vocabulary():
    light, heavy = Categorical(list(range(100_000))), MultivariateGaussian(50)
    assert subtree_work(heavy) >= 20 * subtree_work(light)
    assert subtree_work(light) == subtree_work(Categorical(list(range(1000))))


def test_a_longer_sequence_costs_more():
    def work(steps):
        return profile_of(HiddenMarkov(G(), 20), Assumed({"length": {"": steps}})).load.e_step

    assert work(200) == pytest.approx(4 * work(50), rel=1e-3)


def test_a_dense_chain_says_what_cutting_its_states_gains():
    """The recursion is S x S a step. Two sequences are divided in time; as part of a record, by states."""
    recursion = recursion_work(200).flops * 100
    two = balance_plan(HiddenMarkov(G(), 200), workers(2), n_data=2)
    assert two.per_worker_flops > recursion and two.model_parallel == 1
    plan = balance_plan(HiddenMarkov(G(), 200), workers(16), n_data=2)
    assert plan.data_parallel == 16 and plan.per_worker_flops > 2 * recursion / 16
    gain = two.extra["seconds"]["total"] / plan.extra["seconds"]["total"]
    assert 3 < gain < 8 and f"{gain:.4g}x faster" in plan.rationale and "in time" in plan.rationale
    inside = plan_grid(Record(x=HiddenMarkov(G(), 200), y=G()), workers(16), n_data=2, nested=False)
    assert inside.axis is DecompAxis.STATE and inside.extra["cuts"][0]["units"] == 200
    assert inside.per_worker_flops > recursion / 8 and "faster" in inside.rationale


def test_two_mixtures_side_by_side_are_sixteen_units():
    model = Composite(Mixture(G(), 8), Mixture(G(), 8))
    plan = balance_plan(model, workers(16), n_data=1)
    assert plan.workers_used == 16 and plan.model_parallel == 16
    assert [c["path"] for c in plan.extra["cuts"]] == ["", "factor_0", "factor_1"]
    assert plan.extra["cuts"][2]["ranges"][8:] == [(k, k + 1) for k in range(8)]
    single = plan_grid(model, workers(16), n_data=1, nested=False)
    assert len(single.extra["cuts"]) <= 1 and single.workers_used <= 8


def test_nine_rows_on_eight_workers_are_two_for_somebody():
    plan = balance_plan(Mixture(MultivariateGaussian(20), 100), workers(8), n_data=9)
    assert (plan.data_parallel, plan.model_parallel) == (1, 8)


def test_speeds_are_used():
    model = Mixture(G(), 12)
    slow = decompose_model(model, workers(throughputs=[4, 1, 1, 1]), n_data=1)
    assert max(c.stop - c.start for c in slow.cuts[1:]) == 2
    fast = decompose_model(model, workers(throughputs=[1, 100]), n_data=1)
    assert [(c.start, c.stop) for c in fast.cuts] == [(0, 0), (0, 12)]
    assert fast.axis is DecompAxis.COMPONENT and not fast.is_model_parallel


@pytest.mark.parametrize("components", [7, 8, 9])
def test_there_is_no_cliff_at_a_multiple_of_the_workers(components):
    found = decompose_model(Mixture(G(), components), workers(4), n_data=10**6)
    assert found.axis is DecompAxis.NONE and found.reduction is ReductionOp.REPLICATE and not found.cuts
    assert balance_plan(Mixture(G(), components), workers(4), n_data=10**6).model_parallel == 1


def test_a_mixture_below_a_wrapper_is_found():
    plan = balance_plan(Optional(Mixture(G(), 8)), workers(8), n_data=2)
    assert plan.axis is DecompAxis.COMPONENT and plan.extra["cut"] == "of" and plan.workers_used == 8


# -- what plans have in common ---------------------------------------------------------------------


def test_decompose_covers_every_unit_and_keeps_the_minimum():
    model = Mixture([MultivariateGaussian(9)] + [G()] * 10)
    found = decompose_model(model, workers(4), n_data=1, min_components_per_shard=3)
    assert [c.start for c in found.cuts[1:]] == [c.stop for c in found.cuts[:-1]]
    assert found.cuts[-1].stop == 11 and all(c.stop - c.start in (0, *range(3, 12)) for c in found.cuts)
    assert decompose_model(model, workers(4), prefer_data_parallel=False).is_model_parallel
    assert decompose_model(G(), workers(4), n_data=1).axis is DecompAxis.NONE


def test_the_estimator_is_wrapped_only_when_the_model_is_cut():
    model = Mixture(G(), 32)
    wrapped, plan = auto_balanced_estimator(model, model, workers(8), n_data=1)
    assert wrapped == ModelParallelEstimator(model, 8) and plan.is_model_parallel
    plain, _ = auto_balanced_estimator(model, model, workers(8), n_data=10_000)
    assert plain is model


def test_cuts_are_contiguous_and_the_load_is_the_true_one():
    model = Mixture(MultivariateGaussian(5), 30)
    plan = balance_plan(model, workers(7), n_data=1)
    bounds = plan.extra["bounds"]
    assert bounds[0] == 0 and bounds[-1] == 30
    widest = max(b - a for a, b in pairwise(bounds))
    profile = profile_of(model)
    unit = profile.runs[0].profile.load
    e_step = profile.own.e_step + profile.cost.cut.flops + widest * (unit.flops + profile.unit.flops) + unit.row_flops
    assert plan.per_worker_flops == pytest.approx(e_step + widest * unit.banks[0].flops)
