"""The answer does not depend on the grid: threads as ranks, no MPI."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workload import assert_same, difference, rows, trees

from mixle_mpi import DataError, Exponential, Gaussian, Mixture, ModelError, Poisson, Record, Resources
from mixle_mpi.contract.decomposition import Partial, ReductionOp
from mixle_mpi.execution.axis import Alone, checked
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.partials import reduce_partial
from mixle_mpi.execution.threads import run_on_threads

DATA = rows()
GRIDS = [(2, 1), (1, 2), (2, 2), (1, 3)]
LARGER = [(3, 2), (1, 5)]
ITERATIONS = 4
REFERENCE: dict = {}


def reference(name: str):
    if name not in REFERENCE:
        REFERENCE[name] = fit(DATA, trees()[name][0], serial_grid(), max_iter=ITERATIONS, tol=None)
    return REFERENCE[name]


@pytest.mark.parametrize("name", trees())
def test_every_grid_and_cut_equals_serial(name):
    """The larger grids, which take long, have every other cut."""
    model, cuts = trees()[name]
    serial = reference(name)
    assert serial.history[-1] >= serial.history[0]
    tried = [(shape, cut) for shape in GRIDS for cut in (cuts if shape[1] > 1 else [None])]
    tried += [(LARGER[k % 2], cut) for k, cut in enumerate(cuts)]
    for shape, cut in tried:
        if shape[1] > 1 and name == "atomic":
            continue
        results = run_on_threads(*shape, lambda g, c=cut: fit(DATA, model, g, max_iter=ITERATIONS, tol=None, cut=c))
        for result in results:
            assert_same(result, serial)
            # and every rank has the same bytes
            assert result.model.state.theta.tobytes() == results[0].model.state.theta.tobytes()
            assert result.history == results[0].history


def test_reduction_left_out_is_noticed():
    """The negative control: without the sum over the data axis the comparison must fail."""
    model = trees()["nested"][0]
    options = {"max_iter": ITERATIONS, "tol": None, "reduce_statistics": False}
    result = run_on_threads(2, 1, lambda g: fit(DATA, model, g, **options))[0]
    levels, parameters = difference(result, reference("nested"))
    assert levels > 1e-6 and parameters > 1e-3


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(n=st.integers(1, 60), k=st.integers(1, 7), d=st.integers(1, 4), m=st.integers(1, 4), seed=st.integers(0, 99))
def test_any_size_on_any_grid(n, k, d, m, seed):
    """Not divisible, more ranks than rows, more shards than components."""
    k = min(k, n)
    data = rows(n, seed)
    model = Mixture(Record(e=Gaussian(), b=Poisson()), k)
    for row in data:
        row["e"] = 1.0 if row["e"] is None else row["e"]
    serial = fit(data, model, serial_grid(), max_iter=3, tol=None, seed=seed, cut=None)
    cut = "component_*" if k == 1 or seed % 2 else ""
    for result in run_on_threads(d, m, lambda g: fit(data, model, g, max_iter=3, tol=None, seed=seed, cut=cut)):
        assert_same(result, serial)


def test_empty_shards_p02():
    """5 rows on 8 ranks, on either axis."""
    data = DATA[:5]
    model = Mixture(Record(b=Poisson()), 2)
    serial = fit(data, model, serial_grid(), max_iter=5, tol=None)
    for shape in ((8, 1), (1, 8), (2, 4)):
        for result in run_on_threads(*shape, lambda g: fit(data, model, g, max_iter=5, tol=None)):
            assert_same(result, serial)


@pytest.mark.parametrize("layout", [(0, 5, 5), (10, 0, 0), (3, 0, 7)])
def test_own_rows_of_each_rank_p02(layout):
    """Each rank brings its own rows, some none: the same as all rows on one rank."""
    x = np.random.default_rng(3).normal(size=10)
    borders = np.concatenate([[0], np.cumsum(layout)])
    serial = fit(x, Mixture(Gaussian(), 2), serial_grid(), max_iter=5, tol=None)

    def own(grid):
        part = x[borders[grid.world.rank] : borders[grid.world.rank + 1]]
        return fit(part, Mixture(Gaussian(), 2), grid, max_iter=5, tol=None, local=True)

    for shape in ((3, 1), (1, 3)):
        for result in run_on_threads(*shape, own):
            assert_same(result, serial)


def test_large_offset_n01():
    """Ranks hold [1e8 + 1, 1e8 + 2], [], [1e8 + 6]: mean 1e8 + 3, variance 14/3."""
    parts = [np.array([1e8 + 1, 1e8 + 2]), np.empty(0), np.array([1e8 + 6])]
    for result in run_on_threads(3, 1, lambda g: fit(parts[g.world.rank], Gaussian(), g, local=True)):
        assert result.model.mean == pytest.approx(1e8 + 3, abs=1e-7)
        assert result.model.variance == pytest.approx(14 / 3, rel=1e-12)


def test_component_count_is_judged_globally_n05():
    """8 rows over 4 ranks, 3 components: runs. 2 rows: the same refusal on all ranks, both numbers named."""
    x = np.arange(8.0)
    serial = fit(x, Mixture(Gaussian(), 3), serial_grid(), max_iter=4, tol=None)
    for result in run_on_threads(4, 1, lambda g: fit(x, Mixture(Gaussian(), 3), g, max_iter=4, tol=None)):
        assert_same(result, serial)

    def refused(grid):
        with pytest.raises(DataError) as caught:
            fit(x[:2], Mixture(Gaussian(), 3), grid)
        return str(caught.value)

    messages = set(run_on_threads(2, 2, refused))
    assert messages == {"3 components, but only 2 rows"}


def test_levels_are_the_union_of_all_ranks_d02():
    """rank 0 sees b, a, a; rank 1 c, a; rank 2 nothing: a, b, c with .6, .2, .2 everywhere."""
    from mixle_mpi import Categorical

    parts = [["b", "a", "a"], ["c", "a"], []]
    for result in run_on_threads(3, 1, lambda g: fit(parts[g.world.rank], Categorical(), g, local=True)):
        assert result.model.levels == ("a", "b", "c")
        assert result.model.probabilities == pytest.approx([0.6, 0.2, 0.2], abs=1e-15)


def test_infinite_value_is_refused_on_all_ranks_d04():
    x = np.zeros(1000)
    x[777] = np.inf

    def refused(grid):
        with pytest.raises(DataError, match=r"row 777 .*column '0': inf is not finite.*0: 1"):
            fit(x, Gaussian(), grid)
        return True

    assert all(run_on_threads(4, 1, refused))


def test_impossible_row_is_reported_on_all_ranks_n02():
    """A row impossible under every component: named with its global number, or left out."""
    x = np.concatenate([np.linspace(-1, 2, 30), [1e200], np.linspace(0, 1, 9)])
    model = Mixture([Gaussian(0, 1), Gaussian(1, 1)], weights=[0.5, 0.5])

    def refused(grid):
        with pytest.raises(DataError, match="row 30 .*1 row in all"):
            fit(x, model, grid)
        return True

    assert all(run_on_threads(2, 2, refused))
    without = fit(np.delete(x, 30), model, serial_grid(), max_iter=5, tol=None)
    for result in run_on_threads(3, 1, lambda g: fit(x, model, g, max_iter=5, tol=None, impossible="skip")):
        assert result.impossible == 1
        np.testing.assert_allclose(result.history, without.history, rtol=1e-12)


def test_singular_covariance_is_refused_on_all_ranks_n08():
    from mixle_mpi import MultivariateGaussian, NumericalError

    x = np.array([(i, 2.0 * i) for i in range(10)])

    def refused(grid):
        with pytest.raises(NumericalError, match="rank 1 of 2"):
            fit(x, MultivariateGaussian(2, min_variance=0.0), grid)
        return True

    assert all(run_on_threads(4, 1, refused))


def test_start_is_the_same_on_every_grid_p05():
    """The first log likelihood depends on the seed and not on the grid."""
    model = trees()["nested"][0]
    for init in ("kmeans++", "random"):
        firsts = set()
        for shape in [(1, 1), (3, 1), (2, 2)]:
            results = run_on_threads(*shape, lambda g, i=init: fit(DATA, model, g, max_iter=0, init=i, seed=5))
            firsts.add(round(results[0].history[0], 9))
        assert len(firsts) == 1
    other = fit(DATA, model, serial_grid(), max_iter=0, init="random", seed=6).history[0]
    assert abs(other - firsts.pop()) > 1e-6


def test_cut_that_does_not_exist_names_those_that_do():
    with pytest.raises(ModelError, match="component_9.*nodes that can"):
        fit(DATA, trees()["deep"][0], serial_grid(), cut="component_9")
    with pytest.raises(ModelError, match="no node of this model can be cut"):
        run_on_threads(1, 2, lambda g: fit(np.ones(3), Gaussian(), g))


def test_grid_shape_is_checked_before_anything_p09():
    resources = Resources.local(4)
    with pytest.raises(ModelError, match="3 x 2 = 6, but 4 ranks"):
        resources.grid(3, 2)


def test_folding_of_partials():
    """log-sum-exp of pairs in rank order: empty shards contribute -inf and 0, impossible rows stay -inf."""
    top = np.array([[-1.0, -np.inf, -np.inf, 3.0], [2.0, 0.0, -np.inf, -np.inf], [-np.inf] * 4])
    total = np.array([[1.5, 0.0, 0.0, 1.0], [1.0, 2.0, 0.0, 0.0], [0.0] * 4])

    def reduce(grid):
        part = Partial(ReductionOp.LOGSUMEXP, np.stack([top[grid.model.rank], total[grid.model.rank]])[:, None, :])
        return reduce_partial(part, grid.model)

    for value in run_on_threads(1, 3, reduce):
        assert value.shape == (2, 1, 4)
        with np.errstate(divide="ignore"):
            level = value[0, 0] + np.log(value[1, 0])
        expected = np.logaddexp(np.logaddexp(*(top[:2] + np.log(np.maximum(total[:2], 1e-300)))), -1e9)
        np.testing.assert_allclose(level[[0, 1, 3]], expected[[0, 1, 3]], rtol=1e-14)
        assert level[2] == -np.inf


def test_message_buffers_are_checked_p11():
    for bad, text in [
        (np.zeros(3, np.float32), "float32"),
        (np.zeros((3, 2)).T, "not C-contiguous"),
        (1.0, "float"),
    ]:
        with pytest.raises(ValueError, match=text):
            Alone().allreduce(bad)
    with pytest.raises(ValueError, match=r"\(3,\) meets one of shape \(4,\)"):
        checked(np.zeros(3), (4,))
    with pytest.raises(ValueError, match="meets one of shape"):
        run_on_threads(2, 1, lambda g: g.data.allreduce(np.zeros(2 + g.data.rank)))


def test_a_failing_rank_ends_the_group():
    def work(grid):
        if grid.world.rank == 1:
            raise RuntimeError("boom")
        grid.world.barrier()

    with pytest.raises(RuntimeError, match="boom"):
        run_on_threads(3, 1, work)


def test_mixed_families_out_of_support_rows_go_to_the_other_component():
    """Negative values are impossible for the exponential: -inf there, all weight to the Gaussian."""
    x = np.array([-3.0, -2.5, 1.0, 2.0, 0.5])
    model = Mixture([Gaussian(0.0, 4.0), Exponential(1.0)], weights=[0.5, 0.5])
    posterior = model.posterior(x)
    assert (posterior[:2] == [[1.0, 0.0]] * 2).all()
    assert np.isfinite(model.log_density(x)).all()
