"""One run file on many grids: `python -m benchmarks.grids RUN.toml [--grids 1x1,2x1,...]`.

Starts `python -m mixle_mpi.fit` under mpirun on each grid and prints how far the log likelihoods of all
iterations (relative to max(|L|, N)) and the parameters are from the first grid's. Exit code 1 when the
first exceed 1e-12 or the second 1e-8.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

GRIDS = "1x1,2x1,1x2,2x2,3x1,1x3,4x1,1x4,2x3"
LIMIT = 300  # seconds for one run


def run(run_file: str, grid: str, out: Path, options: list[str]) -> float:
    """Fit on one grid; seconds of wall-clock time. Raises SystemExit when the run fails."""
    d, m = map(int, grid.split("x"))
    launcher = Path(sys.executable).parent / "mpirun"
    mpirun = str(launcher) if launcher.exists() else shutil.which("mpirun")
    environment = os.environ | {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    started = time.perf_counter()
    done = subprocess.run(
        [mpirun, "-n", str(d * m), sys.executable, "-m", "mixle_mpi.fit", run_file, "--grid", grid, "--out", out,
         "--quiet", *options],
        env=environment, timeout=LIMIT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"grid {grid}: exit code {done.returncode}")
    return time.perf_counter() - started


def parameters(out: Path) -> np.ndarray:
    """All parameters of a saved model, one vector."""
    with np.load(out / "model.npz") as arrays:
        return np.concatenate([arrays[k].ravel() for k in sorted(arrays.files)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run_file")
    parser.add_argument("--grids", default=GRIDS)
    parser.add_argument("options", nargs="*", help="further options of mixle_mpi.fit, after --")
    options = parser.parse_args()
    reference, worst = None, 0
    print(f"{'grid':>6}{'iterations':>12}{'log likelihood':>20}{'difference':>12}{'parameters':>12}"
          f"{'s a pass':>10}{'s':>8}{'MB a rank':>11}")  # fmt: skip
    with tempfile.TemporaryDirectory() as base:
        for grid in options.grids.split(","):
            out = Path(base) / grid
            seconds = run(options.run_file, grid, out, options.options)
            result = json.loads((out / "result.json").read_text())
            history, theta = np.array(result["history"]), parameters(out)
            reference = reference or (history, theta)
            if history.shape != reference[0].shape:
                print(f"{grid:>6}  {len(history)} passes, but {len(reference[0])} on the first grid")
                worst = 1
                continue
            scale = max(abs(history[-1]), result["n_rows"])
            level = float(np.abs(history - reference[0]).max() / scale)
            parameter = float(np.abs(theta - reference[1]).max())
            worst |= level > 1e-12 or parameter > 1e-8
            metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            peak = max(result["accounting"]["peak_bytes"]) / 1e6
            passes = np.diff([m["seconds"] for m in metrics])
            print(f"{grid:>6}{result['n_iter']:12}{history[-1]:20.9f}{level:12.1e}{parameter:12.1e}"
                  f"{np.median(passes):10.4f}{seconds:8.1f}{peak:11.0f}", flush=True)  # fmt: skip
    return int(worst)


if __name__ == "__main__":
    sys.exit(main())
