"""Paths of nodes: unique, readable, and able to say which members of a bank they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class UnitLevel:
    """A level of a path below a node of `total` units, components of a mixture or states: those that one bank
    evaluates, in order."""

    positions: tuple[int, ...]
    total: int
    word: str = "component"

    def __str__(self) -> str:
        if len(self.positions) == 1 and self.total > 1:
            return f"{self.word}_{self.positions[0]}"
        if len(self.positions) == self.total:
            return f"{self.word}_*"
        return f"{self.word}_{{{','.join(map(str, self.positions))}}}"


@dataclass(frozen=True)
class Path:
    """The place of a bank in the tree. Its members count through the units of all levels, the last fastest."""

    segments: tuple[str | UnitLevel, ...] = ()

    def __truediv__(self, segment: str | UnitLevel) -> Path:
        return Path((*self.segments, segment))

    def __str__(self) -> str:
        return "/".join(map(str, self.segments))

    @property
    def innermost(self) -> int:
        """How many units of the innermost node of units one bank evaluates; 1 outside of mixtures and the like."""
        return next((len(s.positions) for s in reversed(self.segments) if isinstance(s, UnitLevel)), 1)

    def of(self, member: int) -> str:
        """The path of one member of a bank."""
        names = []
        for segment in reversed(self.segments):
            if isinstance(segment, UnitLevel):
                member, at = divmod(member, len(segment.positions))
                names.append(f"{segment.word}_{segment.positions[at]}")
            else:
                names.append(segment)
        return "/".join(reversed(names))

    def meets(self, pattern: str) -> bool:
        """Whether a user's path means any of the members of a bank here."""
        wanted = [s for s in pattern.split("/") if s]
        if len(wanted) != len(self.segments):
            return False
        return all(
            segment == want if isinstance(segment, str)
            else want == f"{segment.word}_*" or want in {f"{segment.word}_{k}" for k in segment.positions}
            for segment, want in zip(self.segments, wanted)
        )  # fmt: skip

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
            match = re.fullmatch(rf"{segment.word}_(\*|\d+)", want)
            if match is None:
                chosen[:] = False
            elif match[1] != "*":
                chosen &= number == int(match[1])
        return chosen
