"""What a rank measures of its machine, with the kernels and exchanges that training uses (`gnnexp calibrate`).

What only a GPU has is measured in `gnnexp.planning.gpu_probes`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.ops.backends import make_backend
from gnnexp.planning.bench import Bench
from gnnexp.samplers.fused import FusedSampler

WIDTH = 64  # columns of the rows that are gathered: 256 bytes, a hidden layer's
# GNN-like products, rows x columns in x columns out: features to hidden, hidden to hidden, hidden to classes.
_PRODUCTS = ((128, 256), (256, 256), (256, 64))
_DEGREE = 10
_SEED = 0
_DRAWN_ROWS = 4096


def flops(bench: Bench) -> list[float]:
    """Float32 operations per second of the three products that a layer takes: forwards, and for both gradients."""
    rows, device = bench.extent.rows, bench.device
    sides = [(random_rows(rows, wide, device), random_rows(wide, narrow, device), random_rows(rows, narrow, device))
             for wide, narrow in _PRODUCTS]

    def work() -> None:
        for x, weight, gradient in sides:
            x @ weight
            gradient @ weight.T
            x.T @ gradient

    return bench.rates(sum(3 * 2 * rows * wide * narrow for wide, narrow in _PRODUCTS), work)


def gather(bench: Bench) -> list[float]:
    """Bytes per second of rows that the aggregation kernel reads, at random, of a table larger than the caches."""
    return gather_of(bench, bench.extent.table_bytes)


def gather_of(bench: Bench, table_bytes: int) -> list[float]:
    """The same of a table of `table_bytes`: as many rows are read as `Extent.table_bytes` holds."""
    x = random_rows(max(1, table_bytes // (4 * WIDTH)), WIDTH, bench.device)
    backend = make_backend("auto", bench.device)
    block = _random_block(x.shape[0], bench.extent.table_bytes // (4 * WIDTH)).to(bench.device)
    return bench.rates(4 * WIDTH * block.num_edges, lambda: backend.aggregate(block, x, None, None))


def stream(bench: Bench) -> list[float]:
    """Bytes per second that elementwise work reads and writes: two operands, one result."""
    num_rows = bench.extent.table_bytes // (3 * 4 * WIDTH)
    x, y, out = (random_rows(num_rows, WIDTH, bench.device) for _ in range(3))
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
    comm, width = bench.comm, WIDTH
    if comm.size == 1:
        return []
    sent = uneven(bench.extent.exchange_bytes // (4 * width), comm.rank, comm.size)
    received = [uneven(bench.extent.exchange_bytes // (4 * width), other, comm.size)[comm.rank]
                for other in range(comm.size)]
    rows = random_rows(sum(sent), width, bench.device)
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
    payload = random_rows(comm.size - 1, WIDTH, bench.device)

    def work() -> None:
        for _ in range(bench.extent.exchanges):
            comm.all_to_all(payload, rows, rows, "features")

    return [seconds / bench.extent.exchanges for seconds in bench.seconds(work)]


def uneven(num_rows: int, rank: int, size: int) -> list[int]:
    """How many of `num_rows` a rank sends to each of the others: the next one gets most."""
    weights = [0 if other == rank else size - (other - rank) % size for other in range(size)]
    shares = [num_rows * weight // sum(weights) for weight in weights]
    shares[(rank + 1) % size] += num_rows - sum(shares)
    return shares


def random_rows(num_rows: int, columns: int, device: torch.device) -> Tensor:
    """Values between 0 and 1, the same for every rank: some thousand rows, drawn once and repeated."""
    drawn = torch.rand(min(num_rows, _DRAWN_ROWS), columns, generator=torch.Generator().manual_seed(_SEED)).to(device)
    return drawn.repeat(-(-num_rows // _DRAWN_ROWS), 1)[:num_rows]


def _random_block(num_sources: int, num_edges: int) -> Block:
    """Edges drawn at random, ten for every destination."""
    sources = np.random.default_rng(_SEED).integers(0, num_sources, num_edges, dtype=np.int32)
    indptr = np.minimum(np.arange(-(-num_edges // _DEGREE) + 1) * _DEGREE, num_edges)
    return Block(torch.from_numpy(indptr), torch.from_numpy(sources), torch.arange(num_sources), indptr.size - 1)
