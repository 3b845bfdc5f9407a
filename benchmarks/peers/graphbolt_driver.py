"""DGL's GraphBolt: ItemSampler, sample_neighbor, fetch_feature, DGL's convolutions. Runs in .dev/peers/graphbolt.

The pipe is that of DGL's own example (`examples/graphbolt/node_classification.py`): `copy_to` comes last, so that
a thread prepares batches while the model trains.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dgl  # type: ignore[import-not-found,import-untyped,unused-ignore]
import torch
from dgl import graphbolt  # type: ignore[import-not-found,import-untyped,unused-ignore,attr-defined]
from dgl.nn import GATConv, SAGEConv  # type: ignore[import-not-found,import-untyped,unused-ignore]
from driver import Request, Step, Turn, epoch_turn, layer_turn, sampled, serve, shared
from torch import Tensor, nn
from torch.nn import functional as F


def sampling(request: Request) -> Turn:
    """The pipe without features."""
    orders = request.given("seeds").int()
    current = shared(orders[0])
    loader = _loader(request, graphbolt.ItemSet(current, names="seed_nodes"), None)
    return sampled(orders, current, lambda: (_num_edges(batch) for batch in loader))


def layer(request: Request) -> Turn:
    """One convolution on the block, which is made again in every pass, as for every batch."""
    indptr, sources = (request.given(f"{request.block}_{name}").int() for name in ("indptr", "sources"))
    num_src = int(request.given(f"{request.block}_num_src"))
    num_dst, edge_ids = len(indptr) - 1, torch.arange(len(sources), dtype=torch.int32)
    conv = _convolution(request, 1 if request.block == "hidden" else 0)

    def forward(x: Tensor) -> Tensor:
        block = dgl.create_block(("csc", (indptr, sources, edge_ids)), num_src_nodes=num_src, num_dst_nodes=num_dst)
        out: Tensor = conv(block, (x, x[:num_dst]))
        return out.flatten(1)

    return layer_turn(request, conv, forward, num_src)


def epoch(request: Request) -> Turn:
    """An epoch of the model of the request."""
    labels, current = request.array("labels").long(), shared(request.given("orders")[0].int())
    items = graphbolt.ItemSet(current, names="seed_nodes")
    feature = graphbolt.TorchBasedFeature(request.array("features").float())
    loader = _loader(request, items, graphbolt.BasicFeatureStore({("node", None, "feat"): feature}))
    net = Net(request)

    def steps() -> Iterable[Step]:
        for batch in loader:
            blocks = batch.blocks
            yield (
                net(batch.node_features["feat"], blocks),
                labels[batch.seed_nodes.long()],
                sum(block.num_edges() for block in blocks),
            )

    return epoch_turn(request, net, current, steps)


class Net(nn.Module):
    """A stack of convolutions; hidden layers end with the activation, and dropout follows it."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_convolution(request, index) for index in range(len(request.fanouts)))
        self.act = F.elu if request.model == "gat" else F.relu
        self.dropout = request.config["model"]["dropout"]

    def forward(self, x: Tensor, blocks: list[Any]) -> Tensor:
        """Logits of the targets."""
        for index, block in enumerate(blocks):
            x = self.convs[index](block, (x, x[: block.num_dst_nodes()])).flatten(1)
            if index < len(blocks) - 1:
                x = F.dropout(self.act(x), self.dropout, self.training)
        return x


def _loader(request: Request, items: Any, features: Any) -> Any:  # noqa: ANN401
    graph = graphbolt.fused_csc_sampling_graph(request.array("indptr").long(), request.array("indices").int())
    pipe = graphbolt.ItemSampler(items, batch_size=request.batch_size, shuffle=False)
    pipe = pipe.sample_neighbor(graph, request.fanouts[::-1])  # GraphBolt's order: the input side first
    # Without keys it fetches nothing, but it is where the loader cuts the pipe for its processes.
    pipe = pipe.fetch_feature(features, node_feature_keys=None if features is None else ["feat"])
    return graphbolt.DataLoader(pipe.copy_to(torch.device("cpu")), num_workers=request.num_workers)


def _num_edges(batch: Any) -> int:  # noqa: ANN401
    return sum(len(subgraph.sampled_csc.indices) for subgraph in batch.sampled_subgraphs)


def _convolution(request: Request, index: int) -> nn.Module:
    model, last = request.config["model"], index == len(request.fanouts) - 1
    in_dim = model["hidden"] if index else request.array("features").shape[1]
    out_dim = int(request.array("labels").max()) + 1 if last else model["hidden"]
    if request.model == "sage":
        made: nn.Module = SAGEConv(in_dim, out_dim, "mean")
    else:
        heads = 1 if last else model["heads"]
        made = GATConv(in_dim, out_dim // heads, heads, allow_zero_in_degree=True)
    return made


if __name__ == "__main__":
    serve({"sampling": sampling, "layer": layer, "epoch": epoch})
