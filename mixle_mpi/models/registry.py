"""The classes that a model can be built from, by the names that run files use."""

from __future__ import annotations

from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.families.bernoulli import Bernoulli
from mixle_mpi.families.binomial import Binomial
from mixle_mpi.families.categorical import Categorical
from mixle_mpi.families.exponential import Exponential
from mixle_mpi.families.gamma import Gamma
from mixle_mpi.families.gaussian import Gaussian
from mixle_mpi.families.gaussian_process import GaussianProcess
from mixle_mpi.families.geometric import Geometric
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

FAMILIES: tuple[type[Family], ...] = (
    Bernoulli, Binomial, Categorical, Exponential, Gamma, Gaussian, GaussianProcess, Geometric, Laplace, LogNormal,
    MultivariateGaussian, Poisson, StudentT, Uniform,
)  # fmt: skip
MODELS: tuple[type[Node], ...] = (
    Composite, HiddenMarkov, LatentDirichletAllocation, MarkovChain, Mixture, Optional,
    ProbabilisticLatentSemanticIndexing, Record, Sequence,
)  # fmt: skip
BY_NAME: dict[str, type[Node]] = {c.type_name(): c for c in (*FAMILIES, *MODELS)}
