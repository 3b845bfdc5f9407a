"""Where and how long a rank measures: sizes by device, and the clock of each device.

Every repetition begins when all ranks have met: the figures are those of a machine on which all of them work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from gnnexp.comm.communicator import Communicator

GPU_TABLE_BYTES = 4 << 30  # a millisecond at 4 TB/s, and far more than any cache


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    Attributes:
        rows: of dense products.
        table_bytes: of the rows that are gathered and streamed: larger than the caches.
        nodes, edges: of the R-MAT graph that is sampled: larger than the caches.
        exchange_bytes: that a rank sends in a large exchange.
        host_bytes: that are copied between the host and a device.
        batches: sampled in a repetition.
        exchanges: small ones in a repetition.
        launches: of the smallest kernel in a repetition.
        repetitions: of every figure, after one that warms up.
    """

    rows: int = 32768
    table_bytes: int = 1 << 28
    nodes: int = 1 << 20
    edges: int = 1 << 24
    exchange_bytes: int = 16 << 20
    host_bytes: int = 16 << 20
    batches: int = 4
    exchanges: int = 100
    launches: int = 1000
    repetitions: int = 7


# For trying the command: everything fits the caches, so the figures are none to estimate with.
QUICK = Extent(rows=256, table_bytes=1 << 18, nodes=1 << 10, edges=1 << 13, exchange_bytes=1 << 16,
               host_bytes=1 << 16, batches=1, exchanges=5, launches=20, repetitions=2)


def on_gpu(extent: Extent, free_bytes: int) -> Extent:
    """`extent` with sizes for a GPU: tables of 4 GiB, as far as `free_bytes` of its memory allow.

    A GPU reads 256 MiB in less time than ranks take to meet.
    """
    table = min(GPU_TABLE_BYTES, free_bytes // 8)
    return replace(extent, rows=max(1, table // 8192), table_bytes=table, exchange_bytes=table // 16,
                   host_bytes=table // 4)


@dataclass(frozen=True, eq=False)
class Bench:
    """Where a rank measures.

    Attributes:
        extent: how much.
        comm: all ranks.
        device: of this rank.
    """

    extent: Extent
    comm: Communicator
    device: torch.device

    def seconds(self, work: Callable[[], object]) -> list[float]:
        """Of every repetition of `work`, all ranks at once."""
        found = []
        for _ in range(self.extent.repetitions + 1):
            self.comm.barrier()
            found.append(timed(work, self.device))
        return found[1:]

    def rates(self, amount: float, work: Callable[[], object]) -> list[float]:
        """`amount` per second."""
        return [amount / seconds for seconds in self.seconds(work)]


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of `work` by the clock of `device`: a GPU's current stream is empty before, its events are the clock."""
    if device.type != "cuda":
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    stream = torch.cuda.current_stream(device)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    stream.synchronize()
    first.record(stream)
    work()
    last.record(stream)
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3
