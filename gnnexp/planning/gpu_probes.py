"""Measurements of a GPU and of its link to the host, made by a rank (`gnnexp calibrate`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from gnnexp.feature_stores.local import LocalOptions
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.planning.probes import WIDTH, Bench, gather_of, probe_flops, random_rows


def gpu_probes(bench: Bench) -> Mapping[str, Callable[[], list[float]]]:
    """The measurements of a GPU, by the name of their figure."""
    return {
        "flops_tf32": lambda: flops_tf32(bench),
        "l2": lambda: l2(bench),
        "launch_s": lambda: launch_s(bench),
        "h2d": lambda: h2d(bench),
        "d2h": lambda: d2h(bench),
        "duplex": lambda: duplex(bench),
        "h2d_gather": lambda: h2d_gather(bench),
    }


def flops_tf32(bench: Bench) -> list[float]:
    """Operations per second of the products of `probe_flops`, with factors rounded to TF32 (10 bits of mantissa)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return probe_flops(bench)
    finally:
        torch.set_float32_matmul_precision(before)


def l2(bench: Bench) -> list[float]:
    """The same as `gather`, for a table that takes half of the device's cache."""
    return gather_of(bench, torch.cuda.get_device_properties(bench.device).L2_cache_size // 2)


def launch_s(bench: Bench) -> list[float]:
    """Seconds from one launch of the smallest kernel to the next."""
    x = torch.zeros(1, device=bench.device)

    def work() -> None:
        for _ in range(bench.extent.launches):
            x.add_(1)

    return [seconds / bench.extent.launches for seconds in bench.seconds(work)]


def h2d(bench: Bench) -> list[float]:
    """Bytes per second from pinned host memory into the device."""
    host = _pinned(bench)
    device = torch.empty_like(host, device=bench.device)
    return bench.rates(host.numel(), lambda: device.copy_(host, non_blocking=True))


def d2h(bench: Bench) -> list[float]:
    """Bytes per second from the device into pinned host memory."""
    host = _pinned(bench)
    device = torch.zeros_like(host, device=bench.device)
    return bench.rates(host.numel(), lambda: host.copy_(device, non_blocking=True))


def duplex(bench: Bench) -> list[float]:
    """Bytes per second of both directions together, copied at once on two streams."""
    sent, received = _pinned(bench), _pinned(bench)
    target, source = (torch.zeros_like(sent, device=bench.device) for _ in range(2))
    up, down = (torch.cuda.Stream(bench.device) for _ in range(2))  # type: ignore[no-untyped-call]

    def work() -> None:
        main = torch.cuda.current_stream(bench.device)
        for side, to, from_ in ((up, target, sent), (down, received, source)):
            side.wait_stream(main)
            with torch.cuda.stream(side):
                to.copy_(from_, non_blocking=True)
        for side in (up, down):
            main.wait_stream(side)

    return bench.rates(2 * sent.numel(), work)


def h2d_gather(bench: Bench) -> list[float]:
    """Bytes per second of rows that the local feature store reads at random on the host and brings to the device."""
    num_rows = max(1, bench.extent.host_bytes // (4 * WIDTH))
    nothing = torch.zeros(num_rows + 1, dtype=torch.int64)
    graph = Graph(nothing, nothing[:0].int(), features=random_rows(num_rows, WIDTH, torch.device("cpu")))
    store = LocalOptions().make()
    store.setup(Shard(graph, bench.comm.rank, bench.comm.size), torch.float32, bench.device, bench.comm)
    ids = torch.randint(num_rows, (max(1, num_rows // 4),), generator=torch.Generator().manual_seed(bench.comm.rank))
    return bench.rates(4 * WIDTH * ids.numel(), lambda: store.read(ids))


def _pinned(bench: Bench) -> torch.Tensor:
    return torch.zeros(bench.extent.host_bytes, dtype=torch.uint8).pin_memory()
