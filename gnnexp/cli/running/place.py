"""The place of a run in a sweep."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass

from gnnexp.record.runs import RUNS


@dataclass(frozen=True)
class Place:
    """The place of a run in a sweep.

    Attributes:
        sweep: name of the sweep.
        label: the overrides that distinguish the case from the others.
    """

    sweep: str
    label: str

    def to_json(self) -> dict[str, str]:
        """The place as entries of a provenance. They name the run for readers, and are no part of its key."""
        return {"sweep": self.sweep, "sweep_uid": sweep_uid(self.sweep), "label": self.label}


def sweep_uid(sweep: str) -> str:
    """The same id for every sweep of this name in this folder of this machine, also if the report's folder changes."""
    return hashlib.sha256(f"{platform.node()}:{(RUNS / 'sweeps' / sweep).resolve()}".encode()).hexdigest()[:32]
