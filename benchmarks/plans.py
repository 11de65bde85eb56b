"""Predicted beside measured: `python -m benchmarks.plans [--ranks 2] [--rounds 5] [--only NAME]`.

Six workloads are fitted by `mpirun ... python -m mixle_mpi.fit` on the grids of one and of two ranks, in turn, in
several rounds, for each of which the machine is measured anew; then with `--grid auto`. The table has medians
over the rounds: the seconds of an E-step, as planned and as measured (the median of the iterations), their ratio
with its extremes, and the peak memory of a rank; for `auto` the seconds of an iteration beside the fastest grid's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ITERATIONS = 40
TIME_LIMIT = 300  # seconds of one fit
CROWDED = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_ALLOW_RUN_AS_ROOT": "1",
           "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # fmt: skip


def blobs(n: int, d: int, k: int) -> np.ndarray:
    """Rows (n, d) around k centres."""
    rng = np.random.default_rng(0)
    centres = rng.normal(scale=3.0, size=(k, d))
    return centres[rng.integers(0, k, n)] + rng.normal(size=(n, d))


def columns(n: int, d: int, k: int) -> dict[str, np.ndarray]:
    """A number, a count, a label and a waiting time, from k groups."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, k, n)
    return {"x": 2.0 * group + rng.normal(size=n), "count": rng.poisson(1.0 + group), "wait": rng.exponential(size=n),
            "kind": rng.choice([f"level {i:02}" for i in range(30)], n)}  # fmt: skip


FOUR_COLUMNS = """[model.component]
type = "record"
[model.component.fields]
x = { type = "gaussian" }
count = { type = "poisson" }
kind = { type = "categorical" }
wait = { type = "exponential" }
"""
VECTOR = 'component = {{ type = "multivariate_gaussian", structure = "{}" }}\n'
# name -> rows, columns, components, model
WORKLOADS = {
    "four columns, K=10": (400_000, 4, 10, FOUR_COLUMNS),
    "one column, K=100": (600_000, 1, 100, 'component = { type = "gaussian" }\n'),
    "diagonal d=16 K=64": (200_000, 16, 64, VECTOR.format("diagonal")),
    "full d=4 K=20": (400_000, 4, 20, VECTOR.format("full")),
    "full d=16 K=32": (200_000, 16, 32, VECTOR.format("full")),
    "full d=64 K=16": (40_000, 64, 16, VECTOR.format("full")),
}


def prepare(name: str, place: Path) -> Path:
    """Data and run file of a workload; the run file's path."""
    n, d, k, component = WORKLOADS[name]
    if component is FOUR_COLUMNS:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns(n, d, k)), place / "data.parquet")
        data = "data.parquet"
    else:
        np.save(place / "data.npy", blobs(n, d, k))
        data = "data.npy"
    run = place / "run.toml"
    run.write_text(f'[data]\npath = "{data}"\n[model]\ntype = "mixture"\ncomponents = {k}\n{component}'
                   f'[fit]\nmax_iter = {ITERATIONS}\ntol = "none"\ninit = "random"\n')  # fmt: skip
    return run


def fitted(run: Path, ranks: int, grid: str, machine: Path) -> dict[str, Any]:
    """`result.json` of the fit on a grid; what is measured of the machine is kept in a directory."""
    out = run.parent / f"out_{grid}"
    launcher = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if launcher is None:
        raise SystemExit("benchmarks.plans: there is no mpirun")
    command = [launcher, "-n", str(ranks), sys.executable, "-m", "mixle_mpi.fit", str(run), "--grid", grid,
               "--out", str(out), "--overwrite", "--quiet"]  # fmt: skip
    environment = os.environ | CROWDED | {"MIXLE_MPI_CACHE": str(machine)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads((out / "result.json").read_text())


def compared(result: dict[str, Any]) -> dict[str, float]:
    """What a run planned and measured: seconds of an E-step and an iteration, bytes, and planned / measured."""
    plan, found = result["predicted"], result["measured"]
    return {
        "planned": plan["seconds"]["e_step"], "measured": found["seconds"]["e_step"],
        "ratio": plan["seconds"]["e_step"] / found["seconds"]["e_step"],
        "planned MB": plan["peak_bytes"] / 1e6, "measured MB": found["peak_bytes"] / 1e6,
        "memory": plan["peak_bytes"] / found["peak_bytes"], "iteration": found["seconds"]["total"],
    }  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--only", choices=list(WORKLOADS), action="append")
    asked = options.parse_args()
    ranks = asked.ranks
    grids = ["1x1", *dict.fromkeys((f"{ranks}x1", f"1x{ranks}"))]
    print(f"{'workload':20} {'grid':>5}  {'E-step s: planned':>17} {'measured':>9} {'ratio':>6} {'(from, to)':>13}  "
          f"{'MB: planned':>11} {'measured':>9} {'ratio':>6}  {'iteration s':>11}")  # fmt: skip
    off: list[str] = []
    for name in asked.only or WORKLOADS:
        with tempfile.TemporaryDirectory() as place:
            run = prepare(name, Path(place))
            runs: dict[str, list[dict[str, float]]] = {grid: [] for grid in grids}
            for turn in range(asked.rounds):
                for grid in grids:
                    machine = run.parent / f"machine_{turn}"
                    runs[grid].append(compared(fitted(run, 1 if grid == "1x1" else ranks, grid, machine)))
            iteration: dict[str, float] = {}
            for grid, found in runs.items():
                m = {key: statistics.median(r[key] for r in found) for key in found[0]}
                iteration[grid] = m["iteration"]
                ratios = [r["ratio"] for r in found]
                print(f"{name:20} {grid:>5}  {m['planned']:17.4f} {m['measured']:9.4f} {m['ratio']:6.2f} "
                      f"({min(ratios):5.2f}, {max(ratios):4.2f})  {m['planned MB']:11.0f} {m['measured MB']:9.0f} "
                      f"{m['memory']:6.2f}  {m['iteration']:11.4f}", flush=True)  # fmt: skip
                off += [f"{name} {grid}: E-step {m['ratio']:.2f}"] * (not 0.75 <= m["ratio"] <= 1.25)
                off += [f"{name} {grid}: memory {m['memory']:.2f}"] * (not 0.85 <= m["memory"] <= 1.15)
            chosen = "x".join(map(str, fitted(run, ranks, "auto", machine)["grid"]))
            slower = iteration[chosen] / min(iteration.values())
            print(f"{name:20}  auto  takes {chosen}: {slower:.2f} of the fastest grid's time", flush=True)
            off += [f"{name}: auto takes {chosen}, {slower:.2f} of the fastest"] * (slower > 1.1)
    print("outside 25 % (E-step), 15 % (memory) or 10 % (auto): " + ("; ".join(off) or "none"))


if __name__ == "__main__":
    main()
