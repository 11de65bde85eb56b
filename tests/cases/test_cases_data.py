"""The cases of `cases.md` about data, sample weights, and the forms in which data in memory may come."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from mixle_mpi import (
    Bernoulli,
    Categorical,
    Composite,
    DataError,
    Exponential,
    Gaussian,
    Mixture,
    ModelError,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    load,
    optimize,
)  # fmt: skip
from mixle_mpi.data.memory import columns_of

NAN = float("nan")


def close(a, b, tolerance):
    return np.abs(np.asarray(a, float) - np.asarray(b, float)).max() <= tolerance


# -- D01 -----------------------------------------------------------------------------------------------


def test_d01_a_missing_number():
    for data in ([1.0, NAN, 3.0], np.array([1.0, NAN, 3.0]), [1.0, None, 3.0], [(1.0,), (None,), (3.0,)]):
        result = optimize(data, Optional(Gaussian()))
        assert (result.model.of.mean, result.model.of.variance) == (2.0, 1.0)
        assert close(result.log_likelihood, -2.837877066, 5e-10)
        assert (result.n_rows, result.effective_rows) == (3, 2.0)


def test_d01_a_row_with_nothing_observed_adds_nothing_and_changes_nothing():
    rows = [(1.0, "a"), (2.0, "b"), (None, "a"), (4.0, None)]
    model = Composite(Optional(Gaussian()), Optional(Categorical()))
    with_empty = optimize([*rows, (None, None), (None, None)], model, max_iter=3, tol=None)
    without = optimize(rows, model, max_iter=3, tol=None)
    assert close(with_empty.history, without.history, 1e-13)
    assert with_empty.effective_rows == without.effective_rows == 4
    assert with_empty.n_rows == 6
    assert close([with_empty.bic, with_empty.aic], [without.bic, without.aic], 1e-12)
    assert with_empty.model.log_density([(None, None)]).tolist() == [0.0]
    assert repr(with_empty.model) == repr(without.model)


THREE = Composite(Optional(Gaussian(0, 1)), Optional(Categorical(["a", "b"], [0.25, 0.75])), Optional(Poisson(2)))


@pytest.mark.parametrize(
    "row, expected",
    [
        ((1.0, "a", 3), -4.517550822),
        ((1.0, "a", None), -2.805232895),
        ((None, "a", 3), -3.098612289),
        ((NAN, "a", 3), -3.098612289),
        ((1.0, None, 3), -4.517550822 - math.log(0.25)),
        ((None, None, None), 0.0),
    ],
)
def test_d01_a_composite_with_missing_values(row, expected):
    assert close(THREE.log_density([row]), expected, 1e-9)
    assert close(THREE.log_density([(0.5, "b", 1), row, (None, "b", 1)])[1], expected, 1e-9)


def test_d01_a_partly_missing_vector_is_refused():
    x = [[0.0, 0.0], [1.0, 2.0], [2.0, 1.0], [3.0, NAN]]
    for model in (MultivariateGaussian(), Optional(MultivariateGaussian())):
        with pytest.raises(DataError, match="row 3 .*column '1'"):
            optimize(x, model)


def test_d01_a_missing_value_without_optional_is_refused_with_advice():
    with pytest.raises(DataError, match="row 1 .*column '0'.*missing.*optional.*0: 2"):
        optimize([1.0, NAN, 3.0, NAN], Gaussian())
    with pytest.raises(DataError, match="row 2 .*column 'c'.*missing"):
        optimize({"c": ["a", "b", None]}, Record(c=Categorical()))


# -- D02 -----------------------------------------------------------------------------------------------


def test_d02_levels_are_the_sorted_union():
    model = optimize(["b", "a", "a", "c", "a"], Categorical()).model
    assert model.levels == ("a", "b", "c")
    assert close(model.probabilities, [0.6, 0.2, 0.2], 1e-15)


def test_d02_pseudo_count():
    data = ["a", "a", "a", "b"]
    model = optimize(data, Categorical(["a", "b", "c"], pseudo_count=1)).model
    assert close(model.probabilities, [4 / 7, 2 / 7, 1 / 7], 1e-15)
    undeclared = optimize(data, Categorical(pseudo_count=1)).model
    assert undeclared.levels == ("a", "b")
    assert close(undeclared.probabilities, [4 / 6, 2 / 6], 1e-15)


def test_d02_unseen_levels_at_scoring():
    strict = optimize(["a", "b"], Categorical()).model
    assert strict.log_density(["a", "z", "b"]).tolist() == [math.log(0.5), -np.inf, math.log(0.5)]
    lenient = optimize(["a", "b"], Categorical(default=1e-3)).model
    assert close(lenient.log_density(["z", "a", "y"]), [math.log(1e-3), math.log(0.5), math.log(1e-3)], 1e-14)
    many = optimize([f"w{i}" for i in range(20)], Categorical(default=1e-3)).model
    assert close(many.log_density(["new", "w3"]), [math.log(1e-3), math.log(1 / 20)], 1e-14)
    pair = Mixture([Categorical(["a"], [1.0], default=0.1), Categorical(["a"], [1.0], default=0.3)], weights=[0.5, 0.5])
    assert close(pair.log_density(["q"]), math.log(0.2), 1e-14)


def test_d02_unseen_levels_are_refused_or_skipped_in_a_fit():
    model = Mixture([Categorical(["a", "b"], [0.5, 0.5]), Categorical(["a", "b"], [0.1, 0.9])], weights=[0.5, 0.5])
    with pytest.raises(DataError, match="row 1 "):
        optimize(["a", "z", "b"], model)
    assert optimize(["a", "z", "b"], model, impossible="skip").impossible == 1


def test_d02_one_and_the_text_one_differ():
    model = optimize([1, "1", 1, 2, "1", 1], Categorical()).model
    assert model.levels == (1, 2, "1")
    assert close(model.probabilities, [3 / 6, 1 / 6, 2 / 6], 1e-15)
    assert close(np.exp(model.log_density(["1", 1])), [2 / 6, 3 / 6], 1e-15)


def test_d02_true_and_one_differ():
    model = optimize([1, True, 1, True, True], Categorical()).model
    assert model.levels == (True, 1) and [type(v) for v in model.levels] == [bool, int]
    assert close(model.probabilities, [0.6, 0.4], 1e-15)
    declared = Categorical([1, True], [0.9, 0.1])
    assert close(np.exp(declared.log_density([1, True])), [0.9, 0.1], 1e-15)


def test_d02_whole_floats_are_integers():
    """A column of codes in an array of floats has the levels that the user declares as integers."""
    x = np.array([[0.0, 1.5], [1.0, 2.5], [0.0, 3.5]])
    model = optimize(x, Composite(Categorical([0, 1]), Gaussian())).model
    assert close(model.factors[0].probabilities, [2 / 3, 1 / 3], 1e-15)
    found = optimize(x, Composite(Categorical(), Gaussian())).model
    assert found.factors[0].levels == (0, 1)
    assert np.isfinite(found.log_density([(0, 1.0), (1, 2.0)])).all()


@pytest.mark.parametrize(
    "column, levels",
    [
        (np.array(["x", "y", "x"]), ("x", "y")),
        (np.array([b"x", b"y", b"x"]), ("x", "y")),
        (np.array([3, 1, 3], np.int16), (1, 3)),
        (np.array([True, False, True]), (False, True)),
        (np.array([2.0, 1.5, 2.0]), (1.5, 2)),
        (np.array(["x", "y", None], object), ("x", "y")),
        ([np.str_("x"), "y", "x"], ("x", "y")),
        ([np.int64(3), 1, 3.0], (1, 3)),
    ],
)
def test_d02_levels_are_plain_python_and_survive_saving(column, levels, tmp_path):
    model = optimize(column, Optional(Categorical())).model
    assert model.of.levels == levels
    assert [type(v) for v in model.of.levels] == [type(v) for v in levels]
    model.save(tmp_path)
    again = load(tmp_path)
    assert again.of.levels == levels and [type(v) for v in again.of.levels] == [type(v) for v in levels]
    assert again.log_density(column).tobytes() == model.log_density(column).tobytes()


def test_d02_declared_levels_may_be_numpy_scalars():
    for levels, data in ((np.unique(["a", "b"]), ["a", "b"]), (np.array([0, 1]), [0, 1])):
        assert np.isfinite(optimize(data, Categorical(levels)).log_likelihood)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: Categorical([]), "empty"),
        (lambda: Categorical(["a", "a"]), "not distinct"),
        (lambda: Categorical(probabilities=[1.0]), "need levels"),
        (lambda: Categorical(["a", "b"], [1.0]), "1 probabilities for 2 levels"),
        (lambda: Categorical(["a", "b"], [0.5, 0.6]), "0.6"),
        (lambda: Categorical(["a"], [1.0], pseudo_count=-1), "pseudo_count = -1"),
    ],
)
def test_d02_categoricals_that_are_refused(make, words):
    with pytest.raises(ModelError, match=words):
        make()


# -- D04 -----------------------------------------------------------------------------------------------


def test_d04_infinity_is_refused_with_row_column_and_value():
    x = np.zeros((1000, 2))
    x[777, 1] = np.inf
    x[800:803, 1] = -np.inf
    x[900, 0] = np.inf
    for model in (Composite(Gaussian(), Gaussian()), Composite(Optional(Gaussian()), Optional(Gaussian())),
                  MultivariateGaussian(), Composite(Exponential(), Gaussian())):  # fmt: skip
        with pytest.raises(DataError) as refused:
            optimize(x, model)
        for word in ("row 777 ", "column '1'", "inf is not finite"):
            assert word in str(refused.value)
    with pytest.raises(DataError, match="0: 1, 1: 4"):
        optimize(x, Composite(Gaussian(), Gaussian()))


def test_d04_infinity_is_refused_far_into_the_data():
    x = np.zeros(1_000_000)
    x[777777] = np.inf
    with pytest.raises(DataError, match="row 777777 .*inf is not finite.*0: 1"):
        optimize(x, Gaussian())


def test_d04_infinity_is_refused_when_scoring():
    with pytest.raises(DataError, match="row 1 .*inf"):
        Gaussian(0, 1).log_density([0.0, np.inf])


def test_d04_numbers_near_the_largest_are_finite():
    assert Gaussian(0, 1).log_density([1e308]).tolist() == [-np.inf]
    assert close(Gaussian(1e308, 1.0).log_density([1e308]), -0.5 * math.log(2 * math.pi), 1e-15)
    x = [1.0, 2.0, 3.0, 4.0, 1e308]
    start = Mixture([Gaussian(2.0, 1.0), Gaussian(1e308, 1.0)], weights=[0.5, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = optimize(x, start, max_iter=1, tol=None)
    assert np.isfinite(result.history).all()
    assert result.model.components[1].mean == 1e308
    assert close(result.model.components[0].mean, 2.5, 1e-12)


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e-30, 1e30, 1e100, 1e150])
def test_d04_the_scale_of_the_data_does_not_matter(scale):
    x = np.random.default_rng(0).normal(size=200)
    x[:80] += 6
    one = optimize(x, Mixture(Gaussian(), 2), max_iter=10, tol=None, seed=1)
    scaled = optimize(x * scale, Mixture(Gaussian(), 2), max_iter=10, tol=None, seed=1)
    expected = np.array(one.history) - 200 * math.log(scale)
    assert close(scaled.history, expected, 1e-10 * np.abs(expected).max())
    assert close(scaled.model.weights, one.model.weights, 1e-9)
    for a, b in zip(scaled.model.components, one.model.components):
        assert close(a.mean / scale, b.mean, 1e-9)
        assert close(a.variance / scale / scale, b.variance, 1e-9)


def test_rows_outside_the_support_are_refused_with_what_the_support_is():
    for data, model, words in (
        ([1.0, -2.0, -3.0], Exponential(), "row 1 .*-2 is not in the support of exponential .*0: 2"),
        ([1.0, 2.5], Poisson(), "row 1 .*2.5 is not in the support of poisson"),
        ([0, 1, 2], Bernoulli(), "row 2 .*2 is not in the support of bernoulli .*0 or 1"),
        ([1.0, 2.5], Mixture(Poisson(), 2), "row 1 .*poisson"),
    ):
        with pytest.raises(DataError, match=words):
            optimize(data, model)


# -- sample weights --------------------------------------------------------------------------------------


def test_weight_two_is_the_row_twice_in_a_whole_fit():
    x = np.random.default_rng(0).normal(size=60)
    x[:20] += 5
    start = Mixture([Gaussian(0.0, 1.0), Gaussian(5.0, 1.0)], weights=[0.5, 0.5])
    weighted = optimize(x, start, weights=np.r_[np.full(20, 2.0), np.ones(40)], max_iter=10, tol=None)
    doubled = optimize(np.r_[x, x[:20]], start, max_iter=10, tol=None)
    assert close(weighted.history, doubled.history, 1e-11 * 80)
    assert weighted.effective_rows == doubled.effective_rows == 80
    assert close(weighted.bic, doubled.bic, 1e-9)
    for a, b in zip(weighted.model.components, doubled.model.components):
        assert close([a.mean, a.variance], [b.mean, b.variance], 1e-10)


def test_weight_zero_is_no_row_in_a_whole_fit():
    x = np.random.default_rng(1).normal(size=60)
    start = Mixture([Gaussian(-1.0, 1.0), Gaussian(1.0, 1.0)], weights=[0.5, 0.5])
    zeroed = optimize(np.r_[x, [300.0, -40.0]], start, weights=np.r_[np.ones(60), 0, 0], max_iter=10, tol=None)
    alone = optimize(x, start, max_iter=10, tol=None)
    assert close(zeroed.history, alone.history, 1e-11 * 60)
    assert zeroed.effective_rows == 60
    assert close(zeroed.bic, alone.bic, 1e-9)


def test_an_impossible_row_of_weight_zero_is_no_row():
    start = Mixture([Gaussian(0.0, 1.0), Gaussian(1.0, 1.0)], weights=[0.5, 0.5])
    result = optimize([0.0, 1.0, 0.5, 2.0, -1.0, 1e200], start, weights=[1, 1, 1, 1, 1, 0], max_iter=2, tol=None)
    assert result.impossible == 0 and np.isfinite(result.history).all()


@pytest.mark.parametrize(
    "weights, words",
    [
        ([1.0, -1.0, 1.0], "row 1: the weight -1.0"),
        ([1.0, 1.0, NAN], "row 2: the weight nan"),
        ([1.0, np.inf, 1.0], "row 1: the weight inf"),
        ([1.0, 1.0], r"shape \(2,\) for 3 rows"),
        (np.ones((3, 1)), r"shape \(3, 1\) for 3 rows"),
        ([0.0, 0.0, 0.0], "nothing to fit"),
        (["a", "b", "c"], "weights are not numbers"),
    ],
)
def test_weights_that_are_refused(weights, words):
    with pytest.raises(DataError, match=words):
        optimize([1.0, 2.0, 3.0], Gaussian(), weights=weights)


# -- forms of data in memory -------------------------------------------------------------------------------

VECTORS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0], [0.0, 1.0, 5.0], [2.0, 2.0, 2.0]])
WITH_VECTOR = Composite(Gaussian(1, 2), MultivariateGaussian(2, [2.0, 3.0], [[3.0, 1.0], [1.0, 4.0]]))
BY_NAME = Record(a=Gaussian(1, 2), v=MultivariateGaussian(2, [2.0, 3.0], [[3.0, 1.0], [1.0, 4.0]]))
EXPECTED = Gaussian(1, 2).log_density(VECTORS[:, 0]) + WITH_VECTOR.factors[1].log_density(VECTORS[:, 1:])


@pytest.mark.parametrize(
    "data",
    [
        VECTORS,
        np.asfortranarray(VECTORS),
        VECTORS.astype(int),
        VECTORS.astype(np.float32),
        VECTORS.astype(object),
        VECTORS.tolist(),
        [tuple(r) for r in VECTORS],
        list(VECTORS),
        [(r[0], (r[1], r[2])) for r in VECTORS.tolist()],
        [(r[0], r[1:]) for r in VECTORS],
        [[r[0], [r[1], r[2]]] for r in VECTORS.tolist()],
        {"x": VECTORS[:, 0], "y": VECTORS[:, 1], "z": VECTORS[:, 2]},
        {"x": VECTORS[:, 0], "yz": VECTORS[:, 1:]},
        [{"x": r[0], "y": r[1], "z": r[2]} for r in VECTORS],
        np.rec.fromarrays(VECTORS.T, names="x,y,z"),
    ],
    ids=lambda d: type(d).__name__,
)
def test_all_forms_feed_a_composite_from_left_to_right(data):
    np.testing.assert_allclose(WITH_VECTOR.log_density(data), EXPECTED, rtol=1e-13)
    assert optimize(data, WITH_VECTOR, max_iter=1).n_rows == 4


@pytest.mark.parametrize(
    "data",
    [
        {"v": VECTORS[:, 1:], "more": ["w"] * 4, "a": VECTORS[:, 0]},
        {"v": [tuple(r[1:]) for r in VECTORS], "a": list(VECTORS[:, 0])},
        {"v": VECTORS[:, 1:].tolist(), "a": tuple(VECTORS[:, 0])},
        [{"a": r[0], "v": r[1:]} for r in VECTORS],
        [{"v": tuple(r[1:]), "a": r[0]} for r in VECTORS],
        [{"v": list(r[1:]), "a": r[0]} for r in VECTORS],
        {"a": VECTORS[:, 0], "v[0]": VECTORS[:, 1], "v[1]": VECTORS[:, 2]},
        np.array([(r[0], r[1:]) for r in VECTORS], dtype=[("a", float), ("v", float, 2)]),
    ],
    ids=lambda d: type(d).__name__,
)
def test_all_named_forms_feed_a_record(data):
    np.testing.assert_allclose(BY_NAME.log_density(data), EXPECTED, rtol=1e-13)


def test_one_column():
    expected = Gaussian(1, 2).log_density(np.array([1.0, 2.0]))
    for data in ([1, 2], (1, 2), np.array([1, 2]), np.array([[1.0], [2.0]]), [(1,), (2,)], [[1], [2]], {"x": [1, 2]},
                 [{"x": 1}, {"x": 2}], [np.float64(1), 2], np.array([1, 2], np.uint8), np.array([1, 2], np.float16),
                 [True, 2]):  # fmt: skip
        np.testing.assert_allclose(Gaussian(1, 2).log_density(data), expected, rtol=1e-14)


def test_missing_vectors_in_a_list_of_dicts():
    model = Record(a=Gaussian(1, 2), v=Optional(MultivariateGaussian(2, [2.0, 3.0], [[3.0, 1.0], [1.0, 4.0]])))
    rows = [{"a": 1.0, "v": (1.0, 2.0)}, {"a": 2.0, "v": None}]
    got = model.log_density(rows)
    assert close(got[1], Gaussian(1, 2).log_density([2.0])[0], 1e-14)


def test_a_nested_record():
    model = Record(a=Gaussian(1, 2), inner=Record(b=Poisson(2), c=Categorical(["x", "y"], [0.5, 0.5])))
    expected = Gaussian(1, 2).log_density([1.0])[0] + Poisson(2).log_density([3])[0] + math.log(0.5)
    flat = {"a": [1.0], "b": [3], "c": ["x"]}
    assert close(model.log_density(flat), expected, 1e-14)
    assert close(model.log_density([{"a": 1.0, "inner": {"b": 3, "c": "x"}}]), expected, 1e-14)
    drawn = model.sample(5)
    assert set(drawn[0]) == {"a", "inner"} and set(drawn[0]["inner"]) == {"b", "c"}
    assert np.isfinite(model.log_density(drawn)).all()


@pytest.mark.parametrize(
    "data, model, words",
    [
        (3.0, Gaussian(), "type float"),
        (None, Gaussian(), "type NoneType"),
        (np.float64(3), Gaussian(), "type float64"),
        (np.array(3.0), Gaussian(), "single number"),
        (np.zeros((2, 2, 2)), Gaussian(), "ndarray"),
        ({"x": [1.0, 2.0], "y": [1.0]}, Record(x=Gaussian()), "different lengths.*'x': 2.*'y': 1"),
        ([(1, 2), (3,)], Composite(Gaussian(), Gaussian()), "row 1 has 1 values, row 0 has 2"),
        ([{"x": 1}, {"y": 1}], Record(x=Gaussian()), "row 1.*column 'x'.*is missing"),
        ([{"x": 1}, 3], Record(x=Gaussian()), "row 1"),
        ([1.0, "a"], Gaussian(), "row 1, column '0': 'a' is not a number"),
        (["1", "2"], Gaussian(), "row 0, column '0': '1' is not a number"),
        (np.array(["1", "2"]), Gaussian(), "row 0, column '0'.*1.* is not a number"),
        ([1.0, 1j], Gaussian(), "row 1, column '0'.*1j.* is not a number"),
        ([1.0, [2.0]], Gaussian(), "row 1"),
        ({"x": [1.0]}, Record(z=Gaussian()), "no column 'z'"),
        ({"size": [1.0]}, Record(sizes=Gaussian()), "did you mean 'size'"),
        (np.zeros((3, 2)), Gaussian(), r"gaussian reads 1 column in order, but there are 2 \(0, 1\)"),
        (np.zeros((3, 2)), Composite(Gaussian(), Gaussian(), Gaussian()), "3 columns in order, but there are 2"),
        (np.zeros((3, 2)), MultivariateGaussian(3), "reads 3 columns in order, but there are 2"),
        ([], Gaussian(), "nothing to fit: 0 rows"),
        ([None, None], Optional(Gaussian()), "nothing to fit: 2 rows"),
        (np.zeros((0, 2)), MultivariateGaussian(2), "nothing to fit: 0 rows"),
        (np.zeros((3, 0)), Gaussian(), "nothing to fit: 0 rows"),
        ({}, Record(x=Gaussian()), "no column 'x'"),
        (np.array([1 + 2j]), Gaussian(), "is not a number"),
        (np.array(["2020-01-01"], "M8[D]"), Gaussian(), "is not a number"),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), Gaussian(), "masked array"),
        ({"x": np.ma.array([1.0, 2.0], mask=[0, 1])}, Record(x=Gaussian()), "'x' is a masked array"),
        ({"x": 3.0}, Record(x=Gaussian()), "column 'x' is 3.0, not an array"),
        ({"x": "abc"}, Record(x=Categorical()), "column 'x' is 'abc', not an array"),
        ([1, 10**400], Gaussian(), "row 1, column '0': the integer is too large"),
        ({"x": ["a", frozenset([1])]}, Record(x=Categorical()), "row 1, column 'x': the label frozenset"),
        (np.array(["2020-01-01"], "M8[D]"), Categorical(), "row 0, column '0': the label datetime.date"),
        ("data.xyz", Gaussian(), "data.xyz.*known: .csv, .npy|data.xyz.*not read"),
    ],
)
def test_data_that_are_refused(data, model, words):
    with pytest.raises(ValueError, match=words) as refused:
        optimize(data, model)
    assert isinstance(refused.value, (DataError, ModelError))


def test_a_file_that_is_not_there_is_an_oserror_that_names_it():
    with pytest.raises(OSError, match="nowhere"):
        optimize("/nowhere/at-all.csv", Gaussian())


def test_data_are_not_changed():
    x = np.array([[1.0, NAN], [2.0, 3.0], [4.0, 5.0]])
    before = x.copy()
    optimize(x, Composite(Gaussian(), Optional(Gaussian())), max_iter=3)
    assert np.array_equal(x, before, equal_nan=True)


def test_names_of_columns():
    assert list(columns_of(np.zeros((2, 3)))) == ["0", "1", "2"]
    assert list(columns_of({"a": np.zeros((2, 2)), "b": [1, 2]})) == ["a[0]", "a[1]", "b"]
    assert list(columns_of([{"a": {"x": 1, "y": (1, 2)}}])) == ["a.x", "a.y[0]", "a.y[1]"]


# -- odd but right -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_a_column_in_which_everything_is_missing():
    rows = [(1.0, None), (2.0, None), (4.0, None)]
    alone = optimize([1.0, 2.0, 4.0], Gaussian())
    for inner in (Gaussian(), Poisson(), Exponential(), Bernoulli(), Categorical(), Mixture(Gaussian(), 2)):
        result = optimize(rows, Composite(Gaussian(), Optional(inner)))
        assert close(result.log_likelihood, alone.log_likelihood, 1e-12)
        assert close(result.model.log_density(rows), alone.model.log_density([1.0, 2.0, 4.0]), 1e-12)


@pytest.mark.filterwarnings("ignore")
def test_one_row():
    cases = [(3.0, Gaussian()), (3.0, Poisson()), (3.0, Exponential()), ("a", Categorical()), (1, Bernoulli())]
    for row, model in [*cases, ((1.0, 2.0), MultivariateGaussian())]:
        result = optimize([row], model)
        assert result.converged and np.isfinite(result.log_likelihood)
        assert np.isfinite(optimize([row], Mixture(model, 1)).log_likelihood)


def test_all_rows_equal_in_several_columns():
    with pytest.warns(UserWarning, match="constant"):
        result = optimize(np.full((20, 2), 7.0), Mixture(MultivariateGaussian(2), 2))
    assert np.isfinite(result.history).all()
    for c in result.model.components:
        assert close(c.mean, [7.0, 7.0], 1e-12)
        np.testing.assert_allclose(c.covariance, np.eye(2) * 1e-9, rtol=1e-9, atol=1e-20)


@pytest.mark.filterwarnings("ignore")
def test_columns_of_zeros():
    assert optimize([0, 0, 0], Poisson()).model.rate == 0.0
    assert optimize([0, 0, 0], Bernoulli()).model.p == 0.0
    assert optimize([1, 1, 1], Bernoulli()).log_likelihood == 0.0
    assert np.isfinite(optimize([0.0, 0.0], Exponential()).log_likelihood)
    assert optimize([0, 0, 0], Poisson()).model.log_density([0, 1]).tolist() == [0.0, -np.inf]
