"""GraphSAGE with max pooling (Hamilton et al., 2017, Section 3.3): the example of an ordinary PyTorch layer.

A maximum is not linear, so it cannot be on the layer contract. The layer is a `BlockLayer`. It runs under every
paradigm that has all in-edges of a destination in one place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnexp.graph.block import Block, destinations
from gnnexp.models.layer import Activation, BlockLayer
from gnnexp.models.model import ModelOptions
from gnnexp.ops import products


class SAGEPoolLayer(BlockLayer):
    """W_self h_v + W_neigh max over u of relu(W_pool h_u + b)."""

    takes_matmul = True

    def __init__(self, in_dim: int, out_dim: int, activation: Activation) -> None:
        super().__init__(in_dim, out_dim, activation)
        self.pool = nn.Linear(in_dim, in_dim)
        self.neighbour = nn.Linear(in_dim, out_dim, bias=False)
        self.own = nn.Linear(in_dim, out_dim)

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights with Glorot's rule and ReLU's gain; biases are zero."""
        for linear in (self.pool, self.neighbour, self.own):
            nn.init.xavier_uniform_(linear.weight, gain=nn.init.calculate_gain("relu"), generator=generator)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(self, block: Block, h_src: Tensor, h_dst: Tensor) -> Tensor:
        """`[D, out]`."""
        messages = torch.relu(self._mapped(self.pool, h_src))[block.sources.long()]
        nothing = messages.new_zeros(block.num_dst, messages.shape[1])
        pooled = nothing.scatter_reduce(0, destinations(block)[:, None].expand_as(messages), messages, "amax")
        return self._mapped(self.own, h_dst) + self._mapped(self.neighbour, pooled)

    def _mapped(self, map_: nn.Linear, rows: Tensor) -> Tensor:
        if self.matmul == "float32":
            out: Tensor = map_(rows)  # adds the bias in the product's pass
            return out
        product = products.linear(rows, map_.weight, self.matmul)
        return product if map_.bias is None else product + map_.bias


@dataclass(frozen=True)
class SAGEPoolOptions(ModelOptions):
    """A stack of pooling layers; options as in `gnnexp.models.gcn.GCNOptions`."""

    hidden: int = 256
    layers: int = 3
    dropout: float = 0.5
    input_dropout: float = 0.0
    kernel: str = "auto"

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> BlockLayer:
        """The `index`-th layer."""
        return SAGEPoolLayer(in_dim, out_dim, self.end_of_layer(index)["activation"])
