"""`python -m mixle_mpi.show MODEL_DIR`: a saved model in words."""

from __future__ import annotations

from mixle_mpi.commands.show import main

if __name__ == "__main__":
    raise SystemExit(main())
