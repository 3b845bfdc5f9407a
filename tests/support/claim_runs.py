"""Runs, checks and claims by hand, for tests of what claims rest on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnexp.record.runs import RecordedRun
from gnnexp_papers.claim import Check, Claim, Expects

RATIO = Expects("ratio", 1.5, 2.5, None, "higher")


def run_of(
    system: str,
    value: float,
    seed: int = 0,
    *,
    workers: int = 2,
    cores: int = 64,
    cpu: str = "A",
    shape: str | None = None,
    scale: float = 1.0,
    sizes: Mapping[str, int] | None = None,
    nodes: tuple[Mapping[str, Any], ...] = (),
    **more: float,
) -> RecordedRun:
    """Of three epochs of `value` seconds each, on a machine with as many cores as said."""
    config = {
        "system": system,
        "seed": seed,
        "dataset": {"name": "a", "shape": shape, "scale": scale},
        "hardware": {"workers": workers, "launcher": {"_target_": "gnnexp.launchers.local.LocalLauncher"}},
        "model": {"hidden": 4, "layers": 2},
        "feature_store": {},
        "task": {},
        "train": {},
        "sampler": {},
    }
    provenance = {
        "choices": {"model": "sage"},
        "graph": {"num_features": 2, "num_classes": 2, **(sizes or {})},
        "hardware": {"cpu": cpu, "cores": cores},
        "libraries": {"torch": "2"},
    }
    metrics = {"time/epoch_s": value, "work/vertices_layer1": 5.0, **more}
    path = Path(f"{system}{seed}{workers}{value}{shape}{cpu}")
    return RecordedRun(path, config, provenance, [metrics] * 3, {}, "finished", nodes=nodes)


def check_of(**more: object) -> Check:
    """`slow` over `fast`, seconds of an epoch."""
    fields: Mapping[str, Any] = {
        "sweeps": ("s",),
        "value": "[time/epoch_s]",
        "of": {"system": ("slow",)},
        "over": {"system": ("fast",)},
        **more,
    }
    return Check(**fields)


def claim_of(
    check: Check | None, expects: Expects = RATIO, *, hardware: bool = False, kind: str = "time", paper: str = "paper"
) -> Claim:
    """A claim of time, which other hardware may decide otherwise where `hardware` is."""
    return Claim(
        paper, "it_is_fast", "it is fast", "Table 1", kind, hardware, expects, "in words", "a note", check, "a reason"
    )
