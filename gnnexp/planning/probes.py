"""Measurements of a rank's machine, with the kernels and exchanges that training uses (`gnnexp calibrate`).

All ranks call each `probe_…`, in the same order. It returns one figure for each repetition. Measurements that need a
GPU are in `gnnexp.planning.gpu_probes`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.ops.backends import make_backend
from gnnexp.paradigms.base import trainer_of
from gnnexp.samplers.fused import FusedOptions
from gnnexp.training.assemble import Artifacts, assemble
from gnnexp.training.optimization import Optimization

GPU_TABLE_BYTES = 4 << 30  # a millisecond at 4 TB/s, and far more than any cache


@dataclass(frozen=True)
class Extent:
    """The sizes of the measurements.

    Attributes:
        rows: number of rows of dense products.
        table_bytes: size of the tables whose rows are gathered and streamed: larger than the caches.
        nodes, edges: size of the R-MAT graph that is sampled: larger than the caches.
        exchange_bytes: bytes that a rank sends in a large exchange.
        host_bytes: bytes of a copy between the host and a device.
        batches: number of batches sampled in a repetition.
        exchanges: number of small exchanges in a repetition.
        launches: number of launches of the smallest kernel in a repetition.
        repetitions: number of repetitions for every figure, after one that warms up.
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


# `gnnexp calibrate --quick`, to try out the command: everything fits into the caches, so the figures must not be used
# for estimates.
QUICK = Extent(
    rows=256,
    table_bytes=1 << 18,
    nodes=1 << 10,
    edges=1 << 13,
    exchange_bytes=1 << 16,
    host_bytes=1 << 16,
    batches=1,
    exchanges=5,
    launches=20,
    repetitions=2,
)


def on_gpu(extent: Extent, free_bytes: int) -> Extent:
    """`extent` with sizes for a GPU: tables of 4 GiB, or less if only `free_bytes` of its memory are free.

    Smaller tables would not do: a GPU reads 256 MiB in less time than a barrier takes. The other sizes follow the
    table's: for 4 GiB, products have 524,288 rows, an exchange 256 MiB, and a copy 1 GiB.
    """
    table = min(GPU_TABLE_BYTES, free_bytes // 8)
    return replace(
        extent, rows=max(1, table // 8192), table_bytes=table, exchange_bytes=table // 16, host_bytes=table // 4
    )


@dataclass(frozen=True, eq=False)
class Bench:
    """The place and size of a rank's measurements.

    Attributes:
        extent: sizes of the measurements.
        comm: communicator of all ranks.
        device: device of this rank.
    """

    extent: Extent
    comm: Communicator
    device: torch.device

    def seconds(self, work: Callable[[], object]) -> list[float]:
        """Seconds of each repetition of `work`; all ranks begin at the same time."""
        seconds = []
        for _ in range(self.extent.repetitions + 1):
            self.comm.barrier()
            seconds.append(timed(work, self.device))
        return seconds[1:]

    def rates(self, amount: float, work: Callable[[], object]) -> list[float]:
        """Rates of `work`: `amount` per second, for each repetition."""
        return [amount / seconds for seconds in self.seconds(work)]


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of `work` by the clock of `device`. For a GPU these are events on its current stream, emptied before."""
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


WIDTH = 64  # columns of gathered rows: 256 bytes, as in a hidden layer
# Products of a typical GNN, as (columns in, columns out): features to hidden, hidden to hidden, hidden to classes.
_PRODUCTS = ((128, 256), (256, 256), (256, 64))
_DEGREE = 10
_SEED = 0
_DRAWN_ROWS = 4096


def probe_flops(bench: Bench) -> list[float]:
    """Float32 operations per second of the three products of a layer: forward, and both gradients."""
    rows, device = bench.extent.rows, bench.device
    operands = [
        (random_rows(rows, wide, device), random_rows(wide, narrow, device), random_rows(rows, narrow, device))
        for wide, narrow in _PRODUCTS
    ]

    def work() -> None:
        for x, weight, gradient in operands:
            x @ weight
            gradient @ weight.T
            x.T @ gradient

    return bench.rates(sum(3 * 2 * rows * wide * narrow for wide, narrow in _PRODUCTS), work)


def probe_gather(bench: Bench) -> list[float]:
    """Bytes per second of rows that the aggregation kernel reads at random from a table larger than the caches."""
    return gather_of(bench, bench.extent.table_bytes)


def gather_of(bench: Bench, table_bytes: int) -> list[float]:
    """As `probe_gather`, for a table of `table_bytes`. As many rows are read as a table of `Extent.table_bytes` has."""
    x = random_rows(max(1, table_bytes // (4 * WIDTH)), WIDTH, bench.device)
    backend = make_backend("auto", bench.device)
    block = _random_block(x.shape[0], bench.extent.table_bytes // (4 * WIDTH)).to(bench.device)
    return bench.rates(4 * WIDTH * block.num_edges, lambda: backend.sums.aggregate(block, x, None, None))


def probe_stream(bench: Bench) -> list[float]:
    """Bytes per second that elementwise work reads and writes, with two operands and one result."""
    num_rows = bench.extent.table_bytes // (3 * 4 * WIDTH)
    x, y, out = (random_rows(num_rows, WIDTH, bench.device) for _ in range(3))
    return bench.rates(3 * 4 * x.numel(), lambda: torch.add(x, y, out=out))


def probe_sampling(bench: Bench, graph: Graph) -> list[float]:
    """Edges per second of the sampler, with fanouts 15, 10 and 5 and 1024 targets, new ones in every repetition."""
    sampler = FusedOptions([15, 10, 5], key="micro").make()
    sampler.setup(Shard(graph, bench.comm.rank, bench.comm.size), 3)
    random = np.random.default_rng((_SEED, bench.comm.rank))
    targets = min(1024, graph.num_nodes // 4)
    edges_drawn: list[int] = []  # in each repetition, first that which warms up

    def work() -> None:
        edges_drawn.append(0)
        for step in range(bench.extent.batches):
            seeds = torch.from_numpy(random.choice(graph.num_nodes, targets, replace=False))
            batch = sampler.sample(seeds, BatchKey(_SEED, len(edges_drawn), step, bench.comm.rank))
            edges_drawn[-1] += sum(block.num_edges for block in batch.blocks)

    seconds = bench.seconds(work)
    return [edges / spent for edges, spent in zip(edges_drawn[1:], seconds, strict=True)]


def probe_exchange(bench: Bench) -> list[float]:
    """Bytes per second that a rank sends in an uneven exchange, timed after all ranks met; empty for one rank."""
    comm, width = bench.comm, WIDTH
    if comm.size == 1:
        return []
    sent = uneven(bench.extent.exchange_bytes // (4 * width), comm.rank, comm.size)
    received = [
        uneven(bench.extent.exchange_bytes // (4 * width), other, comm.size)[comm.rank] for other in range(comm.size)
    ]
    rows = random_rows(sum(sent), width, bench.device)
    bench.comm.ledger.take()
    rates = []
    for _ in range(bench.extent.repetitions + 1):
        comm.all_to_all(rows, sent, received, "features")
        traffic = comm.ledger.take()["features"]
        rates.append(traffic.sent_bytes / traffic.seconds)
    return rates[1:]


def probe_latency(bench: Bench) -> list[float]:
    """Seconds of an exchange of one row, including the barrier before it; empty for one rank."""
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
    """How many of `num_rows` rows a rank sends to each other rank: the next rank gets most."""
    weights = [0 if other == rank else size - (other - rank) % size for other in range(size)]
    shares = [num_rows * weight // sum(weights) for weight in weights]
    shares[(rank + 1) % size] += num_rows - sum(shares)
    return shares


def random_rows(num_rows: int, columns: int, device: torch.device) -> Tensor:
    """Values between 0 and 1, the same on every rank: up to 4096 rows are drawn once and then repeated."""
    drawn = torch.rand(min(num_rows, _DRAWN_ROWS), columns, generator=torch.Generator().manual_seed(_SEED)).to(device)
    return drawn.repeat(-(-num_rows // _DRAWN_ROWS), 1)[:num_rows]


def _random_block(num_sources: int, num_edges: int) -> Block:
    """A block of edges drawn at random, ten for every destination."""
    sources = np.random.default_rng(_SEED).integers(0, num_sources, num_edges, dtype=np.int32)
    indptr = np.minimum(np.arange(-(-num_edges // _DEGREE) + 1) * _DEGREE, num_edges)
    return Block(torch.from_numpy(indptr), torch.from_numpy(sources), torch.arange(num_sources), indptr.size - 1)


# What `probe_step` trains: three layers of 16 columns on a tiny graph. 8 targets draw 2 neighbours on each hop.
STEP_OVERRIDES = (
    "dataset=dcsbm",
    "dataset.num_nodes=2000",
    "dataset.num_edges=20000",
    "dataset.num_features=16",
    "partitioner=random",
    "sampler=fused",
    "sampler.fanouts=[2,2,2]",
    "feature_store=local",
    "model=sage",
    "model.hidden=16",
    "model.layers=3",
    "task=node_classification",
    "paradigm=data_parallel",
    "tracker=none",
    "train=default",
    "train.batch_size=8",
    "train.overlap=false",
)


def probe_step(experiment: Experiment, graph: Graph, comm: Communicator, repetitions: int) -> list[float]:
    """Seconds of a step of a tiny model, the mean of each epoch. Each rank trains a model of its own, all at once.

    Args:
        experiment: the experiment of `STEP_OVERRIDES`.
        graph: the graph of its dataset.
        comm: all ranks; they meet before every repetition and exchange nothing during it.
        repetitions: number of epochs, after one that warms up.
    """
    # A run of one rank, which shares the machine with the others: ranks of a calibration are on one machine.
    alone = Environment(local_rank=comm.rank, local_ranks=comm.size)
    job = assemble(experiment, Artifacts(graph), Path(), alone)
    trainer = trainer_of(job)
    optimization = Optimization(job, trainer)
    trainer.module.train()
    seconds = []
    for epoch in range(repetitions + 1):
        comm.barrier()
        start, steps = time.perf_counter(), 0
        for batch in trainer.batches(epoch):
            trainer.forward_backward(batch)
            trainer.synchronize()
            optimization.step()
            steps += 1
        seconds.append((time.perf_counter() - start) / steps)
    return seconds[1:]
