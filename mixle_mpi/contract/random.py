"""Random numbers keyed by (seed, purpose, index), so that no draw depends on who makes it.

The generator is the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) applied to a key and a
counter, twice.
"""

from __future__ import annotations

import zlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def stream(seed: int, purpose: str, *numbers: int) -> np.ndarray:
    """The 64-bit key of a stream of draws, a (1,) uint64."""
    key = np.array([zlib.crc32(purpose.encode())], dtype=np.uint64)
    for number in (seed, *numbers):
        key = _mix((key + _GOLDEN) ^ np.array([int(number) & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64))
    return key


def keyed_uniform(seed: int, purpose: str, index: np.ndarray, *numbers: int) -> np.ndarray:
    """Uniform numbers in (0, 1), one for each index (n,) int64, of one stream."""
    z = _mix((np.asarray(index).astype(np.uint64) + np.uint64(1)) * _GOLDEN ^ stream(seed, purpose, *numbers))
    z = _mix(z + _GOLDEN)
    return ((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def keyed_generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """A NumPy generator for one purpose, the same on every rank."""
    return np.random.Generator(np.random.Philox(key=int(stream(seed, purpose, *numbers)[0])))
