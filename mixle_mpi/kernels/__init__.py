"""Numba functions: arrays in, arrays out."""

from __future__ import annotations

from mixle_mpi.kernels.cache import choose_cache

choose_cache()
