"""GAT (Veličković et al., ICLR 2018): multi-head attention over in-edges, LeakyReLU scores of source and destination.

Keys a·(W h) are 2K columns per vertex, linear in h. So keys can be sliced, summed and exchanged alone.

On a graph with edge weights w, a message is multiplied with its weight after the softmax: w_uv α_uv W h_u. DGL's
`GATConv(edge_weight)` does the same. Weights change neither scores nor masses. So they may be zero or negative. A self
loop that is added has weight 1. PyG's `GATConv(edge_dim)` has no weights: it learns scores of edge features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnexp.components.options import wrong_options
from gnnexp.errors import Problem
from gnnexp.graph.block import Block
from gnnexp.graph.shard import BlockNeeds
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.models.layer import Activation, Destinations, EndOfLayer, Layer, Traits
from gnnexp.models.local import message_factors
from gnnexp.models.model import ModelOptions
from gnnexp.ops.backend import Drop
from gnnexp.ops.products import linear_by_head, product


class GATLayer(Layer):
    """One attention layer: `weight` `[K * F, Din]`, attention vectors `src_attention`, `dst_attention` `[K, F]`."""

    def __init__(
        self,
        in_dim: int,
        head_dim: int,
        heads: int,
        *,
        concat: bool,
        slope: float,
        weight_dropout: float,
        **end: Unpack[EndOfLayer],
    ) -> None:
        width = head_dim * heads
        super().__init__(in_dim, width, width if concat else head_dim, num_weights=heads, **end)
        self.head_dim, self.concat, self.slope = head_dim, concat, slope
        self.traits = Traits(
            kind="projected",
            takes_weights=True,
            weight_dropout=weight_dropout,
            keys_of_projected=GATLayer._keys_of_projected,
            attend=GATLayer._attend,
            attention=GATLayer._attention,
            attend_takes_factors=True,
        )
        self.weight = nn.Parameter(torch.empty(width, in_dim))
        self.src_attention = nn.Parameter(torch.empty(heads, head_dim))
        self.dst_attention = nn.Parameter(torch.empty(heads, head_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights with Glorot's rule, attention vectors as matrices `[K, F]`, as in the authors' code."""
        super().reset(generator)
        for weight in (self.weight, self.src_attention, self.dst_attention):
            nn.init.xavier_uniform_(weight, generator=generator)

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """`[D, K, d]` sums to `[D, K * F]`, each head by its own rows of W."""
        chosen = self.columns(self.weight, dims)
        per_head = chosen.view(self.num_weights, self.head_dim, chosen.shape[1])
        sums = aggregated.view(aggregated.shape[0], self.num_weights, chosen.shape[1])
        return linear_by_head(sums, per_head, self.matmul).flatten(1)

    def keys(self, h: Rows, dims: slice | None = None) -> tuple[Tensor, Tensor]:
        """`h (W^T a)`: the 2K key columns, computed without the projection."""
        per_head = self.weight.view(self.num_weights, self.head_dim, self.weight.shape[1])
        attention = torch.stack((self.src_attention, self.dst_attention))
        both = linear_by_head(attention, per_head.transpose(1, 2), self.matmul).flatten(0, 1)
        keys = self.linear(h, both, dims)
        return keys[:, : self.num_weights], keys[:, self.num_weights :]

    def _keys_of_projected(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`a·x` per head, as one product with the block-diagonal matrix `[C, 2K]` of both vectors: x is read once."""
        both = [
            torch.diag_embed(attention.T).transpose(0, 1).flatten(0, 1)
            for attention in (self.src_attention, self.dst_attention)
        ]
        keys = product(x, torch.cat(both, 1), self.matmul)
        return keys[:, : self.num_weights], keys[:, self.num_weights :]

    def edge_score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
        """LeakyReLU of the sum of both keys."""
        return F.leaky_relu(self.backend.edges.score(block, src_key, dst_key), self.slope)

    def edge_weight(
        self, block: Block, score: Tensor | None, peak: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """`exp(score - peak)` of every edge, and the sum for every destination."""
        assert score is not None and peak is not None
        weight = self.backend.edges.exp(block, score, peak)
        return weight, self.backend.edges.sum(block, weight)

    def _attend(
        self, block: Block, rows: Rows, keys: tuple[Tensor, Tensor], drop: Drop | None, *, projected: bool
    ) -> Tensor:
        """Score, weight, drop and divide in one kernel, then multiply with the factors of edges, and aggregate."""
        assert not isinstance(rows, SparseRows)
        factors = message_factors(self, block)
        if projected:
            return self.backend.attention(block, rows, *keys, self.slope, drop, factors)
        summed = self.backend.attention_aggregate_first(block, rows, *keys, self.slope, drop, factors)
        return self.project_aggregated(summed)

    def _attention(self, block: Block, keys: tuple[Tensor, Tensor], drop: Drop | None) -> Tensor:
        """`[E, K]` normalised weights after dropout, multiplied with the factors of edges."""
        return self.backend.attention_weight(block, *keys, self.slope, drop, message_factors(self, block))

    def dense(self, projected: Tensor, self_: Tensor | None) -> Tensor:
        """The heads side by side; an output layer averages its heads, as in `mix`."""
        return self._averaged(projected)

    def propagate(self, dst: Destinations, aggregated: Tensor, x: Tensor | None) -> Tensor:
        """The sums: attention weights are normalised, and a self loop already adds the destination's own row."""
        return aggregated

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """Divide by the mass unless a fused kernel did, and average the heads of an output layer."""
        if dst.mass is not None:
            aggregated = aggregated / dst.mass.clamp(min=torch.finfo(aggregated.dtype).tiny)[:, self.column]
        return self._averaged(aggregated)

    def _averaged(self, x: Tensor) -> Tensor:
        if self.concat or self.num_weights == 1:
            return x
        return x.view(-1, self.num_weights, self.head_dim).mean(1)


@dataclass(frozen=True)
class GATOptions(ModelOptions):
    """A stack of attention layers. Weights of edges multiply messages after the softmax.

    Attributes:
        hidden: columns of the hidden layers, over all heads.
        heads: number of attention heads of the hidden layers.
        out_heads: number of heads of the last layer, which averages them.
        attention_dropout: probability on attention weights; the mask depends on the edge's identity.
        slope: negative slope of LeakyReLU.
        self_loops: whether every destination also attends to itself.
        activation: activation of the hidden layers.
        layers, dropout, input_dropout, residual, norm, bias, kernel: as in `gnnexp.models.gcn.GCNOptions`.
    """

    hidden: int = 256
    layers: int = 3
    heads: int = 4
    out_heads: int = 1
    dropout: float = 0.5
    input_dropout: float = 0.0
    attention_dropout: float = 0.0
    slope: float = 0.2
    self_loops: bool = True
    activation: Activation = "elu"
    residual: bool = False
    norm: bool = False
    bias: bool = True
    kernel: str = "auto"

    def problems(self) -> list[Problem]:
        """Invalid arguments; the number of heads must divide the hidden columns."""
        counts = (("heads", self.heads), ("out_heads", self.out_heads))
        wrong = super().problems()
        wrong += wrong_options("model", *((n >= 1, name, n, "must be at least 1", 1) for name, n in counts))
        if self.heads >= 1 and self.hidden >= 1 and self.hidden % self.heads:
            fitting = self.heads * -(-self.hidden // self.heads)
            wrong.append(
                Problem(
                    "model.heads",
                    self.heads,
                    f"must divide model.hidden={self.hidden}",
                    f"model.hidden={fitting}, or model.heads=1",
                )
            )
        share = self.attention_dropout
        return wrong + wrong_options("model", (0 <= share < 1, "attention_dropout", share, "must be in [0, 1)", 0.6))

    @property
    def needs(self) -> BlockNeeds:
        """Self loops as edges; the identity of edges if attention has dropout."""
        return BlockNeeds(self_loops=self.self_loops, edge_identity=self.attention_dropout > 0)

    @property
    def values_per_edge(self) -> int:
        """Scores, weights and their gradients, for every head."""
        return 3 * self.heads

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        """The `index`-th layer. The last layer averages its heads."""
        last = index == self.layers - 1
        heads = self.out_heads if last else self.heads
        end = self.end_of_layer(
            index, residual=self.residual, norm=self.norm, bias=self.bias, activation=self.activation
        )
        return GATLayer(
            in_dim,
            out_dim if last else out_dim // heads,
            heads,
            concat=not last,
            slope=self.slope,
            weight_dropout=self.attention_dropout,
            **end,
        )
