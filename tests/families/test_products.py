"""Products of narrow and wide matrices, in parts or whole, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from mixle_mpi.kernels.product import add_sums, scores


@pytest.mark.parametrize("members", [0, 1, 3, 40, 41])
@pytest.mark.parametrize("width", [1, 15, 400, 1100])
@pytest.mark.parametrize("n", [0, 1, 299, 300, 5001])
def test_products_equal_numpys(members, width, n):
    rng = np.random.default_rng(0)
    eta, features = rng.normal(size=(members, width)), rng.normal(size=(width, n))
    out, weights = np.full((members, n), np.nan), rng.random((members, n))
    scores(eta, features, out)
    np.testing.assert_allclose(out, eta @ features, rtol=1e-12, atol=1e-11)
    sums = rng.normal(size=(members, width))
    expected = sums + weights @ features.T
    add_sums(weights, features, sums)
    np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-10)
