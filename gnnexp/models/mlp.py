"""A perceptron per vertex, W h_v + b: what the features tell without the edges. The baseline of every GNN."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import Activation, Destinations, Layer
from gnnexp.models.model import Model


class MLPLayer(Layer):
    """One dense layer, `weight` `[out, Din]`: a vertex's own projection, to which its edges add nothing."""

    kind = "static"
    self_is_neighbour = True
    mixes_rows = True

    def __init__(
        self, in_dim: int, out_dim: int, *, activation: Activation, residual: bool, norm: bool, bias: bool = True
    ) -> None:
        super().__init__(in_dim, out_dim, out_dim, activation=activation, residual=residual, norm=norm, bias=bias)
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Glorot with ReLU's gain."""
        super().reset(generator)
        nn.init.xavier_uniform_(self.weight, gain=nn.init.calculate_gain("relu"), generator=generator)

    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`h W`."""
        return self.linear(h, self.weight, dims)

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """`h W`, after the sum."""
        return self.linear(aggregated, self.weight, dims)

    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None) -> Tensor:
        """`[D, d]` zeros, whatever the edges."""
        return x.new_zeros(block.num_dst, x.shape[1])

    def aggregate_back(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """`[S, d]` zeros."""
        return gradient.new_zeros(block.num_src, gradient.shape[1])

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """The self part: sums are zero, but a place for gradients where paradigms exchange them."""
        assert self_ is not None
        return aggregated + self_

    def dense(self, projected: Tensor, self_: Tensor | None) -> Tensor:
        """The projection: a decoupled MLP is the MLP itself."""
        return projected


class MLP(Model):
    """A stack of dense layers; arguments as in `gnnexp.models.gcn.GCN`. Blocks are drawn and moved all the same."""

    def __init__(
        self, hidden: int = 256, layers: int = 3, dropout: float = 0.5, input_dropout: float = 0.0,
        residual: bool = False, norm: bool = False, bias: bool = True, kernel: str = "auto",
    ) -> None:
        super().__init__(
            hidden=hidden, layers=layers, dropout=dropout, input_dropout=input_dropout, residual=residual, norm=norm,
            bias=bias, kernel=kernel,
        )

    def num_matrices(self, num_relations: int) -> int:
        """One."""
        return 1

    def row_local(self, index: int) -> bool:
        """Every layer."""
        return True

    def make_layer(self, index: int, in_dim: int, out_dim: int) -> Layer:
        """The `index`-th layer."""
        return MLPLayer(in_dim, out_dim, **self.end_of_layer(index))
