"""A checkout that has only what `make gpu-proof` needs, for a machine that has only what a rank needs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from benchmarks.gpu.needed import ROOT, needed_files


def not_core() -> str:
    """What a machine with torch, numba, scipy, psutil and numpy lacks."""
    named = re.search(r"^NOT_CORE := (.+)$", (ROOT / "Makefile").read_text(), re.M)
    assert named is not None
    return f"{named[1]},pytest,_pytest,hypothesis,cloudpickle"


def plain_copy(place: Path) -> Path:
    """The files that are needed, and nothing else but numba's cache of them."""
    for file in needed_files():
        target = place / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)
    for cached in (ROOT / "gnnexp").rglob("__pycache__/*.nb[ic]"):
        target = place / cached.relative_to(ROOT)
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(cached, target)
    return place
