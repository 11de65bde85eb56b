"""What a leaf asks of its columns, what the data say about them, and how they are encoded.

A slot is a group of columns read by leaves in one way. Its summary is gathered over the rows of a
rank, merged over ranks, and bound into an encoding, which turns raw columns into the arrays that
kernels read. Encodings are the same bits on every grid: they rest on a sample keyed by global row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mixle_mpi.contract.random import keyed_uniform

SAMPLE = 4096
SUMMARY_SEED = 0x5EED
LENGTH = "#length"  # ends the name of the column of the lengths of a sequence
SHIFTED = ("centred", "even", "logarithm")
BAG = "#bag"  # ends the name of the sequence that a bag of words is, after its first column
CHECKED = ("word", "count")  # kinds of which a value outside the support is refused wherever it is read


@dataclass(frozen=True)
class SlotKey:
    """How columns are encoded, of rows or of the steps of a `sequence`: `kind` is "centred" (shifted and scaled
    numbers), "even" (the same with one scale for all columns), "logarithm" (centred logarithms), "plain" (numbers as
    they are) or "label"; in bags of words "word" (whole numbers below the size of a vocabulary) and "count".
    """

    kind: str
    columns: tuple[str, ...]
    sequence: str = ""


@dataclass
class Fault:
    """Rows that cannot be used for one reason: how many, and the first with its value."""

    count: int = 0
    row: int = -1
    column: str = ""
    value: str = ""

    def add(self, count: int, row: int, column: str, value: str) -> None:
        if count and (self.row < 0 or row < self.row):
            self.row, self.column, self.value = row, column, value
        self.count += count

    def merge(self, other: Fault) -> None:
        self.add(other.count, other.row, other.column, other.value)


@dataclass
class Summary:
    """What the rows of a slot have in common; merging is exact except for the last bits of moments.

    Attributes
    ----------
    observed, missing, partial : number of rows with all, none, or some of the columns present
    low, high : (d,) extremes of the numbers; mean, square : (d,) mean and sum of squared deviations
    sample_rows, sample : (k,) global rows of the keyed sample, ascending, and (d, k) their numbers
    counts : (type, label) -> number of rows, as 1 == True in Python; of a bag the documents with the word
    words : of a slot of kind "word" those that occur, (k,) int64 ascending
    faults : reason -> Fault; reasons are "missing", "partly missing", "infinite", or a family's name
        for rows outside its support
    """

    width: int
    observed: int = 0
    missing: int = 0
    low: np.ndarray = None  # type: ignore[assignment]  # set below
    high: np.ndarray = None  # type: ignore[assignment]  # set below
    mean: np.ndarray = None  # type: ignore[assignment]  # set below
    square: np.ndarray = None  # type: ignore[assignment]  # set below
    sample_rows: np.ndarray = None  # type: ignore[assignment]  # set below
    sample: np.ndarray = None  # type: ignore[assignment]  # set below
    counts: dict = field(default_factory=dict)
    words: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    faults: dict[str, Fault] = field(default_factory=dict)

    def __post_init__(self):
        d = self.width
        if self.low is None:
            self.low, self.high = np.full(d, np.inf), np.full(d, -np.inf)
            self.mean, self.square = np.zeros(d), np.zeros(d)
            self.sample_rows, self.sample = np.empty(0, np.int64), np.empty((d, 0))

    def fault(self, reason: str) -> Fault:
        return self.faults.setdefault(reason, Fault())

    def add_numbers(self, x: np.ndarray, rows: np.ndarray, total: int, names: tuple[str, ...]) -> None:
        """Add a chunk of rows: x (d, n) float64, NaN where missing; `rows` (n,) their global numbers, of `total`."""
        absent = np.isnan(x)
        gone = absent.any(axis=0)
        infinite = np.isinf(x)
        if infinite.any():
            at = np.flatnonzero(infinite.any(axis=0))
            j = int(np.flatnonzero(infinite[:, at[0]])[0])
            self.fault("infinite").add(len(at), int(rows[at[0]]), names[j], str(x[j, at[0]]))
            gone = gone | infinite.any(axis=0)
        if absent.any():
            some = absent.any(axis=0) & ~absent.all(axis=0)
            for reason, where in (("partly missing", some), ("missing", absent.all(axis=0))):
                at = np.flatnonzero(where)
                if len(at):
                    j = int(np.flatnonzero(absent[:, at[0]])[0])
                    self.fault(reason).add(len(at), int(rows[at[0]]), names[j], "nothing")
            self.missing += int(absent.all(axis=0).sum())
        if gone.any():
            x, rows = x[:, ~gone], rows[~gone]
        if not x.shape[1]:
            return
        self.low = np.minimum(self.low, x.min(axis=1))
        self.high = np.maximum(self.high, x.max(axis=1))
        with np.errstate(over="ignore", invalid="ignore"):
            middle = x[:, :1]
            deviation = x - middle
            mean = deviation.mean(axis=1)
            square = np.square(deviation - mean[:, None]).sum(axis=1)
        self._merge_moments(x.shape[1], middle[:, 0] + mean, square)
        keep = keyed_uniform(SUMMARY_SEED, "sample", rows) * total < SAMPLE
        self.sample_rows = np.concatenate([self.sample_rows, rows[keep]])
        self.sample = np.concatenate([self.sample, x[:, keep]], axis=1)

    def merge(self, other: Summary) -> None:
        """Add the rows of another rank, which follow the rows of this one."""
        self.missing += other.missing
        for reason, fault in other.faults.items():
            self.fault(reason).merge(fault)
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        if len(other.words):
            self.words = np.union1d(self.words, other.words)
        if other.counts:
            self.observed += other.observed
            for label, count in other.counts.items():
                self.counts[label] = self.counts.get(label, 0) + count
        elif other.observed:
            self._merge_moments(other.observed, other.mean, other.square)
        self.sample_rows = np.concatenate([self.sample_rows, other.sample_rows])
        self.sample = np.concatenate([self.sample, other.sample], axis=1)

    def _merge_moments(self, n: int, mean: np.ndarray, square: np.ndarray) -> None:
        # Chan, Golub, LeVeque (1983): pairwise update, no difference of large numbers.
        with np.errstate(over="ignore", invalid="ignore"):
            step = mean - self.mean if self.observed else mean * 0.0
            if not self.observed:
                self.mean = mean
            both = self.observed + n
            self.mean = self.mean + step * (n / both)
            self.square = self.square + square + np.square(step) * (self.observed * n / both)
        self.observed = both


@dataclass(frozen=True)
class Encoding:
    """How the columns of a slot become numbers, and what bind found out about them.

    Attributes
    ----------
    shift, scale : (d,) float64; a centred number is stored as (x - shift) / scale. The shift is the
        median of the sample, a value of the data; the scale is a power of two near its spread. Plain
        numbers are stored as they are and use both only to measure distances
    low, high : (d,) extremes as encoded; variance : (d,) of all rows, as encoded
    levels : the labels, sorted; frequencies : (levels,) their shares of the rows
    observed, missing : number of rows, over all ranks, where the slot is present, and where it is not
    bases : keys of the base measures that are not zero everywhere
    words : of a bag the positions in its vocabulary, the `levels` or whole numbers, of the words that occur in the
        data of the fit, (words,) int64 ascending; codes are positions among these. `levels` are in the order of the
        vocabulary, and `observed` counts the distinct words of all documents
    """

    key: SlotKey
    shift: np.ndarray
    scale: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    levels: tuple = ()
    frequencies: np.ndarray = field(default_factory=lambda: np.empty(0))
    observed: int = 0
    missing: int = 0
    bases: frozenset = frozenset()
    words: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def encode_labels(self, codes: np.ndarray, levels: list) -> np.ndarray:
        """Codes (n,) int32 into the sorted levels; len(levels) where unseen, len(levels) + 1 where missing."""
        known = {label_key(level): i for i, level in enumerate(self.levels)}
        n = len(self.levels)
        to = np.array([known.get(label_key(level), n) for level in levels] + [n + 1], dtype=np.int32)
        return to[codes]


def bind_encoding(
    key: SlotKey,
    summary: Summary,
    kept: Encoding | None = None,
    levels: tuple | None = None,
    bases: frozenset = frozenset(),
    centre: bool = True,
) -> Encoding:
    """The encoding of a slot, from its merged summary.

    `kept` is the encoding of a model fitted earlier, whose shift, scale, levels and moments stay;
    `levels` are those that the user declared; `bases` as in `Encoding`. Without `centre` numbers are not
    shifted: a row that is only scored must not lose digits to the rows beside it.
    """
    if key.sequence.endswith(BAG):
        return _bind_bag(key, summary, kept, levels)
    if key.kind == "label":
        names = kept.levels if kept else levels if levels is not None else tuple(v for _, v in sorted(summary.counts))
        counts = np.array([summary.counts.get(label_key(level), 0) for level in names], dtype=float)
        share = kept.frequencies if kept else counts / max(counts.sum(), 1.0)
        none = np.empty(0)
        seen = summary.observed, summary.missing
        return Encoding(key, none, none, none, none, none, none, tuple(names), share, *seen, bases)
    shift, scale = (kept.shift, kept.scale) if kept else _centre(summary) if centre else _unmoved(summary)
    if key.kind == "even":
        scale = np.full_like(scale, scale.max())
    unit_shift, unit = (shift, scale) if key.kind in SHIFTED else (0.0, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        variance = summary.square / max(summary.observed, 1) / np.square(unit)
        low, high = (summary.low - unit_shift) / unit, (summary.high - unit_shift) / unit
        if not summary.observed:
            low = high = np.zeros(summary.width)
        mean = (summary.mean - unit_shift) / unit
        # moments of numbers near the largest may overflow: then the spread of the sample stands in
        ok = np.isfinite(variance) & np.isfinite(mean)
        spread = scale / unit
        mean, variance = np.where(ok, mean, (shift - unit_shift) / unit), np.where(ok, variance, spread**2)
    if kept:
        mean, variance = kept.mean, kept.variance
    seen = summary.observed, summary.missing
    return Encoding(key, shift, scale, low, high, mean, variance, (), np.empty(0), *seen, bases)


def _bind_bag(key: SlotKey, summary: Summary, kept: Encoding | None, levels: tuple | None) -> Encoding:
    """The encoding of the words of a bag, or of their counts, which say nothing."""
    none, words = np.empty(0), summary.words
    names: tuple = ()
    if kept:
        names, words = kept.levels, kept.words
    elif key.kind == "label":
        names = tuple(v for _, v in sorted(summary.counts)) if levels is None else levels
        words = np.array([i for i, level in enumerate(names) if label_key(level) in summary.counts], np.int64)
    return Encoding(key, none, none, none, none, none, none, tuple(names), none, summary.observed, words=words)


def _unmoved(summary: Summary) -> tuple[np.ndarray, np.ndarray]:
    """The shift and scale that leave numbers as they are."""
    return np.zeros(summary.width), np.ones(summary.width)


def _centre(summary: Summary) -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale of each column, from the sample and the extremes.

    The scale is a power of two near the spread. The shift is the median of the sample where all numbers
    are within a factor of two of it, so that the difference is exact; otherwise the origin is near
    enough, and the digits of small numbers are kept.
    """
    order = np.argsort(summary.sample_rows, kind="stable")
    x = np.sort(summary.sample[:, order], axis=1)
    k = x.shape[1]
    if not k:
        return _unmoved(summary)
    middle = x[:, k // 2].copy()
    with np.errstate(over="ignore"):
        # the median absolute deviation bears half of the rows being outliers
        deviation = np.sort(np.abs(x - middle[:, None]), axis=1)
        spread = 1.4826 * deviation[:, k // 2]
        spread = np.where(spread > 0, spread, deviation[:, -1])
        far = np.maximum(np.abs(summary.low), np.abs(summary.high)) > 2.0 * (summary.high - summary.low)
    shift = np.where(far, middle, 0.0)
    usable = (spread > 1e-290) & (spread < 1e290)
    scale = np.ldexp(1.0, np.where(usable, np.round(np.log2(np.where(usable, spread, 1.0))), 0).astype(int))
    return shift, scale


def label_key(level) -> tuple:
    """Labels of different types differ, although 1 == True in Python."""
    return (type(level).__name__, level)


def as_label(value):
    """A label as str, int, bool or float: NumPy scalars taken out, bytes decoded, whole floats as int."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bytes):
        return value.decode()
    return int(value) if isinstance(value, float) and value.is_integer() else value
