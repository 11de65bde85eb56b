"""Cases that are repeated many times: `python -m tests.long [words of pytest]`, 20 repeats each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

if __name__ == "__main__":
    sys.exit(pytest.main([*(str(p) for p in sorted(HERE.glob("long_*.py"))), "-v", "--timeout=1800", *sys.argv[1:]]))
