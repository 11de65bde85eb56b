"""`python -m mixle_mpi.info`: what this machine, or this job, has."""

from __future__ import annotations

from mixle_mpi.commands.info import main

if __name__ == "__main__":
    raise SystemExit(main())
