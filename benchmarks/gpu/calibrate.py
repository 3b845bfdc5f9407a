"""This GPU as a hardware profile, by the probes of `gnnexp calibrate`: DIR/profile.yaml, for `conf/hardware`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.report import Row
from benchmarks.gpu.stage import Stage, rate
from gnnexp.components.schema import HardwareConfig
from gnnexp.datasets.generated.rmat import Rmat
from gnnexp.experiment.build import experiment_of
from gnnexp.planning.calibration import probes
from gnnexp.planning.figures import UNITS, figures_of, profile_text, write_profile
from gnnexp.planning.probes import Bench, probe_step

CONFIG = Path(__file__).with_name("configs") / "step.json"  # what `gnnexp.planning.probes.STEP_OVERRIDES` compose


def run(stage: Stage) -> bool:
    """Every figure of one rank, then the profile; whether there was time for all of them."""
    bench = stage.bench()
    for name, probe in _probes(stage, bench).items():
        if stage.left_s <= 0:
            return False
        stage.check(name, partial(_rate, name, probe))
    found = {row.name: row.values for row in stage.report.rows if row.ok}
    figures = figures_of([found])
    hardware = HardwareConfig(device="cuda", device_memory=int(stage.report.facts["memory_bytes"]))
    write_profile(
        stage.report.folder / "profile.yaml", profile_text(hardware, figures, _source(stage), "make gpu-proof")
    )
    return True


def _rate(name: str, probe: Callable[[], list[float]]) -> Row:
    return rate(name, probe(), UNITS[name])


def _probes(stage: Stage, bench: Bench) -> Mapping[str, Callable[[], list[float]]]:
    """Those of one rank, which has nobody to exchange with."""
    sampled = Rmat(
        num_nodes=bench.extent.nodes, num_edges=bench.extent.edges, num_features=1, num_classes=2, locality=0.0
    ).load()
    found = {name: probe for name, probe in probes(bench, sampled).items() if name not in ("latency", "d2d")}
    return {**found, "step_s": lambda: _step(stage, bench)}


def _step(stage: Stage, bench: Bench) -> list[float]:
    config: dict[str, Any] = json.loads(CONFIG.read_text(encoding="utf-8"))
    config["hardware"] = {**config["hardware"], "device": "cuda"}
    if stage.quick:
        config["dataset"] |= {"num_nodes": 200, "num_edges": 2000}
    experiment = experiment_of(config)
    return probe_step(experiment, experiment.dataset.load(), bench.comm, bench.extent.repetitions)


def _source(stage: Stage) -> str:
    facts = stage.report.facts
    machine: Mapping[str, Any] = facts["machine"]
    words = [
        f"make gpu-proof on {machine['host']}: {machine['cpu']}, {machine['cores']} cores",
        f"GPU {facts['device']}",
        f"driver {facts['driver'].get('driver_version')}",
        facts["date"][:10],
        "1 rank alone",
        f"commit {facts['commit']}{' with changes' if facts['dirty'] else ''}",
        f"torch {facts['torch']}",
    ]
    small = "; QUICK: sizes that fit into the caches, not for estimates" if stage.quick or stage.emulated else ""
    return ", ".join(words) + small
