"""The example of letters: two states find vowels and consonants in a text."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from mixle_mpi import Categorical, HiddenMarkov, optimize

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from letters import VOWELS, paragraphs, table


def test_two_states_are_vowels_and_consonants():
    data = paragraphs()
    result = optimize(data, HiddenMarkov(Categorical(), 2), max_iter=500, tol=1e-6, starts=4, seed=1)
    of = [dict(zip(e.levels, e.probabilities)) for e in result.model.emissions]
    a, b = sorted(of, key=lambda p: -p["e"])
    assert all(a[v] > 10 * b[v] for v in VOWELS)
    assert all(b[c] > 10 * a[c] for c in "tnsrdlcfmpg")
    assert sum(a[v] for v in VOWELS) > 0.6 and sum(b[v] for v in VOWELS) < 0.02
    assert len(table(result.model)) == 4
    np.testing.assert_allclose(result.model.posterior(data[:3]).sum(axis=1), 1.0, atol=1e-15)
