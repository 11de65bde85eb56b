"""What a node declares of its cost: work by kind, values to hold, and what only the data can tell.

Work is counted by kind and turned into FLOPs of a matrix product, the unit of all plans: a kind counts as
many as a matrix product does in the time that it takes on one core. `python -m benchmarks.constants`
measures the times below again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

# Nanoseconds a unit, one core of a 2-core x86-64 virtual machine with AVX2 (OpenBLAS, numba without SVML), medians of
# several runs of `python -m benchmarks.constants`.
NANOSECONDS = {
    "gemm": 0.026,  # a FLOP of a matrix product whose features come from a cache, 38 GFLOP/s
    "flop": 0.083,  # a FLOP of a loop over the rows of a tile, in cache
    "feature": 0.16,  # making a feature of a row
    "byte": 0.02,  # reading a byte of the encoded rows
    "exp": 0.8,  # an exponential of a score, with its sum
    "log": 8.0,  # a logarithm, log1p
    "lookup": 0.9,  # adding a table entry to a score
    "scatter": 1.0,  # adding a weight to a table entry
    "lapack": 0.15,  # a FLOP of a factorisation of many small matrices
    "matrix": 4000.0,  # starting the factorisation of one small matrix, and unpacking it
    "special": 12.0,  # a digamma, trigamma or log gamma
}
CALL_SECONDS = 0.5e-6  # a NumPy call with hardly any work, there as well
FLOP_SECONDS = NANOSECONDS["gemm"] * 1e-9  # seconds a FLOP where a machine was not measured
WEIGHT = {kind: ns / NANOSECONDS["gemm"] for kind, ns in NANOSECONDS.items()}

SPILLED_FEATURES = 1024  # more do not stay in the L2 cache, where a tile has its fewest rows
SPILL = 2.5  # times as long does a feature then take, and reading it
MESSAGE_CALLS = 100.0  # gathering, sending and spreading the arrays of one message, in calls as below
READ_CALLS = 4e-4  # reading a feature of a row again, in calls as below
AGAIN_CALLS = 1.2e-3  # reading a value of scratch of a row again, after other tiles, where a reduction comes between
STEP_SECONDS = 20e-6  # bringing the probabilities of all states together, for one step of a recursion
# Calls of NumPy's size in time: for a tile of rows and for each node in it; for a pass and an M-step of each node.
TILE_CALLS, NODE_CALLS, PASS_CALLS, M_STEP_CALLS = 80.0, 25.0, 60.0, 180.0


@dataclass(frozen=True)
class Work:
    """Units of work by kind, see `NANOSECONDS`."""

    gemm: float = 0.0
    flop: float = 0.0
    feature: float = 0.0
    byte: float = 0.0
    exp: float = 0.0
    log: float = 0.0
    lookup: float = 0.0
    scatter: float = 0.0
    lapack: float = 0.0
    matrix: float = 0.0
    special: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(self.values(), other.values())))

    def __mul__(self, factor: float) -> Work:
        return Work(*(factor * a for a in self.values()))

    def values(self) -> tuple[float, ...]:
        """The units of each kind, in the order of the fields."""
        return tuple(self.__dict__[name] for name in KINDS)

    @property
    def flops(self) -> float:
        """FLOPs of a matrix product that take as long."""
        return sum(WEIGHT[kind] * units for kind, units in zip(KINDS, self.values()))


def by_states(steps: float, longest: float, flops: float, shards: int) -> bool:
    """Whether recursions over sequences are divided by states over model shards rather than sequence by sequence.

    They have so many `steps`, each of so many `flops`, of which the shard with most runs `longest` when sequences
    are dealt out. By states all shards share each step, and meet twice: forwards and backwards.
    """
    return longest * flops > steps * (flops / shards + 2.0 * STEP_SECONDS / FLOP_SECONDS)


KINDS = tuple(f.name for f in fields(Work))


@dataclass(frozen=True)
class Cost:
    """What a node costs by itself, without its children.

    Attributes
    ----------
    member : E-step work for each observation and member
    row : E-step work for each observation, once for all members that are evaluated together
    m_step : M-step work of one member, with what is derived from its new parameters, once an iteration
    params, stats : float64 values of one member
    shared_params, shared_stats : float64 values that the members of one innermost mixture share
    kernel : float64 values of one member that kernels keep (natural parameters, sums)
    packed : float64 values of one member that kernels read in place of its parameters; 0 where they read these
    bounds : of `stats`, those that combine by minimum or maximum
    everywhere : whether all data shards maximise all members, as each needs all statistics
    sums : float64 values of one member that a further pass adds up over the data shards
    leaves : whether the M-step of a member counts as that of a leaf
    scratch_member, scratch_row : float64 values of workspace for each row of a tile, by member and once
    columns : bytes of one encoded row, by what tells two encodings apart
    passes : further passes over the data for one M-step
    unit : what each unit on the node's axis costs the node, on top of the unit itself; it goes with the unit
    payload : float64 values that one member of the node, when it is cut, sends along the model axis for
        each observation
    exchanged : float64 values that all shards together deal out among themselves for each observation, when one
        member of the node is cut
    messages : reductions over the model axis for each tile, when the node is cut
    steps : of recursions that may be divided besides, for each observation: by units over model shards, of the root in
        time over data shards; `step_flops` of each
    cut : E-step work for each observation and member besides, when the node is cut
    pooled : whether the node's own statistics are partial on each model shard, when it is cut
    """

    member: Work = Work()
    row: Work = Work()
    m_step: Work = Work()
    params: int = 0
    stats: int = 0
    shared_params: int = 0
    shared_stats: int = 0
    kernel: int = 0
    packed: int = 0
    bounds: int = 0
    everywhere: bool = False
    sums: int = 0
    leaves: bool = False
    scratch_member: float = 0.0
    scratch_row: float = 0.0
    columns: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    passes: float = 0.0
    unit: Cost | None = None
    payload: float = 0.0
    exchanged: float = 0.0
    messages: float = 1.0
    steps: float = 0.0
    step_flops: float = 0.0
    cut: Work = Work()
    pooled: bool = False


# What is taken where neither the model nor an option of the plan says it.
DEFAULTS: dict[str, float] = {
    "levels": 16,  # labels of a categorical column
    "dim": 8,  # columns of a vector
    "length": 100,  # steps of a sequence, different tokens of a document
    "rounds": 20,  # inner rounds of a document of a topic model
    "passes": 7,  # further passes of an M-step that searches the data
    "observed": 1.0,  # share of rows of an optional column that are not missing
    "searches": 20,  # steps of an iterative M-step (Newton, bisection)
}


@dataclass(frozen=True)
class Assumed:
    """What only the data can tell, for a node that may not be bound: given by option, or assumed and noted.

    `given` maps "levels", "dim", "length", "rounds", "passes", "observed" or "searches" to a number, or
    to numbers by the name of a record's field, "" for all others. `name` and `width` are those of the field around
    the node. What had to be assumed is collected in `notes`.
    """

    given: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    name: str = ""
    width: int | None = None
    notes: dict[str, float] = field(default_factory=dict)

    def value(self, what: str, known: float | None = None, quietly: bool = False) -> float:
        """The number that is known, else given, else the default, which is noted."""
        if known is not None:
            return known
        given = self.given.get(what, {})
        for name in (self.name, ""):
            if name in given:
                return given[name]
        if not quietly:
            self.notes[f"{what} of {self.name}" if self.name else what] = DEFAULTS[what]
        return DEFAULTS[what]

    def inside(self, name: str, width: int | None) -> Assumed:
        """The same for the nodes below a record's field."""
        return Assumed(self.given, name, width, self.notes)

    @property
    def place(self) -> tuple[str, int | None]:
        return self.name, self.width
