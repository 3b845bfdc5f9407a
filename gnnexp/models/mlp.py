"""A perceptron for every vertex, W h_v + b: the baseline of every GNN, which uses features only and no edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from gnnexp.graph.block import Block
from gnnexp.models.layer import Destinations, EndOfLayer, Layer, Traits
from gnnexp.models.model import Model, ModelOptions


class MLPLayer(Layer):
    """One dense layer with `weight` `[out, Din]`: a vertex's own projection. Edges add nothing."""

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

    def _aggregate_back(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """`[S, d]` zeros."""
        return gradient.new_zeros(block.num_src, gradient.shape[1])

    traits = Traits(
        kind="static",
        takes_weights=True,
        self_is_neighbour=True,
        mixes_rows=True,
        aggregate_back=_aggregate_back,
    )

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """The self part. The sums are zero; they are added because paradigms exchange their gradients."""
        assert self_ is not None
        return aggregated + self_

    def dense(self, projected: Tensor, self_: Tensor | None) -> Tensor:
        """The projection: a decoupled MLP equals the MLP."""
        return projected


@dataclass(frozen=True)
class MLPOptions(ModelOptions):
    """A stack of dense layers. Blocks are sampled as for other models.

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

    def num_matrices(self, num_relations: int) -> int:
        """One matrix."""
        return 1

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        """The `index`-th layer."""
        return MLPLayer(
            in_dim, out_dim, **self.end_of_layer(index, residual=self.residual, norm=self.norm, bias=self.bias)
        )

    def make(self) -> MLPModel:
        """The model of a rank."""
        return MLPModel(self)


class MLPModel(Model):
    """Dense layers, none of which reads neighbours."""

    def is_row_local(self, index: int) -> bool:
        """True: every layer reads only a vertex's own row."""
        return True
