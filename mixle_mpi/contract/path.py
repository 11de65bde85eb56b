"""Paths of nodes: unique, readable, and able to say which members of a bank they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Components:
    """A level of a path below a mixture of `total` components: those that one bank evaluates, in order."""

    positions: tuple[int, ...]
    total: int

    def __str__(self) -> str:
        if len(self.positions) == 1 and self.total > 1:
            return f"component_{self.positions[0]}"
        if len(self.positions) == self.total:
            return "component_*"
        return f"component_{{{','.join(map(str, self.positions))}}}"


@dataclass(frozen=True)
class Path:
    """The place of a bank in the tree. Its members count through the components of all levels, the last fastest."""

    segments: tuple[str | Components, ...] = ()

    def __truediv__(self, segment: str | Components) -> Path:
        return Path((*self.segments, segment))

    def __str__(self) -> str:
        return "/".join(map(str, self.segments))

    @property
    def innermost(self) -> int:
        """How many members of the innermost mixture one bank evaluates; 1 outside of mixtures."""
        return next((len(s.positions) for s in reversed(self.segments) if isinstance(s, Components)), 1)

    def select(self, pattern: str, members: np.ndarray) -> np.ndarray:
        """Which members (m,) a user's path means: `component_3` one component, `component_*` all of them."""
        wanted = [s for s in pattern.split("/") if s]
        chosen = np.full(len(members), len(wanted) == len(self.segments))
        if not chosen.any():
            return chosen
        rest = members.copy()
        for segment, want in zip(reversed(self.segments), reversed(wanted)):
            if isinstance(segment, str):
                chosen &= segment == want
                continue
            number = np.asarray(segment.positions)[rest % len(segment.positions)]
            rest //= len(segment.positions)
            match = re.fullmatch(r"component_(\*|\d+)", want)
            if match is None:
                chosen[:] = False
            elif match[1] != "*":
                chosen &= number == int(match[1])
        return chosen
