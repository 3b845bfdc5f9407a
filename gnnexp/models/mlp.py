"""A perceptron for every vertex, W h_v + b: the baseline of every GNN, which uses features only and no edges."""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from gnnexp.graph.block import Block
from gnnexp.models.layer import Destinations, EndOfLayer, Layer
from gnnexp.models.model import Model


class MLPLayer(Layer):
    """One dense layer with `weight` `[out, Din]`: a vertex's own projection. Edges add nothing."""

    kind = "static"
    takes_weights = True
    self_is_neighbour = True
    mixes_rows = True

    def __init__(self, in_dim: int, out_dim: int, **end: Unpack[EndOfLayer]) -> None:
        super().__init__(in_dim, out_dim, out_dim, **end)
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Draw the weight with Glorot's rule and ReLU's gain."""
        super().reset(generator)
        nn.init.xavier_uniform_(self.weight, gain=nn.init.calculate_gain("relu"), generator=generator)

    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None) -> Tensor:
        """`[D, d]` zeros for any edges."""
        return x.new_zeros(block.num_dst, x.shape[1])

    def aggregate_back(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """`[S, d]` zeros."""
        return gradient.new_zeros(block.num_src, gradient.shape[1])

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """The self part. The sums are zero; they are added because paradigms exchange their gradients."""
        assert self_ is not None
        return aggregated + self_

    def dense(self, projected: Tensor, self_: Tensor | None) -> Tensor:
        """The projection: a decoupled MLP equals the MLP."""
        return projected


class MLP(Model):
    """A stack of dense layers; arguments as in `gnnexp.models.gcn.GCN`. Blocks are sampled as for other models."""

    def num_matrices(self, num_relations: int) -> int:
        """One matrix."""
        return 1

    def row_local(self, index: int) -> bool:
        """True: every layer reads only a vertex's own row."""
        return True

    def make_layer(self, index: int, in_dim: int, out_dim: int) -> Layer:
        """The `index`-th layer."""
        return MLPLayer(in_dim, out_dim, **self.end_of_layer(index))
