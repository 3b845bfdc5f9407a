"""Offloaded training on the full graph (HongTu) with 10, 25 and 50 % of the memory that it would take on the GPU.

A rank copies what the record counts, and two keys of dropout masks for each layer: the profiler's bytes must be equal.
The rest of the epoch that no kernel covers is the part of the copies that is not hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.report import NOT_RUN, Row
from benchmarks.gpu.speed.graph import QUICK_SCALE, products_like
from benchmarks.gpu.speed.training import epochs_of, refusal, sampled
from benchmarks.gpu.stage import Stage
from gnnexp.graph.graph import Graph
from gnnexp.testing.exactness import parts

SHARES = (0.10, 0.25, 0.50)
QUICK_SHARES = (0.25,)
# The scale of the products-like graph.
SCALE = 0.1
# Columns of the features and of every layer.
_WIDTHS = (100, 128, 128, 47)
# Bytes of the key of a mask, and the share of copies that is wanted behind kernels.
_KEY_BYTES, _HIDDEN = 8, 0.6
# Bytes may differ by this share: a copy of one number.
_SAME = 0.001


def run(stage: Stage) -> bool:
    """Every share; whether there was time for all."""
    graph = products_like(QUICK_SCALE if stage.quick else SCALE, features=True)
    for share in QUICK_SHARES if stage.quick else SHARES:
        if stage.left_s <= 0:
            return False
        name = f"device_memory {share:.0%}"
        stage.check(name, partial(_rows, stage, name, graph, int(share * whole_bytes(graph))))
    return True


def whole_bytes(graph: Graph) -> int:
    """Memory on the GPU without offload: topology and its transpose, rows of all layers and their gradients."""
    return 16 * graph.num_edges + 2 * 4 * graph.num_nodes * sum(_WIDTHS)


def configuration(device_memory: int, *, quick: bool) -> dict[str, Any]:
    """Three layers of GCN, 128 wide, with features in host memory."""
    config = sampled("gcn", "torch", steps=1, quick=quick, measure="free")
    config["train"] |= {"batch_size": None, "steps_per_epoch": None}
    config["sampler"] = {"_target_": "gnnexp.samplers.full.FullOptions", "key": "global"}
    config["paradigm"] = {
        "_target_": "gnnexp.paradigms.offload.Offload",
        "chunks": None,
        "device_memory": device_memory,
    }
    return config


def _rows(stage: Stage, name: str, graph: Graph, device_memory: int) -> Iterator[Row]:
    config = configuration(device_memory, quick=stage.quick)
    if reason := refusal(config):
        yield Row(name, words=f"{NOT_RUN}: {reason}")
        return
    plain, traced = epochs_of(
        config,
        graph,
        2,
        partition=parts(graph, 1),
        trace=stage.report.folder / "traces" / f"offload_{device_memory}.json.gz",
    )
    expected = plain.work["tier/h2d_bytes"] + 2 * _KEY_BYTES * (len(_WIDTHS) - 1)
    ratio = traced.trace["h2d_bytes"] / expected
    yield Row(
        f"{name}: bytes to the device over the formula",
        abs(ratio - 1) <= _SAME,
        ratio,
        "ratio",
        words=f"{traced.trace['h2d_bytes']:.0f} bytes, and the formula has {expected}",
    )
    yield Row(
        name,
        value=plain.times.epoch_s,
        unit="s an epoch",
        words=f"peak {torch.cuda.max_memory_allocated(stage.device)} bytes of {device_memory}",
    )
    for crossing, seconds in plain.times.crossings.items():
        moved = plain.work.get(f"tier/{crossing}_bytes", 0)
        if seconds and moved:
            yield Row(f"{name}: {crossing}", value=moved / seconds, unit="bytes/s", ceiling=stage.ceiling.link)
    copies = sum(plain.times.crossings.get(way, 0.0) for way in ("h2d", "d2h"))
    if "gpu_busy_s" in traced.trace and copies:
        exposed = max(0.0, plain.times.epoch_s - traced.trace["gpu_busy_s"])
        yield Row(
            f"{name}: share of copies that is hidden",
            value=max(0.0, 1 - exposed / copies),
            unit="share",
            target=_HIDDEN,
        )
