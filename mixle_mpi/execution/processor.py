"""The processor that a rank runs on."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_model() -> str | None:
    """The processor's name as Linux gives it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or None
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else None
