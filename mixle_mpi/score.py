"""`python -m mixle_mpi.score MODEL_DIR DATA --out FILE`: log densities and posteriors of every row."""

from __future__ import annotations

from mixle_mpi.commands.score import main

if __name__ == "__main__":
    raise SystemExit(main())
