"""O01: killed at 20 random moments while saving, the directory always goes on to the undisturbed result."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "commands")]
from test_stopping import case, kill_and_resume, undisturbed  # noqa: E402, F401

TIMES = 20


@pytest.mark.parametrize("ranks", [0, 2, 4])
def test_sigkill_while_saving(case, undisturbed, ranks):  # noqa: F811
    where = kill_and_resume(case, undisturbed, ranks, TIMES, seed=100 + ranks)
    print(f"{ranks or 1} ranks: killed after iterations {where}")
