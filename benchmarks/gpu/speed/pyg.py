"""Epochs of PyTorch Geometric on the same graph: its NeighborLoader and its SAGEConv, as its examples use them."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnexp.graph.block import Block, destinations
from gnnexp.graph.graph import Graph

_WIDTH = 256
_MOST_WORKERS = 15


def missing() -> str:
    """Why PyG's loader does not run here; empty if it does."""
    if importlib.util.find_spec("torch_geometric") is None:
        return "torch_geometric is missing"
    try:
        found = importlib.import_module("torch_geometric.typing")  # it tries to import both
    except (ImportError, OSError, RuntimeError) as error:  # the emulated device cannot tell a version of CUDA
        return f"torch_geometric does not import: {str(error).splitlines()[0][:100]}"
    if found.WITH_PYG_LIB or found.WITH_TORCH_SPARSE:
        return ""
    return "NeighborLoader needs pyg-lib or torch-sparse, and both are missing"


def epochs_s(graph: Graph, device: torch.device, steps: int, count: int, *, quick: bool) -> list[float]:
    """Seconds of `count` epochs of `steps` steps, after one that warms up.

    Features and labels are on the device, and worker processes sample. With pyg-lib, layers skip what the targets do
    not need (`trim_to_layer`). torch-sparse does not count its hops, so all layers run on all sampled edges.
    """
    loader = _loader(graph, 4 if quick else 1024, [2, 2, 2] if quick else [15, 10, 5], steps)
    assert graph.features is not None and graph.labels is not None and isinstance(graph.features, Tensor)
    features, labels = graph.features.to(device), graph.labels.to(device)
    model = _Net(features.shape[1], 16 if quick else _WIDTH, graph.num_classes).to(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    found = []
    for _ in range(1 + count):
        start = time.perf_counter()
        for batch in itertools.islice(loader, steps):
            ids, seeds = batch.n_id.to(device), batch.batch_size
            out = model(features[ids], batch.edge_index.to(device), batch)[:seeds]
            F.cross_entropy(out, labels[ids[:seeds]]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - start)
    return found[1:]


def _loader(graph: Graph, batch_size: int, fanouts: list[int], steps: int) -> Any:  # noqa: ANN401
    """Batches of ids and edges of the first targets, as many as an epoch has steps."""
    data = importlib.import_module("torch_geometric.data").Data
    loader = importlib.import_module("torch_geometric.loader").NeighborLoader
    ids = torch.arange(graph.num_nodes, dtype=torch.int32)
    edges = torch.stack([graph.indices.long(), destinations(Block(graph.indptr, graph.indices, ids, graph.num_nodes))])
    workers = min(_MOST_WORKERS, len(os.sched_getaffinity(0)) - 1)
    return loader(
        data(edge_index=edges, num_nodes=graph.num_nodes),
        fanouts,
        is_sorted=True,
        batch_size=batch_size,
        input_nodes=graph.splits.train[: steps * batch_size],
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


class _Net(nn.Module):
    """Three layers with ReLU and dropout between them."""

    def __init__(self, columns: int, width: int, classes: int) -> None:
        super().__init__()
        conv = importlib.import_module("torch_geometric.nn").SAGEConv
        self.convs = nn.ModuleList(conv(*pair) for pair in ((columns, width), (width, width), (width, classes)))

    def forward(self, x: Tensor, edges: Tensor, batch: Any) -> Tensor:  # noqa: ANN401
        """Outputs of all vertices that the last layer still has; targets are first."""
        trim = importlib.import_module("torch_geometric.utils").trim_to_layer
        hops = getattr(batch, "num_sampled_nodes", None), getattr(batch, "num_sampled_edges", None)
        for index, conv in enumerate(self.convs):
            if None not in hops:
                x, edges, _ = trim(index, *hops, x, edges)
            x = conv(x, edges)
            if index < len(self.convs) - 1:
                x = F.dropout(F.relu(x), 0.5, self.training)
        return x
