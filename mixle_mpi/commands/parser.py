"""Command lines that are refused with the nearest known option."""

from __future__ import annotations

import argparse

from mixle_mpi.contract.errors import nearest


class UsageError(Exception):
    """A command line that cannot be understood."""


class Parser(argparse.ArgumentParser):
    """argparse that raises UsageError instead of ending the process, and prints help on one rank only."""

    def __init__(self, *, speaks: bool, **keywords):
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **keywords)
        self._speaks = speaks

    def error(self, message):
        raise UsageError(message)

    def print_help(self, file=None):
        if self._speaks:
            super().print_help(file)

    def read(self, argv: list[str] | None) -> argparse.Namespace:
        """The options of a command line. Raises UsageError that names the nearest known option."""
        found, unknown = self.parse_known_args(argv)
        if unknown:
            options = [name for action in self._actions for name in action.option_strings]
            for word in unknown:
                if word.startswith("-") and word != "-":
                    name = word.split("=")[0]
                    raise UsageError(f"there is no option {name}; {nearest(name, options)}")
            raise UsageError(f"{unknown[0]!r} is one argument too many")
        return found
