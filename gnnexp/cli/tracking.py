"""Which tracker a record is delivered to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnnexp.config.compose import default_of
from gnnexp.experiment.build import build
from gnnexp.provenance.imported import imported_from
from gnnexp.record.runs import Run
from gnnexp.trackers.base import Tracker


def tracker_node(
    config: Mapping[str, Any], provenance: Mapping[str, Any], default: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The tracker that a run was configured with; `default` for one that was imported, whatever its record says."""
    own: Mapping[str, Any] = default if imported_from(provenance) else config.get("tracker", default)
    return own


def tracker_of(runs: Sequence[Run]) -> tuple[Mapping[str, Any], Tracker] | None:
    """That of the latest run which has one that delivers anywhere; of imported runs it is that of this folder."""
    default: Mapping[str, Any] = {}
    for run in reversed(runs):
        if not default and (imported_from(run.provenance) or "tracker" not in run.config):
            default = default_of("tracker")
        node = tracker_node(run.config, run.provenance, default)
        if (tracker := build(node, Tracker)).where():
            return node, tracker
    return None
