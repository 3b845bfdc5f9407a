"""GIN (Xu et al., ICLR 2019): MLP((1 + eps) h_v + sum of h_u); with edge weights, the sum of w h_u.

The first linear map of the MLP is the projection, because it commutes with the sum. The rest of the MLP comes after
the sum, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnexp.models.layer import Destinations, EndOfLayer, Layer, Traits
from gnnexp.models.model import ModelOptions
from gnnexp.ops.products import linear


class GINLayer(Layer):
    """One layer with an MLP of two linear maps: `weight` `[C, Din]`, bias and ReLU, then `outer` `[out, C]`."""

    traits = Traits(
        kind="static",
        takes_weights=True,
        self_is_neighbour=True,
        mixes_rows=True,
        weights_key="given",  # edges have the weights of the block
    )

    def __init__(
        self, in_dim: int, inner_dim: int, out_dim: int, *, train_eps: bool, **end: Unpack[EndOfLayer]
    ) -> None:
        super().__init__(in_dim, inner_dim, out_dim, **end)
        self.weight = nn.Parameter(torch.empty(inner_dim, in_dim))
        self.inner_bias = nn.Parameter(torch.zeros(inner_dim))
        self.outer = nn.Parameter(torch.empty(out_dim, inner_dim))
        self.eps = nn.Parameter(torch.zeros(1), requires_grad=train_eps)

    def reset(self, generator: torch.Generator) -> None:
        """Draw both weights with Glorot's rule."""
        super().reset(generator)
        nn.init.xavier_uniform_(self.weight, gain=nn.init.calculate_gain("relu"), generator=generator)
        nn.init.xavier_uniform_(self.outer, generator=generator)

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """`(1 + eps) h_v + sum`."""
        assert self_ is not None
        return aggregated + (1 + self.eps) * self_

    def preactivation(self, mixed: Tensor) -> Tensor:
        """Apply the rest of the MLP, then bias and normalisation."""
        return super().preactivation(linear(F.relu(mixed + self.inner_bias), self.outer, self.matmul))


@dataclass(frozen=True)
class GINOptions(ModelOptions):
    """A stack of GIN layers.

    Attributes:
        train_eps: whether eps is learned.
        hidden, layers, dropout, input_dropout, residual, norm, bias, kernel: as in `gnnexp.models.gcn.GCNOptions`.
    """

    hidden: int = 256
    layers: int = 3
    dropout: float = 0.5
    input_dropout: float = 0.0
    train_eps: bool = True
    residual: bool = False
    norm: bool = False
    bias: bool = True
    kernel: str = "auto"

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        """The `index`-th layer."""
        end = self.end_of_layer(index, residual=self.residual, norm=self.norm, bias=self.bias)
        return GINLayer(in_dim, self.hidden, out_dim, train_eps=self.train_eps, **end)
