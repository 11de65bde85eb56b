"""`python -m mixle_mpi.fit RUN.toml`: fit the model of a run file, alone or under an MPI launcher."""

from __future__ import annotations

from mixle_mpi.commands.fit import main

if __name__ == "__main__":
    raise SystemExit(main())
