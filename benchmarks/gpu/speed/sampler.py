"""Batches of a products-like graph, made on the GPU and on the host: seconds, edges per second, and waits.

Edges are on the GPU, or in pinned host memory, which kernels in Triton read over the link.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numba
import torch
from torch import Tensor

from benchmarks.gpu.report import Row
from benchmarks.gpu.speed.graph import QUICK_SCALE, products_like
from benchmarks.gpu.stage import Stage, rate
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds
from gnnexp.measure.trace import tracing
from gnnexp.ops.backends import has_nvidia_gpu_build, has_triton, is_interpreted
from gnnexp.samplers.device_expansion import DeviceExpansion
from gnnexp.samplers.device_hops import DeviceTopology, assert_same, kernels_for
from gnnexp.samplers.expansion import Expansion
from gnnexp.tiers.pinned import pinned_array

FANOUTS = (15, 10, 5)
SIZES = {1024: 0.6e-3, 8192: 2.0e-3}  # targets of a batch, and the most seconds that are wanted, of Triton's kernels
QUICK_SIZES = (16,)
THREADS = (1, 16)
_KEYS = [0x9E3779B97F4A7C15, 2, 3]


def run(stage: Stage) -> bool:
    """Every number of targets, on the GPU and on the host; whether there was time for all."""
    graph = products_like(QUICK_SCALE if stage.quick else 1.0)
    host = Expansion(graph, BlockNeeds(), FANOUTS)
    for size in QUICK_SIZES if stage.quick else SIZES:
        seeds = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(size))[:size]
        for kernel, tier in (("torch", "device"), ("triton", "device"), ("triton", "uva")):
            if stage.left_s <= 0:
                return False
            name = f"B={size}, {kernel}{', edges in host memory' if tier == 'uva' else ''}"
            stage.check(name, partial(_on_gpu, stage, name, graph, host, seeds, kernel, tier))
        for threads in THREADS:
            if stage.left_s <= 0:
                return False
            name = f"B={size}, host, {threads} threads"
            stage.check(name, partial(_on_host, stage, name, host, seeds, threads))
    return True


def _on_gpu(
    stage: Stage, name: str, graph: Graph, host: Expansion, seeds: Tensor, kernel: str, tier: str
) -> Iterator[Row]:
    if kernel == "triton" and not (has_triton() and (has_nvidia_gpu_build() or is_interpreted())):
        yield Row(name, words="not run: Triton samples on a real GPU, or interpreted")
        return
    far = tier == "uva"
    hops = DeviceTopology(
        graph,
        BlockNeeds(),
        FANOUTS,
        stage.device,
        kernels=kernels_for(stage.device, kernel),
        pin=partial(_pinned, stage.device) if far else None,
    )
    there = DeviceExpansion(hops)
    blocks, _ = there.blocks(seeds, _KEYS)
    assert_same([block.arrays() for block in blocks], [block.arrays() for block in host.blocks(seeds, _KEYS)])
    edges = sum(block.num_edges for block in blocks)
    seconds = stage.bench().seconds(lambda: there.blocks(seeds, _KEYS))
    target = SIZES.get(seeds.numel()) if kernel == "triton" and not far else None
    found = rate(name, seconds, "s")
    yield Row(name, value=found.value, unit="s", target=target, values=found.values, at_most=True)
    yield rate(f"{name}, edges", [edges / one for one in seconds], "edges/s")
    if far:
        yield Row(f"{name}, bytes over the link", value=hops.far_bytes(edges), unit="bytes")
    with tempfile.TemporaryDirectory() as folder, tracing(stage.device, Path(folder) / "t" / "t.json.gz") as figures:
        there.blocks(seeds, _KEYS)
    yield Row(f"{name}, waits", value=figures["waits"], unit="waits of the host", target=1, at_most=True)
    yield Row(f"{name}, launches", value=figures["launches"], unit="launches")


def _pinned(device: torch.device, values: Tensor) -> Tensor:
    """A pinned copy, as the sampler makes it."""
    return pinned_array(tuple(values.shape), values.dtype, lambda there: there.copy_(values), None, device)


def _on_host(stage: Stage, name: str, host: Expansion, seeds: Tensor, threads: int) -> Row:
    before = numba.get_num_threads()
    if threads > numba.config.NUMBA_NUM_THREADS:
        return Row(name, words=f"not run: numba has {numba.config.NUMBA_NUM_THREADS} threads here")
    try:
        numba.set_num_threads(threads)
        return rate(name, stage.bench().seconds(lambda: host.blocks(seeds, _KEYS)), "s")
    finally:
        numba.set_num_threads(before)
