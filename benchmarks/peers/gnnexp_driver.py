"""gnnexp's side of sampling and of one layer. Its epochs are those of `epoch_worker.py`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch
from driver import Request, Turn, layer_turn, sampled, serve, shared
from torch import Tensor

from gnnexp.experiment.build import experiment_of
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.graph.storage.format import open_graph
from gnnexp.models.layer import Degrees
from gnnexp.samplers.fused import FusedOptions
from gnnexp.samplers.pipeline import prefetched


def sampling(request: Request) -> Turn:
    """The fused sampler, with as many batches in flight as there are threads; the topology is in memory."""
    sampler = FusedOptions(request.fanouts).make()
    sampler.setup(Shard(Graph(request.array("indptr"), request.array("indices"))), len(request.fanouts))
    orders = request.given("seeds")
    current, threads = shared(orders[0]), int(os.environ["OMP_NUM_THREADS"])

    def edges_of() -> Iterable[int]:
        batches = torch.split(current, request.batch_size)
        for batch in prefetched(
            lambda step: sampler.sample(batches[step], BatchKey(0, 0, step)),
            len(batches),
            threads if threads > 1 else 0,
            2 * threads,
        ):
            yield sum(block.num_edges for block in batch.blocks)

    return sampled(orders, current, edges_of)


def layer(request: Request) -> Turn:
    """One layer of the model up to its activation. What a block keeps for later is made again in every pass."""
    graph, index = open_graph(Path(request.graph)), 1 if request.block == "hidden" else 0
    indptr, sources = (request.given(f"{request.block}_{name}") for name in ("indptr", "sources"))
    num_src = int(request.given(f"{request.block}_num_src"))
    block = Block(indptr, sources, torch.arange(num_src), len(indptr) - 1)
    net = experiment_of(request.config).model.make()
    net.setup(
        graph.num_features,
        int(request.array("labels").max()) + 1,
        Degrees.of(graph),
        seed=0,
        dtype=torch.float32,
        device=torch.device(request.device),
    )

    def forward(x: Tensor) -> Tensor:
        return net.preactivated(index, replace(block), x, None)

    return layer_turn(request, net, forward, num_src)


if __name__ == "__main__":
    serve({"sampling": sampling, "layer": layer})
