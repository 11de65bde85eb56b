"""Sizes and costs: exact bytes, structure is enough, keys are held once, all children count."""

from __future__ import annotations

import time

import numpy as np
import pytest

from mixle_mpi import (
    Categorical,
    Composite,
    DecompAxis,
    DeviceSpec,
    Gaussian,
    GaussianProcess,
    HiddenMarkov,
    LatentDirichletAllocation,
    Mixture,
    ModelError,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    Resources,
    Sequence,
    balance_plan,
    best_parallel_axis,
    compute_cost,
    cost_children,
    optimize,
    shard_children,
    size_model_tree,
    subtree_work,
    tree_axes,
)
from mixle_mpi.contract.work import Assumed, Work
from mixle_mpi.execution import shard, tiles
from mixle_mpi.models.registry import BY_NAME
from mixle_mpi.models.specification import build, describe
from mixle_mpi.planning import shards
from mixle_mpi.planning.paths import cuts_of
from mixle_mpi.planning.profile import Held, profile_of


def flat(size):
    yield size
    for child in size.children:
        yield from flat(child)


def test_own_bytes_are_those_of_the_declared_fields():
    size = size_model_tree(Mixture(MultivariateGaussian(3), 4))
    assert (size.own_param_bytes, size.subtree_param_bytes) == (8 * 4, 8 * (4 + 4 * (3 + 9)))
    assert [c.path for c in size.children] == [f"component_{k}" for k in range(4)]
    hmm = size_model_tree(HiddenMarkov(Gaussian(), 5))
    assert (hmm.own_param_bytes, hmm.subtree_param_bytes) == (8 * (5 + 25), 8 * (5 + 25 + 5 * 2))
    assert size_model_tree(GaussianProcess(10)).own_param_bytes == 8 * 4
    product = GaussianProcess(np.eye(3), "rbf(length_scale=[1, 1, 1]) * matern12")
    assert size_model_tree(product).own_param_bytes == 8 * (1 + 1 + 3 + 1)
    assert size_model_tree(LatentDirichletAllocation(4, 100)).subtree_param_bytes == 8 * (4 + 400)


def test_paths_are_unique_and_bytes_add_up():
    model = Mixture([Composite(Gaussian(), Optional(Mixture(Poisson(), 2))), Composite(Poisson(), Gaussian())])
    size = size_model_tree(model)
    paths = [s.path for s in flat(size)]
    assert len(set(paths)) == len(paths) and "component_0/factor_1/of/component_1" in paths
    assert sum(s.own_param_bytes for s in flat(size)) == size.subtree_param_bytes == compute_cost(model)[1]


def test_bytes_are_those_of_the_flat_buffer_of_a_fit():
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=60), "v": rng.normal(size=60), "w": rng.normal(size=60), "c": list("aab") * 20}
    model = Mixture(Record({"x": Optional(Gaussian()), "m": MultivariateGaussian(structure="tied"),
                            "c": Categorical(pseudo_count=1)}, columns={"m": ["v", "w"]}), 3)  # fmt: skip
    fitted = optimize(data, model, max_iter=1).model
    layout = shard.layout_of(shard.compile_tree(fitted, None, True))
    assert compute_cost(fitted)[1] == 8 * layout.num_params


def test_an_estimator_and_its_fitted_model_are_planned_alike():
    rng = np.random.default_rng(0)
    data = np.concatenate([rng.normal(size=(40, 2)), 5 + rng.normal(size=(40, 2))])
    model = Mixture(MultivariateGaussian(2), 2)
    fitted = optimize(data, model, max_iter=2).model
    assert compute_cost(fitted) == compute_cost(model)
    assert size_model_tree(fitted) == size_model_tree(model)
    a, b = (balance_plan(m, Resources.local(5), n_data=3) for m in (model, fitted))
    assert (a.data_parallel, a.model_cuts, a.per_worker_flops, a.rationale) == (
        b.data_parallel, b.model_cuts, b.per_worker_flops, b.rationale)  # fmt: skip


def test_copies_have_parameters_of_their_own_and_keys_share():
    assert compute_cost(Mixture([Gaussian()] * 63)) == compute_cost(Mixture(Gaussian(), 63))
    shared = Composite(Gaussian(key="a"), Gaussian(), Gaussian(key="a"))
    assert [c.own_param_bytes for c in size_model_tree(shared).children] == [16, 16, 0]
    assert compute_cost(shared)[1] == 32
    assert subtree_work(shared) == pytest.approx(subtree_work(Composite(*[Gaussian()] * 3)))
    keyed = Mixture(Gaussian(key="k"), 10)
    assert compute_cost(keyed)[1] == 8 * (10 + 2) == size_model_tree(keyed).subtree_param_bytes


def test_a_shard_is_charged_once_for_a_key_that_it_holds():
    model = Mixture([Gaussian(key="a"), Gaussian(), Gaussian(key="a"), Gaussian()])
    (cut,) = cuts_of(profile_of(model))
    made = shards.Shards(cut, shards.Job(1, 1, 1.0, 0.0), [1.0], [float("inf")])

    def params(a, b):
        return made.state(a, b).held.params

    assert [params(0, 1), params(0, 2), params(0, 3), params(0, 4)] == [3, 6, 7, 10]
    assert params(2, 3) == params(0, 1)


def test_children_for_cost_and_for_cutting():
    hmm = HiddenMarkov(Gaussian(), 4, length=Poisson())
    assert len(cost_children(hmm)) == 5 and len(shard_children(hmm)) == 4
    assert shard_children(Gaussian()) == () == shard_children(Optional(Gaussian()))
    assert cost_children(Sequence(Gaussian(), Poisson())) != ()
    assert size_model_tree(Sequence(Gaussian())).axis is DecompAxis.SEQUENCE
    with pytest.raises(TypeError, match="not a model"):
        cost_children([Gaussian()])


def test_axes_of_every_member_by_their_own_paths():
    model = Mixture(Composite(Gaussian(), Mixture(Gaussian(), 3)), 2)
    axes = tree_axes(model)
    assert [a.path for a in axes] == ["", "component_0", "component_0/factor_1", "component_1", "component_1/factor_1"]
    assert all(a.num_units == len(a.unit_works) for a in axes)
    assert axes[0].total_work <= subtree_work(model)
    inner = [a.path for a in tree_axes(HiddenMarkov(Optional(Mixture(Gaussian(), 2)), 2))]
    assert inner == ["", "state_0/of", "state_1/of"]
    assert tree_axes(Gaussian()) == []


def test_the_best_axis_is_the_heaviest_that_divides():
    buried = Composite(Poisson(), Mixture(MultivariateGaussian(10), 20))
    assert best_parallel_axis(buried, 8).path == "factor_1"
    assert best_parallel_axis(Gaussian(), 8) is None and best_parallel_axis(buried, 1) is None
    lopsided = Composite(Mixture([MultivariateGaussian(100)] + [Gaussian()] * 9), Mixture(MultivariateGaussian(40), 8))
    assert best_parallel_axis(lopsided, 8).path == "factor_1"
    everyone = best_parallel_axis(Mixture(Mixture(Gaussian(), 100), 2), 100)
    assert everyone.path == "component_*" and everyone.num_units == 100


def test_shared_fields_are_held_by_every_shard():
    tied = profile_of(Mixture(MultivariateGaussian(10, structure="tied"), 4))
    (cut,) = cuts_of(tied)
    assert tied.load.total_held.params == 4 * (1 + 10) + 100
    assert cut.groups[0].held == Held(100, 1 + 55, 0)


def test_unknown_counts_are_assumed_noted_and_can_be_given():
    model = Record(a=Categorical(), b=MultivariateGaussian(), c=Sequence(Gaussian()))
    notes = balance_plan(model, Resources.local(1), n_data=10).extra["assumed"]
    assert {"levels of a": 16, "dim of b": 8, "length of c": 100}.items() <= notes.items()
    assumed = Assumed({"levels": {"a": 3}, "dim": {"": 2}, "length": {"c": 7}})
    profile_of(model, assumed)
    assert not assumed.notes
    columns = Record({"m": MultivariateGaussian()}, columns={"m": ["x", "y", "z"]})
    assert compute_cost(columns)[1] == 8 * (3 + 9)


def test_models_are_planned_before_there_are_data():
    assert {"gaussian_process", "hidden_markov", "latent_dirichlet_allocation", "sequence"} <= set(BY_NAME)
    models = [HiddenMarkov([Gaussian(), Poisson()], length=Poisson()),
              LatentDirichletAllocation(3, 50, alpha=0.1), Sequence(Gaussian(), Poisson(2.0))]  # fmt: skip
    for model in models:
        assert describe(build(describe(model))) == describe(model)
        assert balance_plan(model, Resources.local(4), n_data=100).fits
    for wrong in (lambda: HiddenMarkov(Gaussian()), lambda: HiddenMarkov(Gaussian(), 2, initial=[1, 1]),
                  lambda: LatentDirichletAllocation(0, 5), lambda: Sequence(3)):
        with pytest.raises(ModelError):
            wrong()


def test_work_is_a_vector_of_kinds():
    both = Work(exp=1.0, gemm=2.0) + Work(exp=3.0) * 2.0
    assert both == Work(exp=7.0, gemm=2.0)
    assert Work(gemm=5.0).flops == 5.0 and Work(exp=1.0).flops > 10.0


def test_the_planner_knows_the_executors_tiles():
    assert (shards.TILE_VALUES, shards.TILE_ROWS, shards.TILES_IN_FLIGHT) == (
        tiles.TILE_VALUES, tiles.TILE_ROWS, tiles.TILES_IN_FLIGHT)  # fmt: skip


@pytest.mark.timed
@pytest.mark.parametrize(("ranks", "limit"), [(4096, 1.0), (65536, 5.0)])
@pytest.mark.parametrize("rows", [10**9, 100])
def test_planning_is_fast(ranks, limit, rows):
    resources = Resources(tuple(DeviceSpec(f"d{i}", memory_bytes=4 * 10**9) for i in range(ranks)))
    model = Mixture(Gaussian(), 100_000)
    balance_plan(model, resources, n_data=5)
    best = min(_seconds(lambda: balance_plan(model, resources, n_data=rows)) for _ in range(2))
    assert best < limit


def _seconds(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
