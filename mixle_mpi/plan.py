"""`python -m mixle_mpi.plan RUN.toml --ranks 256 --rows 1e9`: a plan for any machine, no data, no MPI."""

from __future__ import annotations

from mixle_mpi.commands.plan import main

if __name__ == "__main__":
    raise SystemExit(main())
