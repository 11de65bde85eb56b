"""The columns that are in reach of a node when columns are given out."""

from __future__ import annotations

from dataclasses import dataclass

from mixle_mpi.contract.errors import ModelError, nearest


@dataclass(frozen=True)
class Scope:
    """Columns in order. `names` are all in reach; `where` says whose they are, for messages.

    `prefix` is what the names begin with that come from a dict inside a named column.
    """

    names: tuple[str, ...]
    where: str = "the model"
    prefix: str = ""

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
            return Scope(tuple(columns), where)
        full = self.prefix + name
        if full in self.names:
            return Scope((full,), where)
        parts = tuple(n for n in self.names if n.startswith((f"{full}[", f"{full}.")))
        if parts:
            return Scope(parts, where, f"{full}.")
        if nested:
            return Scope(self.names, where, self.prefix)
        raise ModelError(f"{where}: no column {name!r}; {nearest(name, self.names)}")
