"""GraphConv (Morris et al., AAAI 2019): W_self h_v + W sum of h_u, as strong as the first Weisfeiler-Leman test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import Destinations, EndOfLayer, Layer, Traits
from gnnexp.models.model import ModelOptions


class GraphConvLayer(Layer):
    """A sum over in-edges, and the destination's own row. Every paradigm runs it: it fulfils the layer contract."""

    traits = Traits(kind="static", takes_weights=True, input_weights=("weight", "self_weight"), weights_key="given")

    def __init__(self, in_dim: int, out_dim: int, **end: Unpack[EndOfLayer]) -> None:
        super().__init__(in_dim, out_dim, out_dim, **end)
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))
        self.self_weight = nn.Parameter(torch.empty(out_dim, in_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Draw both weights with Glorot's rule, from a generator that is the same on every rank."""
        super().reset(generator)
        for weight in (self.weight, self.self_weight):
            nn.init.xavier_uniform_(weight, generator=generator)

    def project_self(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`h W_self`."""
        return self.linear(h, self.self_weight, dims)

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """The sum of both parts."""
        assert self_ is not None
        return aggregated + self_


@dataclass(frozen=True)
class GraphConvOptions(ModelOptions):
    """A stack of GraphConv layers. The options are those of `gnnexp.models.gcn.GCNOptions`."""

    hidden: int = 64
    layers: int = 2
    dropout: float = 0.5
    input_dropout: float = 0.0
    kernel: str = "auto"

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        """The `index`-th layer. The last one returns logits."""
        return GraphConvLayer(in_dim, out_dim, **self.end_of_layer(index))
