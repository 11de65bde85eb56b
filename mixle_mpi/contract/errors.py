"""The refusals of the package. All are ValueErrors; commands map them to exit codes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ModelError(ValueError):
    """A model, option or run file that cannot be used; the message names it."""


class MemoryLimitError(ModelError):
    """No grid of these ranks has the memory; the message has both numbers."""


class DataError(ValueError):
    """Data that cannot be used; the message names the row, the column and the value."""


class NumericalError(ValueError):
    """An estimate that does not exist, such as a singular covariance without a floor."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a message: the known name nearest to `name`, or all known names."""
    known = [str(k) for k in known]
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
