"""Whether anything works: kernels compile, bytes move, streams wait, ranks exchange; and how fast the device is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch._C._distributed_c10d import TCPStore

from benchmarks.gpu.report import Row
from benchmarks.gpu.stage import Stage, rate
from gnnexp.kernels import warmup
from gnnexp.launchers.rendezvous_port import rendezvous_port
from gnnexp.planning.gpu_probes import d2h, h2d, launch_s
from gnnexp.planning.probes import Bench, probe_stream, timed
from gnnexp.testing.on_gpu import exchange
from gnnexp.testing.ranks import RankPools

_BYTES, _OPERATIONS = "bytes/s", "operations/s"
_MEMORY_SHARE, _LINK_SHARE = 0.83, 0.9  # of the ceiling, that are wanted: 4.0 of an H200's 4.8 TB/s


def run(stage: Stage) -> bool:
    """Every check once; whether there was time for all of them."""
    bench = stage.bench()
    checks: list[tuple[str, Callable[[], Row | Iterator[Row]]]] = [
        ("streams and events", lambda: _streams(stage)),
        ("exchange of 2 ranks", lambda: _exchange(stage)),
        ("nccl with itself", lambda: _nccl(stage)),
        ("copies", lambda: _copies(stage, bench)),
        ("products", lambda: _products(stage, bench)),
        ("launch", lambda: rate("launch", launch_s(bench), "s")),
        ("kernels of numba", lambda: _warm_up(stage)),
    ]
    for name, work in checks:
        if stage.left_s <= 0:
            return False
        stage.check(name, work)
    return True


def _warm_up(stage: Stage) -> Row:
    """Compile the CPU's kernels on all cores, in processes of their own; of a rehearsal one of them, here."""
    start = time.perf_counter()
    if stage.quick:
        warmup.compile_task(("sum", 0, 16))
        return Row("kernels of numba", value=time.perf_counter() - start, unit="s", words="one of them")
    done = subprocess.run(
        [sys.executable, "-m", "gnnexp.kernels.warmup"],
        capture_output=True,
        text=True,
        check=False,
        timeout=max(1.0, stage.left_s),
    )
    return Row("kernels of numba", done.returncode == 0, time.perf_counter() - start, "s", words=done.stderr[-2000:])


def _copies(stage: Stage, bench: Bench) -> Iterator[Row]:
    ceiling = stage.ceiling
    yield rate("h2d pinned", h2d(bench), _BYTES, ceiling.link, _LINK_SHARE)
    yield rate("d2h pinned", d2h(bench), _BYTES, ceiling.link, _LINK_SHARE)
    here = torch.zeros(bench.extent.host_bytes, dtype=torch.uint8)
    there = torch.zeros_like(here, device=stage.device)
    yield rate("h2d pageable", bench.rates(here.numel(), lambda: there.copy_(here)), _BYTES, ceiling.link)
    yield rate("d2h pageable", bench.rates(here.numel(), lambda: here.copy_(there)), _BYTES, ceiling.link)
    yield rate("d2d copy, read + write", _copied(bench), _BYTES, ceiling.memory, _MEMORY_SHARE)
    yield rate("stream kernel, read + write", probe_stream(bench), _BYTES, ceiling.memory, _MEMORY_SHARE)


def _copied(bench: Bench) -> list[float]:
    x = torch.zeros(bench.extent.table_bytes // 2, dtype=torch.uint8, device=bench.device)
    y = torch.empty_like(x)
    return bench.rates(2 * x.numel(), lambda: y.copy_(x))


def _products(stage: Stage, bench: Bench) -> Iterator[Row]:
    """Of large square matrices in every precision; no target is known before a GPU was measured."""
    side = 64 if stage.quick or stage.emulated else 8192
    x = torch.rand(side, side, generator=torch.Generator().manual_seed(0)).to(stage.device)
    half = x.bfloat16()
    before = torch.get_float32_matmul_precision()
    try:
        for name, precision, factor, ceiling in (
            ("float32", "highest", x, stage.ceiling.float32),
            ("tf32", "high", x, stage.ceiling.tf32),
            ("bf16", "highest", half, stage.ceiling.bf16),
        ):
            torch.set_float32_matmul_precision(precision)
            found = bench.rates(2 * side**3, lambda factor=factor: factor @ factor)  # type: ignore[misc]
            yield rate(f"product, {name}", found, _OPERATIONS, ceiling)
    finally:
        torch.set_float32_matmul_precision(before)


def _streams(stage: Stage) -> Row:
    """What another stream and the host see after an event is what was written before it, while the writer is late."""
    side = torch.cuda.Stream(stage.device)  # type: ignore[no-untyped-call]
    main = torch.cuda.current_stream(stage.device)
    size = 64 if stage.emulated else 4096
    x, busy = torch.zeros(1 << 12, device=stage.device), torch.zeros(size, size, device=stage.device)
    host, wrong = torch.zeros(1 << 12).pin_memory(), 0
    for turn in range(1, 21):
        for _ in range(4):
            busy @ busy
        x.fill_(turn)
        side.wait_event(main.record_event())
        with torch.cuda.stream(side):
            copied = x + 0
            host.copy_(copied, non_blocking=True)
            done = side.record_event()
        main.wait_event(done)
        done.synchronize()
        wrong += int((host != turn).sum())
    return Row("streams and events", wrong == 0, wrong, "stale values")


def _exchange(stage: Stage) -> Row:
    """Two ranks on this GPU, by gloo through pinned host memory."""
    pools, num_rows = RankPools(), 64 if stage.quick or stage.emulated else 1 << 16
    try:
        found = pools(2).run(exchange, num_rows, 64, timeout_s=max(1.0, stage.left_s))
    finally:
        pools.close()
    wrong = sum(one["wrong"] for one in found)
    slowest = max(one["seconds"] / one["bytes"] for one in found)
    return Row("exchange of 2 ranks", wrong == 0, 1 / slowest, f"{_BYTES}, gloo staged", words=f"{wrong:g} wrong rows")


def _nccl(stage: Stage) -> Row:
    """NCCL alone on this GPU: an all-to-all with itself."""
    name, dist = "nccl with itself", torch.distributed
    if stage.emulated:
        return Row(name, words="not run: there is no NCCL on the emulated device")
    store = TCPStore("127.0.0.1", rendezvous_port(os.getpid(), "127.0.0.1"), 1, is_master=True)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=stage.device)
    try:
        sent = torch.arange(1 << 26, dtype=torch.float32, device=stage.device)
        received = torch.empty_like(sent)
        seconds = min(timed(lambda: dist.all_to_all_single(received, sent), stage.device) for _ in range(5))
        return Row(name, torch.equal(sent, received), 2 * sent.nbytes / seconds, f"{_BYTES}, read + write")
    finally:
        dist.destroy_process_group()
