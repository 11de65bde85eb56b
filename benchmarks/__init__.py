"""Measurements; each is a module to run. Everything here computes with one thread unless told otherwise."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before NumPy is imported
    os.environ.setdefault(name, "1")
