"""Memory of this process that no mapped file explains."""

from __future__ import annotations

from pathlib import Path


def own_bytes() -> int:
    """Resident now, mapped files apart."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return next(int(words[1]) for words in lines if words[0] == "RssAnon:") * 1024
