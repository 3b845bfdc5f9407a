"""GIN (Xu et al., ICLR 2019): MLP((1 + eps) h_v + sum of h_u).

The MLP's first linear map is the projection (it commutes with the sum), the rest of the MLP is the row-local end.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import Activation, Destinations, Layer
from gnnexp.models.model import Model


class GINLayer(Layer):
    """One layer with a two-layer MLP: `weight` `[C, Din]`, then bias, ReLU, `outer` `[out, C]`."""

    kind = "static"
    self_is_neighbour = True
    mixes_rows = True

    def __init__(
        self, in_dim: int, inner_dim: int, out_dim: int, *, train_eps: bool, activation: Activation, residual: bool,
        norm: bool, bias: bool = True,
    ) -> None:
        super().__init__(in_dim, inner_dim, out_dim, activation=activation, residual=residual, norm=norm, bias=bias)
        self.weight = nn.Parameter(torch.empty(inner_dim, in_dim))
        self.inner_bias = nn.Parameter(torch.zeros(inner_dim))
        self.outer = nn.Parameter(torch.empty(out_dim, inner_dim))
        self.eps = nn.Parameter(torch.zeros(1), requires_grad=train_eps)

    def reset(self, generator: torch.Generator) -> None:
        """Glorot."""
        super().reset(generator)
        nn.init.xavier_uniform_(self.weight, gain=nn.init.calculate_gain("relu"), generator=generator)
        nn.init.xavier_uniform_(self.outer, generator=generator)

    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        """The MLP's first linear map."""
        return self.linear(h, self.weight, dims)

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """The same, after the sum."""
        return self.linear(aggregated, self.weight, dims)

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """`(1 + eps) h_v + sum`."""
        assert self_ is not None
        return aggregated + (1 + self.eps) * self_

    def preactivation(self, mixed: Tensor) -> Tensor:
        """The rest of the MLP."""
        return super().preactivation(F.linear(F.relu(mixed + self.inner_bias), self.outer))


class GIN(Model):
    """A stack of GIN layers.

    Args:
        train_eps: whether eps is learned; the rest as in `gnnexp.models.gcn.GCN`.
    """

    def __init__(
        self, hidden: int = 256, layers: int = 3, dropout: float = 0.5, input_dropout: float = 0.0,
        train_eps: bool = True, residual: bool = False, norm: bool = False, bias: bool = True,
        kernel: str = "auto",
    ) -> None:
        super().__init__(
            hidden=hidden, layers=layers, dropout=dropout, input_dropout=input_dropout, residual=residual, norm=norm,
            bias=bias, kernel=kernel,
        )
        self.train_eps = train_eps

    def make_layer(self, index: int, in_dim: int, out_dim: int) -> Layer:
        """The `index`-th layer."""
        return GINLayer(in_dim, self.hidden, out_dim, train_eps=self.train_eps, **self.end_of_layer(index))
