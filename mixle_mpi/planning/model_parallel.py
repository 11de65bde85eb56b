"""An estimator that is to be fitted on several model shards."""

from __future__ import annotations

from dataclasses import dataclass

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node


@dataclass(frozen=True)
class ModelParallelEstimator:
    """`inner`, divided over `num_workers` model shards by whatever backend fits it."""

    inner: Node
    num_workers: int = 1

    def __post_init__(self):
        if not isinstance(self.inner, Node):
            raise ModelError(f"model parallel estimator: {self.inner!r} is not a model")
        if isinstance(self.num_workers, bool) or not isinstance(self.num_workers, int) or self.num_workers < 1:
            raise ModelError(f"model parallel estimator: num_workers = {self.num_workers!r} is not a number >= 1")
