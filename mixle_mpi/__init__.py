"""mixle_mpi: composable probability models, fitted by EM on a grid of MPI ranks.

Names are imported when they are first used, so that `--help` is fast and a login node needs no MPI.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "Bernoulli": "families.bernoulli",
    "Categorical": "families.categorical",
    "Exponential": "families.exponential",
    "Gaussian": "families.gaussian",
    "GaussianProcess": "families.gaussian_process",
    "Matern": "families.gp_kernels",
    "RBF": "families.gp_kernels",
    "White": "families.gp_kernels",
    "LogNormal": "families.log_normal",
    "MultivariateGaussian": "families.multivariate_gaussian",
    "Poisson": "families.poisson",
    "Binomial": "families.binomial",
    "Gamma": "families.gamma",
    "Geometric": "families.geometric",
    "Laplace": "families.laplace",
    "StudentT": "families.student_t",
    "Uniform": "families.uniform",
    "Composite": "models.composite",
    "Record": "models.composite",
    "Mixture": "models.mixture",
    "Optional": "models.optional",
    "HiddenMarkov": "models.hidden_markov",
    "MarkovChain": "models.markov_chain",
    "LatentDirichletAllocation": "models.latent_dirichlet_allocation",
    "ProbabilisticLatentSemanticIndexing": "models.probabilistic_latent_semantic_indexing",
    "Sequence": "models.sequence",
    "DecompAxis": "contract.decomposition",
    "Decomposition": "contract.decomposition",
    "ReductionOp": "contract.decomposition",
    "decomposition_for": "contract.decomposition",
    "DataError": "contract.errors",
    "ModelError": "contract.errors",
    "NumericalError": "contract.errors",
    "DeviceSpec": "planning.resources",
    "AxisCandidate": "planning.model_decomposition",
    "ModelCut": "planning.model_decomposition",
    "ModelDecomposition": "planning.model_decomposition",
    "NodeSize": "planning.model_decomposition",
    "best_parallel_axis": "planning.model_decomposition",
    "compute_cost": "planning.model_decomposition",
    "cost_children": "planning.model_decomposition",
    "decompose_model": "planning.model_decomposition",
    "shard_children": "planning.model_decomposition",
    "size_model_tree": "planning.model_decomposition",
    "subtree_work": "planning.model_decomposition",
    "tree_axes": "planning.model_decomposition",
    "BalancePlan": "planning.balance",
    "auto_balanced_estimator": "planning.balance",
    "balance_plan": "planning.balance",
    "ModelParallelEstimator": "planning.model_parallel",
    "Resources": "planning.resources",
    "Result": "execution.result",
    "optimize": "execution.em",
    "load": "execution.saved",
    "coherence": "execution.topics",
    "log_perplexity": "execution.topics",
}
__all__ = [*_HOME, "__version__"]

if TYPE_CHECKING:
    from mixle_mpi.contract.decomposition import DecompAxis, Decomposition, ReductionOp, decomposition_for
    from mixle_mpi.contract.errors import DataError, ModelError, NumericalError
    from mixle_mpi.execution.em import optimize
    from mixle_mpi.execution.result import Result
    from mixle_mpi.execution.saved import load
    from mixle_mpi.execution.topics import coherence, log_perplexity
    from mixle_mpi.families.bernoulli import Bernoulli
    from mixle_mpi.families.binomial import Binomial
    from mixle_mpi.families.categorical import Categorical
    from mixle_mpi.families.exponential import Exponential
    from mixle_mpi.families.gamma import Gamma
    from mixle_mpi.families.gaussian import Gaussian
    from mixle_mpi.families.gaussian_process import GaussianProcess
    from mixle_mpi.families.geometric import Geometric
    from mixle_mpi.families.gp_kernels import RBF, Matern, White
    from mixle_mpi.families.laplace import Laplace
    from mixle_mpi.families.log_normal import LogNormal
    from mixle_mpi.families.multivariate_gaussian import MultivariateGaussian
    from mixle_mpi.families.poisson import Poisson
    from mixle_mpi.families.student_t import StudentT
    from mixle_mpi.families.uniform import Uniform
    from mixle_mpi.models.composite import Composite, Record
    from mixle_mpi.models.hidden_markov import HiddenMarkov
    from mixle_mpi.models.latent_dirichlet_allocation import LatentDirichletAllocation
    from mixle_mpi.models.markov_chain import MarkovChain
    from mixle_mpi.models.mixture import Mixture
    from mixle_mpi.models.optional import Optional
    from mixle_mpi.models.probabilistic_latent_semantic_indexing import ProbabilisticLatentSemanticIndexing
    from mixle_mpi.models.sequence import Sequence
    from mixle_mpi.planning.balance import BalancePlan, auto_balanced_estimator, balance_plan
    from mixle_mpi.planning.model_decomposition import (
        AxisCandidate,
        ModelCut,
        ModelDecomposition,
        NodeSize,
        best_parallel_axis,
        compute_cost,
        cost_children,
        decompose_model,
        shard_children,
        size_model_tree,
        subtree_work,
        tree_axes,
    )
    from mixle_mpi.planning.model_parallel import ModelParallelEstimator
    from mixle_mpi.planning.resources import DeviceSpec, Resources


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'mixle_mpi' has no attribute {name!r}")
    value = vars(importlib.import_module(f"mixle_mpi.{_HOME[name]}"))[name]
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
