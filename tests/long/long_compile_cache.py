"""P07: 8 ranks of one node start with an empty cache, 20 times."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1] / "commands")]
from test_compile_cache import assert_one_compiles, cold_start  # noqa: E402

TIMES = 20


@pytest.mark.parametrize("time", range(TIMES))
def test_one_rank_compiles_and_the_others_load(mpirun, tmp_path, time):
    assert_one_compiles(cold_start(mpirun, tmp_path))
