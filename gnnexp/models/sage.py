"""GraphSAGE with the mean aggregator (Hamilton, Ying, Leskovec, NeurIPS 2017): W_self h_v + W_neigh mean(h_u)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import Activation, Destinations, Layer
from gnnexp.models.model import Model
from gnnexp.ops.shortcuts import SumOfLinears


class SAGELayer(Layer):
    """One mean-aggregating layer; `weight` and `self_weight` `[C, Din]`."""

    kind = "static"
    sums_are_short = True
    input_weights = ("weight", "self_weight", "residual_weight")

    def __init__(
        self, in_dim: int, out_dim: int, *, activation: Activation, residual: bool, norm: bool, bias: bool = True
    ) -> None:
        super().__init__(in_dim, out_dim, out_dim, activation=activation, residual=residual, norm=norm, bias=bias)
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))
        self.self_weight = nn.Parameter(torch.empty(out_dim, in_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Glorot with ReLU's gain, as DGL's SAGEConv."""
        super().reset(generator)
        for weight in (self.weight, self.self_weight):
            nn.init.xavier_uniform_(weight, gain=nn.init.calculate_gain("relu"), generator=generator)

    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`h W_neigh`."""
        return self.linear(h, self.weight, dims)

    def project_self(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`h W_self`."""
        return self.linear(h, self.self_weight, dims)

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """`h W_neigh`, after the sum."""
        return self.linear(aggregated, self.weight, dims)

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """Divide the sum by the hop's complete degree, add the self part."""
        assert self_ is not None
        inverse = dst.degree.clamp(min=1).to(aggregated.dtype).reciprocal().unsqueeze(1)
        return torch.addcmul(self_, aggregated, inverse)

    def mixed_and_biased(self, degree: Tensor, aggregated: Tensor, own: Tensor) -> Tensor:
        """`mix` of the projections plus the bias: the mean is taken on Din columns, both products share a buffer."""
        mean = aggregated * degree.clamp(min=1).to(aggregated.dtype).reciprocal().unsqueeze(1)
        return SumOfLinears.run(own, self.self_weight, mean, self.weight, self.bias)


class SAGE(Model):
    """A stack of GraphSAGE-mean layers; arguments as in `gnnexp.models.gcn.GCN`."""

    def __init__(
        self, hidden: int = 256, layers: int = 3, dropout: float = 0.5, input_dropout: float = 0.0,
        residual: bool = False, norm: bool = False, bias: bool = True, kernel: str = "auto",
    ) -> None:
        super().__init__(
            hidden=hidden, layers=layers, dropout=dropout, input_dropout=input_dropout, residual=residual, norm=norm,
            bias=bias, kernel=kernel,
        )

    def make_layer(self, index: int, in_dim: int, out_dim: int) -> Layer:
        """The `index`-th layer."""
        return SAGELayer(in_dim, out_dim, **self.end_of_layer(index))
