"""The files that a proof needs, and the digest that says whether a result is theirs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("gnnexp", "benchmarks/gpu", "emulated_gpu")
MOST_BYTES = 12_000_000


def needed_files(root: Path = ROOT) -> Iterator[Path]:
    """Makefile and whatever is in `FOLDERS`, but for what Python and numba made there; links lead to what is not
    needed."""
    yield root / "Makefile"
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            inside = file.relative_to(root)
            linked = any((root / part).is_symlink() for part in (inside, *inside.parents))
            if file.is_file() and not linked and "__pycache__" not in inside.parts:
                yield file


def digest() -> str:
    """Of the names and bytes of these files: equal digests, equal programs."""
    found = hashlib.sha256()
    for file in needed_files():
        content = file.read_bytes()
        found.update(f"{file.relative_to(ROOT)}\0{len(content)}\0".encode() + content)
    return found.hexdigest()[:16]
