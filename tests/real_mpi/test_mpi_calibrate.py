"""Ranks that measure themselves under a real launcher."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "calibrate_program.py"


@pytest.mark.parametrize("ranks", [1, 3])
def test_all_ranks_know_the_same_machine_and_keep_it(mpirun, tmp_path, ranks):
    run = mpirun(ranks, [PROGRAM], timeout=120, environment={"MIXLE_MPI_CACHE": str(tmp_path / "cache")})
    assert run.code == 0, run.err
    found = json.loads(run.out)
    assert found["same"] and found["shape"] == [ranks, 1] and found["plain"] == [None] * 3
    assert len(found["throughputs"]) == len(found["memory"]) == ranks and min(found["memory"]) > 2**24
    assert found["flops"] > 1e7 and found["seconds"][1] < found["seconds"][0]
    latency, bandwidth, *between = found["network"]
    assert between == [None, None]
    if ranks == 1:
        assert latency is None and bandwidth is None
    else:  # what plans reckon with is what reductions take, within the noise of a busy machine
        assert 1e-8 < latency < 1.0 and 1e4 < bandwidth < 1e13
        assert math.isfinite(max(found["off"])) and statistics.median(found["off"]) < 6.0, found["off"]
    (kept,) = (tmp_path / "cache").iterdir()
    assert kept.suffix == ".json"


def test_a_cache_that_cannot_be_written_is_no_error(mpirun, tmp_path):
    (tmp_path / "file").write_text("")
    cache = {"MIXLE_MPI_CACHE": str(tmp_path / "file")}
    run = mpirun(2, [PROGRAM, "--quick"], timeout=120, environment=cache)
    assert run.code == 0, run.err
    assert not json.loads(run.out)["same"]  # measured twice
