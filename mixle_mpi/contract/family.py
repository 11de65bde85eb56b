"""Base of the leaves. A family declares its fields and a few functions of arrays; the rest is derived.

Parameters are kept twice: in the user's units on the node, and in encoded units (columns shifted and
scaled) in the flat buffer. Functions that take `theta` get encoded units, one array (members, *shape)
for each parameter field.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mixle_mpi.contract.columns import Encoding, SlotKey
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.fields import Combine, Param, Stat, shape_of
from mixle_mpi.contract.node import Bindings, Node, checked_key
from mixle_mpi.contract.scope import Scope
from mixle_mpi.contract.work import SPILL, SPILLED_FEATURES, Assumed, Cost, Work

Theta = dict[str, np.ndarray]


class Family(Node):
    """A leaf: a distribution of one column, or of a vector of columns.

    Class attributes
    ----------------
    params, stats : declared fields. The stats of a natural family are "weight" and then its features,
        in the order of `features`
    kind : "natural" (T(x) @ eta), "table" (look-up by label) or "own" (the family's own arithmetic)
    slot : how the columns are encoded, see `SlotKey`
    searches : whether `maximize` may need more passes over the data, see `search`
    if_missing : what to do about a missing value where one must be present, for messages
    """

    params: dict[str, Param] = {}
    stats: dict[str, Stat] = {}
    kind: ClassVar[str] = "natural"
    slot: ClassVar[str] = "plain"

    searches: ClassVar[bool] = False
    if_missing: ClassVar[str] = "wrap the model of a column in optional to allow that"

    sequence: str = ""
    encoding: Encoding = None  # type: ignore[assignment]  # until the leaf is bound

    def __init__(self, values: dict[str, Any], *, key: str | None = None, fixed: bool = False):
        self.values = {name: self._checked(name, value) for name, value in values.items()}
        self.key = checked_key(self.type_name(), key)
        self.fixed = bool(fixed)
        if self.fixed and any(v is None for v in self.values.values()):
            raise ModelError(f"{self.type_name()}: fixed=True needs all of {', '.join(self.values)}")

    def __getattr__(self, name: str):
        values = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    # -- shape and place ---------------------------------------------------------------------------

    @property
    def width(self) -> int | None:
        return 1

    @property
    def sizes(self) -> dict[str, int]:
        """The named sizes that the shapes of fields use."""
        return {}

    def place(self, scope: Scope) -> Node:
        placed = copy.copy(self)
        placed.columns = scope.exactly(self.width or len(scope.names), self.type_name())
        placed.sequence = scope.sequence
        return placed

    @property
    def slot_key(self) -> SlotKey:
        return SlotKey(self.slot, self.columns, self.sequence)

    @property
    def base_key(self) -> tuple:
        """The key of the encoded base measure."""
        return ("base", self.columns, self.type_name())

    def bind(self, bindings: Bindings) -> Node:
        bound = copy.copy(self)
        bound.encoding = bindings[self.slot_key]
        return bound

    def signature(self) -> Hashable:
        return (type(self), self.columns, tuple(sorted(self.options().items())), *self.sizes.values())

    def options(self) -> dict[str, Any]:
        return super().options() | ({"fixed": True} if self.fixed else {})

    def compile(self, nodes, path, members, total, holders, cuts):
        from mixle_mpi.families.leaf import LeafBank

        return LeafBank(nodes, path, members, total, holders)

    def _checked(self, name: str, value: Any):
        """A parameter value given by the user, as a float or float64 array. Raises ModelError."""
        if value is None:
            return None
        where = f"{self.type_name()}: {name} = {value!r}"
        try:
            array = np.array(value, dtype=float)
        except (TypeError, ValueError):
            raise ModelError(f"{where} is not a number") from None
        field = self.params[name]
        if array.ndim != len(field.shape):
            raise ModelError(f"{where} has {array.ndim} dimensions, not {len(field.shape)}")
        if not np.isfinite(array).all():
            raise ModelError(f"{where} is not finite")
        allowed = {
            "positive": lambda: (array > 0).all(),
            "interval": lambda: ((array >= 0) & (array <= 1)).all(),
            "simplex": lambda: (array >= 0).all() and abs(array.sum() - 1) < 1e-8,
            "psd": lambda: np.allclose(array, array.T, rtol=1e-10) and (np.linalg.eigvalsh(array) > 0).all(),
        }.get(field.constraint.name, lambda: True)
        if not allowed():
            meaning = {"interval": "in [0, 1]", "psd": "a symmetric positive definite matrix",
                       "simplex": "a set of probabilities that add up to 1"}  # fmt: skip
            raise ModelError(f"{where} is not {meaning.get(field.constraint.name, field.constraint.name)}")
        return float(array) if array.ndim == 0 else array

    # -- data --------------------------------------------------------------------------------------

    def support(self, x: np.ndarray) -> np.ndarray | None:
        """Which rows of x (d, n), as read, have positive density; None for all of them."""
        return None

    def support_text(self) -> str:
        """What the support is, for messages."""
        return "finite numbers"

    def base(self, x: np.ndarray) -> np.ndarray | None:
        """Log base measure (n,) of x (d, n), as read: the part of the log density without parameters."""
        return None

    # -- natural families --------------------------------------------------------------------------

    def features(self, x: np.ndarray, present: np.ndarray, out: np.ndarray) -> None:
        """Sufficient statistics T(x) of x (d, n), encoded, into out (s, n); 0 where `present` (n,) is 0."""
        raise TypeError(f"{type(self).__name__} is not a natural family")

    def natural(self, theta: Theta) -> tuple[np.ndarray, np.ndarray]:
        """Natural parameters (members, s) and constants (members,): log p = constant + T(x) . eta."""
        raise TypeError(f"{type(self).__name__} is not a natural family")

    def packed_values(self, sizes: dict[str, int]) -> int:
        """Float64 values in which a member's kernel form is packed, 0 where kernels read the parameters; see `forms`.

        Families pack what costs much to derive: data shards then share that work as well.
        """
        return 0

    @property
    def packed_width(self) -> int:
        """`packed_values` of a family that is bound to data."""
        return self.packed_values(self.sizes)

    # -- table and own families --------------------------------------------------------------------

    def prepare(self, theta: Theta):
        """What the kernel reads: for a table family the log table (members, levels + 2), see `look_up`."""
        raise TypeError(f"{type(self).__name__} is a natural family")

    def score(self, prepared, x: np.ndarray, out: np.ndarray) -> None:
        """Add log densities of x (d, n), encoded, to out (members, n). Own families only."""
        raise TypeError(f"{type(self).__name__} is not an own family")

    def accumulate(self, prepared, x: np.ndarray, weights: np.ndarray, stats: Theta) -> None:
        """Add the statistics of x (d, n) with weights (members, n) to stats. Own families only."""
        raise TypeError(f"{type(self).__name__} is not an own family")

    # -- estimation --------------------------------------------------------------------------------

    def pooled(self, stats: Theta) -> Theta:
        """What each member adds to the shared statistics, one array (members, *shape) for each such field."""
        return {}

    def search(self, theta: Theta, stats: Theta) -> Search:
        """What `maximize` needs beyond the statistics (views, members first). Families with `searches` only."""
        raise TypeError(f"{type(self).__name__} needs no search")

    def maximize(self, theta: Theta, stats: Theta, about: np.ndarray | None) -> Theta:
        """Maximising parameters but for the shared ones, from statistics with positive weight.

        Shared fields come once for each member. `about` is (members, d): where the moments in `stats` were
        taken about, for families with a residual form; None for the others. Raises NumericalError when no
        maximum exists.
        """
        raise TypeError(f"{type(self).__name__} does not define maximize")

    def maximize_shared(self, stats: Theta) -> Theta:
        """Maximising shared parameters (groups, *shape), from pooled statistics whose "pooled_weight" is positive."""
        raise TypeError(f"{type(self).__name__} has no shared parameters")

    def start(self, theta: Theta, stats: Theta, about: np.ndarray | None) -> Theta:
        """Parameters to start from, out of statistics taken at the default ones; `maximize`, unless that searches."""
        return self.maximize(theta, stats, about)

    def weight(self, stats: Theta) -> np.ndarray:
        """Posterior weight (members,) of the observed rows."""
        return stats["weight"]

    def default(self) -> Theta:
        """One member's encoded parameters, from the encoding alone: where a member without rows starts."""
        raise TypeError(f"{type(self).__name__} does not define default")

    def soften(self, theta: Theta) -> Theta:
        """Move starting parameters off the border, where EM could never leave it.

        Called with the parameters of each member, and with the shared ones alone, (groups, *shape).
        """
        return theta

    def log_prior(self, theta: Theta) -> np.ndarray | float:
        """Log prior density (members,), or 0 where there is no prior."""
        return 0.0

    def encode_values(self, values: dict[str, Any]) -> dict[str, Any]:
        """One member's parameters in encoded units, from the user's units; None stays None."""
        return values

    def decode_values(self, values: Theta) -> dict[str, Any]:
        """One member's parameters in the user's units, from encoded units."""
        return values

    def with_values(self, theta: Theta) -> Family:
        """A copy with one member's parameters, given in encoded units."""
        node = copy.copy(self)
        values = self.decode_values({k: np.array(v) for k, v in theta.items()})
        node.values = {k: float(v) if np.ndim(v) == 0 else np.array(v) for k, v in values.items()}
        return node

    def sample_rows(self, rng: np.random.Generator, n: int) -> list[np.ndarray]:
        """`n` draws in the user's units: one array (n,) for each column."""
        raise TypeError(f"{type(self).__name__} does not define sample_rows")

    # -- what it costs, for plans ------------------------------------------------------------------

    def assumed_sizes(self, assumed: Assumed) -> dict[str, int]:
        """The sizes that fields use, also where the family is not bound to data."""
        return self.sizes

    def planned_kind(self, sizes: dict[str, int]) -> str:
        """The kind of kernel, also where the family is not bound to data."""
        return self.kind

    def planned_term(self, assumed: Assumed) -> bool:
        """Whether siblings are evaluated with it in one product."""
        return self.planned_kind(self.assumed_sizes(assumed)) == "natural"

    def planned_base(self) -> bool:
        """Whether there is a base measure, also where the family is not bound to data."""
        if self.encoding is None:
            return type(self).base is not Family.base and self.slot != "label"
        return self.base_key in self.encoding.bases

    def e_step(self, sizes: dict[str, int], features: int) -> tuple[Work, Work]:
        """E-step work of an observation: for each member, and once for all of them.

        By default that of `NaturalBlock`: two products with the features and the constant, and the features.
        """
        each = SPILL if features > SPILLED_FEATURES else 1.0
        return Work(gemm=4.0 * (features + 1)), Work(feature=each * features)

    def m_step(self, sizes: dict[str, int], assumed: Assumed) -> Work:
        """M-step work of one member, by default a few FLOPs for each parameter."""
        return Work(flop=100.0 * sum(math.prod(shape_of(f.shape, sizes)) for f in self.params.values()))

    def passes(self, assumed: Assumed) -> float:
        """Further passes over the data for one M-step."""
        return 0.0

    def search_values(self) -> int:
        """Float64 values of one member that a further pass adds up."""
        return 0

    def row_bytes(self, assumed: Assumed) -> dict[tuple[str, ...], float]:
        """Bytes of one encoded row: its numbers, or its label, and a base measure where the family has one."""
        if self.slot == "label":
            return {(self.slot,): 4.0}
        width = self.width or int(assumed.value("dim", assumed.width))
        found: dict[tuple[str, ...], float] = {(self.slot,): 8.0 * width}
        return found | {("base", self.type_name()): 8.0} if self.planned_base() else found

    def cost(self, assumed: Assumed) -> Cost:
        sizes = self.assumed_sizes(assumed)

        def values(fields, shared: bool) -> int:
            return sum(math.prod(shape_of(f.shape, sizes)) for f in fields.values() if f.shared == shared)

        stats = values(self.stats, False)
        natural = self.planned_kind(sizes) == "natural"
        features = stats - 1 if natural else 0
        member, row = self.e_step(sizes, features)
        columns = self.row_bytes(assumed)
        return Cost(
            member, row + Work(byte=sum(columns.values())), Work() if self.fixed else self.m_step(sizes, assumed),
            params=values(self.params, False), stats=stats,
            shared_params=values(self.params, True), shared_stats=values(self.stats, True),
            kernel=3 * (features + 1) if natural else 2 * stats,
            packed=self.packed_values(sizes),
            bounds=values({n: f for n, f in self.stats.items() if f.combine is not Combine.SUM}, False),
            everywhere=self.searches, sums=self.search_values(), leaves=not self.fixed,
            scratch_member=1.0, scratch_row=features + 1.0 + self.planned_base() if natural else 0.0,
            columns=columns, passes=0.0 if self.fixed else self.passes(assumed),
        )  # fmt: skip

    # -- derived -----------------------------------------------------------------------------------

    def param_shapes(self, shared: bool) -> dict[str, tuple[int, ...]]:
        return {n: shape_of(f.shape, self.sizes) for n, f in self.params.items() if f.shared == shared}

    def stat_shapes(self, shared: bool) -> dict:
        return {n: (f.combine, shape_of(f.shape, self.sizes)) for n, f in self.stats.items() if f.shared == shared}

    @property
    def num_features(self) -> int:
        """Number of features T_j, without the weight."""
        return sum(math.prod(shape) for n, (_, shape) in self.stat_shapes(False).items() if n != "weight")

    def num_free(self) -> tuple[int, int]:
        """Free parameters of one member, and of the row that members share."""
        if self.fixed:
            return 0, 0
        own, shared = (
            sum(self.params[n].constraint.num_free(s) for n, s in self.param_shapes(share).items())
            for share in (False, True)
        )
        return own, shared


class Search:
    """What a family still has to learn from the data, at unchanged parameters, before it can maximise.

    `sums` is added up over rows by `accumulate` and over ranks by the executor; `advance` reads it,
    and sets up the next pass or writes what was found to the statistics.
    """

    sums: np.ndarray

    @property
    def wanted(self) -> bool:
        """Whether another pass is needed."""
        raise TypeError(f"{type(self).__name__} does not define wanted")

    def accumulate(self, x: np.ndarray, weights: np.ndarray) -> None:
        """Add the rows x (d, n), encoded, with weights (members, n) to `sums`."""
        raise TypeError(f"{type(self).__name__} does not define accumulate")

    def advance(self, stats: Theta) -> None:
        """Take in the reduced `sums`."""
        raise TypeError(f"{type(self).__name__} does not define advance")


class Forms(NamedTuple):
    """The two kernel forms of Gaussian members.

    Attributes
    ----------
    eta, constant : natural parameters (members, s) and constants (members,), log p = constant + T(x) . eta
    mean, shape, peak : means (members, d); precisions (members, d) or whitening matrices (members, d, d); the log
        density at the mean (members,)
    """

    eta: np.ndarray
    constant: np.ndarray
    mean: np.ndarray
    shape: np.ndarray
    peak: np.ndarray


class ResidualFamily(Family):
    """A Gaussian family: natural where that keeps its digits, otherwise about each member's mean."""

    slot = "centred"

    def forms(self, theta: Theta) -> Forms:
        """Both forms of each member."""
        raise TypeError(f"{type(self).__name__} does not define forms")

    def feature_extent(self) -> np.ndarray:
        """max |T_j| over all rows, (s,), encoded."""
        raise TypeError(f"{type(self).__name__} does not define feature_extent")

    def second_moments(self, moments: np.ndarray) -> np.ndarray:
        """The second-order statistics (members, s), from the moments that the residual kernels add up."""
        return moments
