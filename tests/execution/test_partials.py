"""Log-sum-exp over shards, and what is left of a mixture's row, against NumPy, impossible rows included."""

from __future__ import annotations

import numpy as np
import pytest

from mixle_mpi.kernels import normalise


def pairs_of(shards: int, n: int) -> np.ndarray:
    """(shards, 2, n): maxima from -1e300 (log 0) and -inf to huge ones, sums at least 1 where they are possible."""
    rng = np.random.default_rng(shards)
    top = rng.normal(size=(shards, n)) * 10.0 ** rng.integers(-3, 6, (shards, n))
    top[rng.random((shards, n)) < 0.2] = -np.inf
    top[:, :5] = -np.inf
    top[0, 5:8] = -1e300
    total = np.where(top > -1e250, rng.uniform(1.0, 50.0, (shards, n)), 0.0)
    return np.ascontiguousarray(np.stack([top, total], axis=1))


@pytest.mark.parametrize("shards", [1, 2, 3, 17])
def test_pairs_are_folded(shards):
    pairs = pairs_of(shards, 403)
    out = np.full((2, 403), np.nan)
    normalise.fold(pairs, out)
    with np.errstate(divide="ignore"):
        expected = np.logaddexp.reduce(pairs[:, 0] + np.log(pairs[:, 1]), axis=0)
        found = out[0] + np.log(out[1])
    possible = np.isfinite(expected)
    assert (found[~possible] == -np.inf).all() and (out[1, ~possible] == 0).all() and possible.any()
    assert np.allclose(found[possible], expected[possible], rtol=1e-14, atol=1e-13)


def test_own_exponentials_are_scaled_to_the_common_maximum():
    own = np.array([[0.0, -3.0, -np.inf, -1e300, -np.inf]])
    top = np.array([[1.0, -3.0, 5.0, -np.inf, -np.inf]])
    scale = np.full((1, 5), np.nan)
    normalise.rescale(own, top, scale)
    assert np.allclose(scale, [[np.exp(-1.0), 1.0, 0.0, 0.0, 0.0]], rtol=1e-14, atol=0)
    normalise.rescale(own, top, own)  # in place, as mixtures do
    assert np.array_equal(own, scale)


def test_an_impossible_row_ends_as_log_zero():
    scale, total, top = np.ones((1, 3)), np.array([[4.0, 0.0, 1.0]]), np.array([[2.0, -np.inf, -7.0]])
    normalise.divide_by_total(scale, total, top)
    assert scale.tolist() == [[0.25, 0.0, 1.0]]
    assert np.array_equal(np.log(total) + top, np.array([[np.log(4.0) + 2.0, -np.inf, -7.0]]))
