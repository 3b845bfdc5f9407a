"""One epoch of a few steps as a trace for Chrome: `DIR/traces/`, and how busy the GPU was."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.gpu.report import Row
from benchmarks.gpu.speed.graph import QUICK_SCALE, products_like
from benchmarks.gpu.speed.training import epochs_of, sampled
from benchmarks.gpu.stage import Stage
from gnnexp.graph.graph import Graph
from gnnexp.ops.backends import kernel_problem

_STEPS = 20
_BUSY = 0.85  # the share of the epoch in which a kernel should run


def run(stage: Stage) -> bool:
    """A trace with the kernels of torch and of Triton; whether there was time for both."""
    graph = products_like(QUICK_SCALE if stage.quick else 1.0, features=True)
    for kernel in ("torch", "triton"):
        if kernel_problem(kernel, stage.device.type) is not None:
            continue
        if stage.left_s <= 0:
            return False
        stage.check(f"trace, {kernel}", partial(_rows, stage, kernel, graph))
    return True


def _rows(stage: Stage, kernel: str, graph: Graph) -> Iterator[Row]:
    config = sampled("sage", kernel, steps=_STEPS, quick=stage.quick, feature_store={"tier": "device"}, measure="free")
    file = stage.report.folder / "traces" / f"sage_{kernel}.json.gz"
    (found,) = epochs_of(config, graph, 1, trace=file)
    trace = found.trace
    yield Row(
        f"events, {kernel}",
        file.exists() and trace["events"] > 0,
        trace["events"],
        "events",
        words=str(file.relative_to(stage.report.folder)),
    )
    yield Row(f"launches of a step, {kernel}", value=trace["launches"] / found.steps, unit="launches")
    yield Row(
        f"waits of a step, {kernel}",
        value=trace["waits"] / found.steps,
        unit="waits of the host",
        target=1.5,
        at_most=True,
    )
    if "gpu_busy_s" in trace:
        yield Row(f"GPU busy, {kernel}", value=trace["gpu_busy_s"] / found.times.epoch_s, unit="share", target=_BUSY)
