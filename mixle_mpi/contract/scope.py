"""The columns that are in reach of a node when columns are given out."""

from __future__ import annotations

from dataclasses import dataclass

from mixle_mpi.contract.errors import ModelError, nearest


@dataclass(frozen=True)
class Scope:
    """Columns in order. `names` are all in reach; `where` says whose they are, for messages.

    `prefix` is what the names begin with that come from a dict inside a named column. `sequence` names the
    sequence whose steps they are, by its first column; "" where they are of rows.
    """

    names: tuple[str, ...]
    where: str = "the model"
    prefix: str = ""
    sequence: str = ""

    def only(self, names: tuple[str, ...], where: str, prefix: str = "") -> Scope:
        """Some of the columns, of the same rows or steps."""
        return Scope(names, where, prefix, self.sequence)

    def steps(self, what: str) -> Scope:
        """The same columns as those of the steps of a sequence. Raises ModelError for sequences of sequences."""
        if self.sequence:
            raise ModelError(f"{self.where}: a {what} inside a sequence: steps are not sequences themselves")
        if not self.names:
            raise ModelError(f"{self.where}: {what} reads at least one column")
        return Scope(self.names, self.where, self.prefix, self.names[0])

    def exactly(self, width: int, what: str) -> tuple[str, ...]:
        """All columns of the scope, of which there must be `width`."""
        if len(self.names) != width:
            got = ", ".join(self.names) or "none"
            raise ModelError(
                f"{self.where}: {what} reads {width} column{'s' * (width != 1)} in order, "
                f"but there are {len(self.names)} ({got}); a record picks columns by name"
            )
        return self.names

    def field(self, name: str, columns: tuple[str, ...] | None, nested: bool) -> Scope:
        """The scope of a record's field: its declared columns, the column of its name, or `name[0]`, `name[1]`, ..."""
        where = f"field {name!r}"
        if columns is not None:
            for column in columns:
                if column not in self.names:
                    raise ModelError(f"{where}: no column {column!r}; {nearest(column, self.names)}")
            return self.only(tuple(columns), where)
        full = self.prefix + name
        if full in self.names:
            return self.only((full,), where)
        parts = tuple(n for n in self.names if n.startswith((f"{full}[", f"{full}.")))
        if parts:
            return self.only(parts, where, f"{full}.")
        if nested:
            return self.only(self.names, where, self.prefix)
        raise ModelError(f"{where}: no column {name!r}; {nearest(name, self.names)}")
