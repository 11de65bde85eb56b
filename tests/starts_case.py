"""Starts that the planner lays side by side on five equal ranks whose messages take no time: 0 to 5 on 2 x 2, 6 and 7
on the fifth rank; as data and model, and as files of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mixle_mpi import Gaussian, Mixture, Poisson, Record

ROWS, COLUMNS, STARTS = 12, 6, 8
SIDES = [{"grid": [2, 2], "ranks": [0, 1, 2, 3], "starts": [0, 1, 2, 3, 4, 5]},
         {"grid": [1, 1], "ranks": [4], "starts": [6, 7]}]  # fmt: skip
WORDS = "starts 1-6 on 2 x 2 (ranks 0-3), starts 7-8 on 1 x 1 (rank 4)"


def table() -> dict[str, np.ndarray]:
    """Two overlapping groups of rows."""
    rng = np.random.default_rng(5)
    group = np.arange(ROWS) % 2
    columns = {f"x{j}": rng.normal(group * (j % 3), 1.0) for j in range(COLUMNS)}
    return {"a": rng.normal(2.0 * group, 1.0), "b": rng.poisson(3 + group)} | columns


def model() -> Mixture:
    """Two components of eight columns."""
    numbers = {name: Gaussian(min_variance=0.1) for name in ("a", *(f"x{j}" for j in range(COLUMNS)))}
    return Mixture(Record(**numbers, b=Poisson()), 2)


def write_starts_case(directory: Path, iterations: int = 12) -> None:
    """The same as `rows.csv` and `case.toml`, with so many iterations of each start."""
    columns = {name: values.tolist() for name, values in table().items()}
    lines = [",".join(columns), *(",".join(map(repr, row)) for row in zip(*columns.values()))]
    (directory / "rows.csv").write_text("\n".join(lines) + "\n")
    fields = "".join(f'{name} = {{ type = "gaussian", min_variance = 0.1 }}\n' for name in columns if name != "b")
    (directory / "case.toml").write_text(
        '[data]\npath = "rows.csv"\n[model]\ntype = "mixture"\ncomponents = 2\n[model.component]\ntype = "record"\n'
        f'[model.component.fields]\n{fields}b = {{ type = "poisson" }}\n'
        f'[fit]\nmax_iter = {iterations}\ntol = "none"\nstarts = {STARTS}\ninit = "random"\ngrid = "auto"\n'
    )
