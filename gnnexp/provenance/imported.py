"""Runs that `gnnexp import` took from a file: their provenance says so, and nothing of them is carried out here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

IMPORTED = "imported"


def imported_from(provenance: Mapping[str, Any]) -> str:
    """The name of the file that a run was imported from; empty for a run that was made here."""
    mark = provenance.get(IMPORTED)
    if mark is None:
        return ""
    return str(mark.get("file") or "an archive") if isinstance(mark, Mapping) else "an archive"
