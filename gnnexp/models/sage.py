"""GraphSAGE with the mean aggregator (Hamilton, Ying, Leskovec, NeurIPS 2017): W_self h_v + W_neigh mean(h_u).

On a graph with edge weights the mean over the hop's edges is weighted: sum of w h_u / sum of w, or 0 if the sum of w
is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import Destinations, EndOfLayer, Layer, Traits
from gnnexp.models.model import ModelOptions
from gnnexp.ops.shortcuts import sum_of_linears


class SAGELayer(Layer):
    """One mean-aggregating layer with parameters `weight` and `self_weight`, both `[C, Din]`."""

    def __init__(self, in_dim: int, out_dim: int, **end: Unpack[EndOfLayer]) -> None:
        super().__init__(in_dim, out_dim, out_dim, **end)
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))
        self.self_weight = nn.Parameter(torch.empty(out_dim, in_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Draw both weights with Glorot's rule and ReLU's gain, as DGL's SAGEConv does."""
        super().reset(generator)
        for weight in (self.weight, self.self_weight):
            nn.init.xavier_uniform_(weight, gain=nn.init.calculate_gain("relu"), generator=generator)

    def project_self(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`h W_self`."""
        return self.linear(h, self.self_weight, dims)

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """Divide the sum by the number of all in-edges in the hop, and add the self part."""
        assert self_ is not None
        return torch.addcmul(self_, aggregated, _inverse(dst, aggregated.dtype))

    def _mixed_and_biased(self, dst: Destinations, aggregated: Tensor, own: Tensor) -> Tensor:
        """`mix` of the projections, and the bias. The mean has Din columns, and both products share a buffer."""
        mean = aggregated * _inverse(dst, aggregated.dtype)
        return sum_of_linears(own, self.self_weight, mean, self.weight, self.bias, self.matmul)

    traits = Traits(
        kind="static",
        takes_weights=True,
        input_weights=("weight", "self_weight", "residual_weight"),
        weights_key="given",  # edges have the weights of the block
        mixed_and_biased=_mixed_and_biased,
    )


def _inverse(dst: Destinations, dtype: torch.dtype) -> Tensor:
    """`[D, 1]`: one over the divisor of the mean."""
    if dst.weight is None:
        return (torch.ones((), dtype=dtype) / dst.degree.clamp(min=1)).unsqueeze(1)  # the host's one needs no copy
    inverse = dst.weight.reciprocal()
    return inverse.masked_fill(inverse.isinf(), 0).to(dtype).unsqueeze(1)


@dataclass(frozen=True)
class SAGEOptions(ModelOptions):
    """A stack of GraphSAGE-mean layers.

    Attributes:
        hidden, layers, dropout, input_dropout, residual, norm, bias, kernel: as in `gnnexp.models.gcn.GCNOptions`.
    """

    hidden: int = 256
    layers: int = 3
    dropout: float = 0.5
    input_dropout: float = 0.0
    residual: bool = False
    norm: bool = False
    kernel: str = "auto"
    bias: bool = True

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        """The `index`-th layer."""
        return SAGELayer(
            in_dim, out_dim, **self.end_of_layer(index, residual=self.residual, norm=self.norm, bias=self.bias)
        )
