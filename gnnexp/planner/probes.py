"""What a rank measures of its machine, with the kernels and exchanges that training uses (`gnnexp calibrate`).

Every repetition begins when all ranks have met: the figures are those of a machine on which all of them work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.models.backends import make_backend
from gnnexp.samplers.fused import FusedSampler

# GNN-like products, rows x columns in x columns out: features to hidden, hidden to hidden, hidden to classes.
_PRODUCTS = ((128, 256), (256, 256), (256, 64))
_WIDTH = 64  # columns of the rows that are gathered: 256 bytes, a hidden layer's
_DEGREE = 10
_SEED = 0


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    Attributes:
        rows: of dense products.
        table_bytes: of the rows that are gathered and streamed: larger than the caches.
        nodes, edges: of the R-MAT graph that is sampled: larger than the caches.
        exchange_bytes: that a rank sends in a large exchange.
        batches: sampled in a repetition.
        exchanges: small ones in a repetition.
        repetitions: of every figure, after one that warms up.
    """

    rows: int = 32768
    table_bytes: int = 1 << 28
    nodes: int = 1 << 20
    edges: int = 1 << 24
    exchange_bytes: int = 16 << 20
    batches: int = 4
    exchanges: int = 100
    repetitions: int = 7


# For trying the command: everything fits the caches, so the figures are none to estimate with.
QUICK = Extent(rows=256, table_bytes=1 << 18, nodes=1 << 10, edges=1 << 13, exchange_bytes=1 << 16, batches=1,
               exchanges=5, repetitions=2)


@dataclass(frozen=True, eq=False)
class Bench:
    """Where a rank measures.

    Attributes:
        extent: how much.
        comm: all ranks.
        device: of this rank.
        synchronize: waits for the device.
    """

    extent: Extent
    comm: Communicator
    device: torch.device
    synchronize: Callable[[], None]

    def seconds(self, work: Callable[[], object]) -> list[float]:
        """Of every repetition of `work`, all ranks at once."""
        found = []
        for _ in range(self.extent.repetitions + 1):
            self.comm.barrier()
            start = time.perf_counter()
            work()
            self.synchronize()
            found.append(time.perf_counter() - start)
        return found[1:]

    def rates(self, amount: float, work: Callable[[], object]) -> list[float]:
        """`amount` per second."""
        return [amount / seconds for seconds in self.seconds(work)]


def flops(bench: Bench) -> list[float]:
    """Float32 operations per second of the three products that a layer takes: forwards, and for both gradients."""
    rows = bench.extent.rows
    sides = [(_random(rows, wide, bench), _random(wide, narrow, bench), _random(rows, narrow, bench))
             for wide, narrow in _PRODUCTS]

    def work() -> None:
        for x, weight, gradient in sides:
            x @ weight
            gradient @ weight.T
            x.T @ gradient

    return bench.rates(sum(3 * 2 * rows * wide * narrow for wide, narrow in _PRODUCTS), work)


def gather(bench: Bench) -> list[float]:
    """Bytes per second of rows that the aggregation kernel reads, at random, of a table larger than the caches."""
    num_rows = bench.extent.table_bytes // (4 * _WIDTH)
    x, block, backend = _random(num_rows, _WIDTH, bench), _random_block(num_rows), make_backend("auto", bench.device)
    block = block.to(bench.device)
    return bench.rates(4 * _WIDTH * block.num_edges, lambda: backend.aggregate(block, x, None, None))


def stream(bench: Bench) -> list[float]:
    """Bytes per second that elementwise work reads and writes: two operands, one result."""
    num_rows = bench.extent.table_bytes // (3 * 4 * _WIDTH)
    x, y, out = (_random(num_rows, _WIDTH, bench) for _ in range(3))
    return bench.rates(3 * 4 * x.numel(), lambda: torch.add(x, y, out=out))


def sampling(bench: Bench, graph: Graph) -> list[float]:
    """Edges per second of the sampler, hops of 15, 10 and 5 from 1024 targets, other ones in every repetition."""
    sampler = FusedSampler([15, 10, 5], key="micro")
    sampler.setup(Shard(graph, bench.comm.rank, bench.comm.size), 3)
    random = np.random.default_rng((_SEED, bench.comm.rank))
    targets = min(1024, graph.num_nodes // 4)
    drawn: list[int] = []

    def work() -> None:
        drawn.append(0)
        for step in range(bench.extent.batches):
            seeds = torch.from_numpy(random.choice(graph.num_nodes, targets, replace=False))
            batch = sampler.sample(seeds, BatchKey(_SEED, len(drawn), step, bench.comm.rank))
            drawn[-1] += sum(block.num_edges for block in batch.blocks)

    seconds = bench.seconds(work)
    return [edges / spent for edges, spent in zip(drawn[1:], seconds, strict=True)]


def exchange(bench: Bench) -> list[float]:
    """Bytes per second that a rank sends in an uneven exchange, once all ranks have met; empty for one rank."""
    comm, width = bench.comm, _WIDTH
    if comm.size == 1:
        return []
    sent = uneven(bench.extent.exchange_bytes // (4 * width), comm.rank, comm.size)
    received = [uneven(bench.extent.exchange_bytes // (4 * width), other, comm.size)[comm.rank]
                for other in range(comm.size)]
    rows = _random(sum(sent), width, bench)
    bench.comm.ledger.take()
    rates = []
    for _ in range(bench.extent.repetitions + 1):
        comm.all_to_all(rows, sent, received, "features")
        traffic = comm.ledger.take()["features"]
        rates.append(traffic.sent_bytes / traffic.seconds)
    return rates[1:]


def latency(bench: Bench) -> list[float]:
    """Seconds of an exchange of one row, the barrier before it included; empty for one rank."""
    comm = bench.comm
    if comm.size == 1:
        return []
    rows = [0 if other == comm.rank else 1 for other in range(comm.size)]
    payload = _random(comm.size - 1, _WIDTH, bench)

    def work() -> None:
        for _ in range(bench.extent.exchanges):
            comm.all_to_all(payload, rows, rows, "features")

    return [seconds / bench.extent.exchanges for seconds in bench.seconds(work)]


def h2d(bench: Bench) -> list[float]:
    """Bytes per second from pinned host memory into the device."""
    rows = _host_rows(bench)
    return bench.rates(4 * rows.numel(), lambda: rows.to(bench.device, non_blocking=True))


def uneven(num_rows: int, rank: int, size: int) -> list[int]:
    """How many of `num_rows` a rank sends to each of the others: the next one gets most."""
    weights = [0 if other == rank else size - (other - rank) % size for other in range(size)]
    shares = [num_rows * weight // sum(weights) for weight in weights]
    shares[(rank + 1) % size] += num_rows - sum(shares)
    return shares


def _host_rows(bench: Bench) -> Tensor:
    return torch.zeros(bench.extent.exchange_bytes // (4 * _WIDTH), _WIDTH).pin_memory()


def _random(rows: int, columns: int, bench: Bench) -> Tensor:
    """Small values, the same for every rank."""
    generator = torch.Generator().manual_seed(_SEED)
    return torch.rand(rows, columns, generator=generator).to(bench.device)


def _random_block(num_sources: int) -> Block:
    """As many edges as sources, drawn at random, a few for every destination."""
    sources = np.random.default_rng(_SEED).integers(0, num_sources, num_sources).astype(np.int32)
    indptr = np.minimum(np.arange(-(-num_sources // _DEGREE) + 1) * _DEGREE, num_sources)
    return Block(torch.from_numpy(indptr), torch.from_numpy(sources), torch.arange(num_sources), indptr.size - 1)

