"""GATv2 (Brody, Alon, Yahav, ICLR 2022): e_uv = a·LeakyReLU(W_src h_u + W_dst h_v), softmax over in-edges.

The score is not the sum of a key of each end, so the layer cannot fulfil the contract. It is a `BlockLayer`: ordinary
PyTorch over all in-edges of each destination. Paradigms that have all these edges on one rank run it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnexp.graph.block import Block, destinations
from gnnexp.models.layer import Activation, BlockLayer
from gnnexp.models.model import ModelOptions


class GATv2Layer(BlockLayer):
    """One attention head, and a self part for vertices without in-edges."""

    def __init__(self, in_dim: int, out_dim: int, activation: Activation) -> None:
        super().__init__(in_dim, out_dim, activation)
        self.source = nn.Linear(in_dim, out_dim, bias=False)
        self.destination = nn.Linear(in_dim, out_dim)
        self.attention = nn.Parameter(torch.empty(1, out_dim))
        self.own = nn.Linear(in_dim, out_dim)

    def reset(self, generator: torch.Generator) -> None:
        """Glorot initialisation from a generator that is the same on every rank."""
        for weight in (self.source.weight, self.destination.weight, self.own.weight, self.attention):
            nn.init.xavier_uniform_(weight, generator=generator)
        for bias in (self.destination.bias, self.own.bias):
            nn.init.zeros_(bias)

    def forward(self, block: Block, h_src: Tensor, h_dst: Tensor) -> Tensor:
        """Compute `[D, out]` from rows of the sources `[S, Din]` and of the destinations `[D, Din]`."""
        sources, places = block.sources.long(), destinations(block)
        x = self.source(h_src)[sources]
        score = F.leaky_relu(x + self.destination(h_dst)[places], 0.2) @ self.attention.squeeze(0)
        peak = score.new_full((block.num_dst,), -torch.inf).scatter_reduce(0, places, score.detach(), "amax")
        weight = torch.exp(score - peak[places])
        mass = score.new_zeros(block.num_dst).index_add(0, places, weight)
        summed = x.new_zeros(block.num_dst, x.shape[1]).index_add(0, places, x * (weight / mass[places]).unsqueeze(1))
        return self.own(h_dst) + summed  # type: ignore[no-any-return]


@dataclass(frozen=True)
class GATv2Options(ModelOptions):
    """A stack of GATv2 layers. The options are those of `gnnexp.models.gcn.GCNOptions`."""

    hidden: int = 256
    layers: int = 3
    dropout: float = 0.5
    input_dropout: float = 0.0
    kernel: str = "auto"

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> BlockLayer:
        """The `index`-th layer. The last one returns logits."""
        return GATv2Layer(in_dim, out_dim, self.end_of_layer(index, activation="elu")["activation"])
