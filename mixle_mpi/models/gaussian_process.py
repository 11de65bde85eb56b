"""Functions drawn from a Gaussian process, observed at fixed inputs."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError, nearest
from mixle_mpi.contract.node import checked_key
from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.models.structure import StructureOnly, checked_count

KERNELS = {"squared_exponential": 3, "matern": 3, "linear": 2}  # parameters, with the variance of the noise


class GaussianProcess(StructureOnly):
    """Values of a random function at fixed inputs: a Gaussian vector whose covariance is a kernel of the inputs.

    Parameters
    ----------
    inputs : (n,) or (n, d) where the function is observed, or their number
    kernel : "squared_exponential", "matern" or "linear"
    """

    def __init__(self, inputs, kernel: str = "squared_exponential", *, key: str | None = None, fixed: bool = False):
        if kernel not in KERNELS:
            raise ModelError(f"gaussian_process: kernel = {kernel!r}; {nearest(kernel, KERNELS)}")
        if isinstance(inputs, int):
            self.inputs = None
            self.num_inputs = checked_count("gaussian_process", "inputs", inputs)
        else:
            self.inputs = np.array(inputs, dtype=float)
            if self.inputs.ndim not in (1, 2) or not len(self.inputs):
                raise ModelError(f"gaussian_process: inputs of shape {self.inputs.shape} are not points")
            self.num_inputs = len(self.inputs)
        self.kernel = kernel
        self.key, self.fixed = checked_key("gaussian_process", key), bool(fixed)

    @property
    def width(self):
        return self.num_inputs

    def cost(self, assumed):
        # an observation is whitened, and its outer product added to the second moments: n^2 multiply-adds
        # each. The M-step factorises the covariance once a step, and once for each parameter's derivative
        n, p = self.num_inputs, KERNELS[self.kernel]
        steps = assumed.value("searches")
        m_step = Work(lapack=n**3 / 3.0, matrix=1.0) * (steps * (1.0 + p))
        return Cost(Work(gemm=4.0 * n * n), m_step=m_step, params=p, stats=1 + n + n * (n + 1) // 2,
                    kernel=2 * n * n, scratch_member=1.0, scratch_row=2.0 * n,
                    columns={("plain",): 8.0 * n})  # fmt: skip

    def signature(self):
        inputs = self.num_inputs if self.inputs is None else self.inputs.tobytes()
        return (type(self), inputs, self.kernel, self.key, self.fixed)

    def options(self):
        return super().options() | ({"fixed": True} if self.fixed else {})

    def described(self, describe):
        return {"inputs": self.num_inputs if self.inputs is None else self.inputs.tolist(), "kernel": self.kernel}
