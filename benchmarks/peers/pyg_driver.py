"""PyTorch Geometric with torch-sparse: NeighborLoader, SAGEConv and GATConv. Runs in .dev/peers/pyg.

The layers compute only what the targets need, as PyG's `trim_to_layer` does. Its counts by hop come from pyg-lib, which
is not on the package index: here they are read off the sampled edges, which torch-sparse returns by destination.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from driver import Request, Step, Turn, epoch_turn, hops, layer_turn, sampled, serve, shared
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch_geometric.loader import NeighborLoader  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch_geometric.nn import GATConv, SAGEConv  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch_sparse import SparseTensor  # type: ignore[import-not-found,import-untyped,unused-ignore]

warnings.filterwarnings("ignore", message=".*without a 'pyg-lib' installation.*")


def sampling(request: Request) -> Turn:
    """NeighborLoader on a graph without features."""
    orders = request.given("seeds")
    current = shared(orders[0])
    loader = _loader(request, Data(edge_index=_edges(request), num_nodes=len(request.array("indptr")) - 1), current)
    return sampled(orders, current, lambda: (batch.edge_index.shape[1] for batch in loader))


def layer(request: Request) -> Turn:
    """One convolution on the block, whose layout is made again in every pass, as for every batch."""
    indptr, sources = (request.given(f"{request.block}_{name}").to(request.device) for name in ("indptr", "sources"))
    num_src = int(request.given(f"{request.block}_num_src"))
    num_dst = len(indptr) - 1
    edges = torch.stack([sources.long(), torch.arange(num_dst).repeat_interleave(indptr.diff())])
    conv = _convolution(request, 1 if request.block == "hidden" else 0).to(request.device)
    return layer_turn(
        request, conv, lambda x: conv((x, x[:num_dst]), _adjacency(request, edges, num_dst, num_src)), num_src
    )


def epoch(request: Request) -> Turn:
    """An epoch of the model of the request."""
    data = Data(x=request.array("features").float(), y=request.array("labels").long(), edge_index=_edges(request))
    current = shared(request.given("orders")[0])
    loader = _loader(request, data, current)
    net = Net(request).to(request.device)

    def steps() -> Iterable[Step]:
        for batch in loader:
            on_device = batch.to(request.device)
            found = hops(on_device.edge_index, on_device.batch_size, len(request.fanouts))
            layers = [
                (_adjacency(request, on_device.edge_index[:, :edges], num_dst, num_src), num_dst)
                for edges, num_dst, num_src in found
            ]
            yield (net(on_device.x, layers), on_device.y[: on_device.batch_size], sum(edges for edges, _, _ in found))

    return epoch_turn(request, net, current, steps)


class Net(nn.Module):
    """A stack of convolutions; hidden layers end with the activation, and dropout follows it."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_convolution(request, index) for index in range(len(request.fanouts)))
        self.act = F.elu if request.model == "gat" else F.relu
        self.dropout = request.config["model"]["dropout"]

    def forward(self, x: Tensor, layers: list[tuple[Any, int]]) -> Tensor:
        """Logits of the targets."""
        for index, (adjacency, num_dst) in enumerate(layers):
            x = self.convs[index]((x, x[:num_dst]), adjacency)
            if index < len(layers) - 1:
                x = F.dropout(self.act(x), self.dropout, self.training)
        return x


def _loader(request: Request, data: Any, targets: Tensor) -> Any:  # noqa: ANN401
    return NeighborLoader(
        data,
        request.fanouts,
        input_nodes=targets,
        batch_size=request.batch_size,
        shuffle=False,
        is_sorted=True,
        num_workers=request.num_workers,
        persistent_workers=request.num_workers > 0,
    )


def _edges(request: Request) -> Tensor:
    indptr = request.array("indptr").long()
    destinations = torch.arange(len(indptr) - 1).repeat_interleave(indptr.diff())
    return torch.stack([request.array("indices").long(), destinations])


def _adjacency(request: Request, edges: Tensor, num_dst: int, num_src: int) -> Any:  # noqa: ANN401
    if request.layout == "edge_index":
        return edges
    return SparseTensor(row=edges[1], col=edges[0], sparse_sizes=(num_dst, num_src), is_sorted=True, trust_data=True)


def _convolution(request: Request, index: int) -> nn.Module:
    model, last = request.config["model"], index == len(request.fanouts) - 1
    in_dim = model["hidden"] if index else request.array("features").shape[1]
    out_dim = int(request.array("labels").max()) + 1 if last else model["hidden"]
    if request.model == "sage":
        made: nn.Module = SAGEConv(in_dim, out_dim)
        for part in (made.lin_l, made.lin_r):  # as DGL and gnnexp: PyG's own start learns faster on this graph
            assert isinstance(part, nn.Module) and isinstance(part.weight, Tensor)
            nn.init.xavier_uniform_(part.weight, gain=nn.init.calculate_gain("relu"))
    else:
        heads = 1 if last else model["heads"]
        made = GATConv(in_dim, out_dim // heads, heads, add_self_loops=False)
    return made


if __name__ == "__main__":
    serve({"sampling": sampling, "layer": layer, "epoch": epoch})
