"""Seconds of an epoch of 192 steps of mini-batches, for a table of configurations.

To add a configuration, add a line to `TABLE`. A line that this version refuses is listed as not run, with the reason.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.gpu.report import NOT_RUN, Row
from benchmarks.gpu.speed import pyg
from benchmarks.gpu.speed.graph import QUICK_SCALE, products_like, with_features_in_file
from benchmarks.gpu.speed.training import epochs_of, refusal, sampled
from benchmarks.gpu.stage import Stage
from gnnexp.graph.graph import Graph

PYG = "sage, PyG's NeighborLoader and SAGEConv"
STEPS = 192  # of an epoch of ogbn-products with batches of 1024
_TIMED, _REPETITIONS = 64, 3  # steps of a timed epoch, and the number of such epochs


@dataclass(frozen=True)
class Line:
    """A configuration.

    Attributes:
        model, kernel: model and kernels of its layers.
        measure: `exact` or `free`.
        tier: where the features are.
        changes: other keys.
        target: the most seconds that are wanted on an H200; None: nobody says.
    """

    model: str
    kernel: str
    measure: str = "free"
    tier: str = "device"
    changes: Mapping[str, Any] = field(default_factory=dict)
    target: float | None = None

    @property
    def name(self) -> str:
        """Name of the row."""
        options = [f"{group}.{key}={value}" for group, values in self.changes.items() for key, value in values.items()]
        return ", ".join((self.model, self.kernel, self.measure, f"tier={self.tier}", *options))

    def config(self, *, quick: bool) -> dict[str, Any]:
        """The resolved configuration."""
        return sampled(
            self.model,
            self.kernel,
            steps=_TIMED,
            quick=quick,
            feature_store={"tier": self.tier},
            measure=self.measure,
            **self.changes,
        )


_OVERLAP = {"train": {"overlap": True}}
TABLE = (
    Line("sage", "triton", target=0.45),
    Line("sage", "triton", "exact"),
    Line("sage", "torch"),
    Line("sage", "torch", "exact"),
    Line("sage", "triton", changes=_OVERLAP),
    Line("sage", "triton", tier="host"),
    Line("sage", "torch", tier="host", changes={**_OVERLAP, "sampler": {"device": "cpu"}}),
    Line("gat", "triton"),
    Line("gat", "torch"),
    Line("sage", "triton", changes={"train": {"matmul": "tf32"}}, target=0.30),
    Line("sage", "triton", changes={"train": {"matmul": "bf16"}}),
    Line("sage", "triton", tier="uva", target=1.3),
    Line("sage", "triton", tier="mapped"),
    Line("sage", "triton", changes={"sampler": {"tier": "uva"}}),
)


def run(stage: Stage) -> bool:
    """Every line of the table, the ratio of exact and free epochs, then PyG; whether there was time for all."""
    graph = products_like(QUICK_SCALE if stage.quick else 1.0, features=True)
    for line in TABLE:
        if stage.left_s <= 0:
            return False
        stage.check(line.name, partial(_row, stage, line, graph))
    for kernel in ("torch", "triton"):
        stage.check(f"exact over free, {kernel}", partial(_ratio, stage, kernel))
    if stage.left_s <= 0:
        return False
    stage.check(PYG, partial(_pyg, stage, graph))
    return True


def _pyg(stage: Stage, graph: Graph) -> Row:
    if reason := pyg.missing():
        return Row(PYG, words=f"{NOT_RUN}: {reason}")
    steps, count = (1, 1) if stage.quick else (_TIMED, _REPETITIONS)
    seconds = tuple(STEPS * one / steps for one in pyg.epochs_s(graph, stage.device, steps, count, quick=stage.quick))
    return Row(PYG, value=statistics.median(seconds), unit="s, 192 steps", values=seconds, at_most=True)


def _row(stage: Stage, line: Line, graph: Graph) -> Iterator[Row]:
    config = line.config(quick=stage.quick)
    if reason := refusal(config):
        yield Row(line.name, words=f"{NOT_RUN}: {reason}")
        return
    graph = with_features_in_file(graph) if line.tier == "mapped" else graph
    found = epochs_of(config, graph, 1 if stage.quick else _REPETITIONS)
    seconds = tuple(STEPS * one.times.epoch_s / one.steps for one in found)
    phases = found[-1].times.phases
    share = ", ".join(
        f"{name} {spent / max(1e-9, found[-1].times.epoch_s):.0%}" for name, spent in phases.items() if spent
    )
    yield Row(
        line.name,
        value=statistics.median(seconds),
        unit="s, 192 steps",
        target=line.target,
        values=seconds,
        words=share,
        at_most=True,
    )


def _ratio(stage: Stage, kernel: str) -> Row:
    """What the exact record costs."""
    name = f"exact over free, {kernel}"
    values = {row.name: row.value for row in stage.report.rows}
    exact, free = (values.get(Line("sage", kernel, measure).name) for measure in ("exact", "free"))
    if not exact or not free or math.isnan(exact / free):
        return Row(name, words=f"{NOT_RUN}: an epoch is missing")
    return Row(name, value=exact / free, unit="ratio")
