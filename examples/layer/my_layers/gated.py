"""Gated sums: out_v = W_self h_v + (sum of s_uv W h_u) / (sum of s_uv), with gates s_uv = sigmoid(a·h_u + b·h_v).

These are the gates of GatedGCN (Bresson and Laurent, 2017), one per head instead of one per column. Every paradigm runs
the layer, because it fulfils the contract of `gnnexp.models.layer`. Gates are never negative, and their sum is the
mass. Keys are linear in the rows, and the projection is linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gnnexp.errors import Problem
from gnnexp.graph.block import Block
from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import Activation, Destinations, Layer, Traits
from gnnexp.models.model import ModelOptions


class GatedLayer(Layer):
    """Parameters: `weight` and `self_weight` `[C, Din]`, and `gate` `[2K, Din]` for K keys of each end of an edge."""

    # Edge weights come from keys. Push-pull keeps slices of the columns of the input weights.
    traits = Traits(kind="projected", input_weights=("weight", "self_weight", "gate", "residual_weight"))

    def __init__(
        self, in_dim: int, out_dim: int, heads: int, *, activation: Activation, residual: bool, norm: bool, bias: bool
    ) -> None:
        super().__init__(
            in_dim, out_dim, out_dim, num_weights=heads, activation=activation, residual=residual, norm=norm, bias=bias
        )
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))
        self.self_weight = nn.Parameter(torch.empty(out_dim, in_dim))
        self.gate = nn.Parameter(torch.empty(2 * heads, in_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Glorot initialisation from a generator that is the same on every rank."""
        super().reset(generator)
        for weight in (self.weight, self.self_weight, self.gate):
            nn.init.xavier_uniform_(weight, generator=generator)

    # --- project: linear, without bias, on any slice `dims` of the input's columns
    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`h W`."""
        return self.linear(h, self.weight, dims)

    def project_self(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`h W_self`."""
        return self.linear(h, self.self_weight, dims)

    def keys(self, h: Rows, dims: slice | None = None) -> tuple[Tensor, Tensor]:
        """`a·h` and `b·h`, each with K columns."""
        both = self.linear(h, self.gate, dims)
        return both[:, : self.num_weights], both[:, self.num_weights :]

    # --- score, weight: one for every edge, from the keys of its two ends
    def edge_score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor:
        """The sum of the keys of both ends."""
        return self.backend.edges.score(block, src_key, dst_key)

    def edge_weight(self, block: Block, score: Tensor | None, peak: Tensor | None) -> tuple[Tensor, Tensor]:
        """The gate of every edge, and the sum of gates of every destination."""
        assert score is not None
        weight = torch.sigmoid(score)
        return weight, self.backend.edges.sum(block, weight)

    # --- aggregate: the base class sums. Here sums of raw rows are projected: each head by its rows of W.
    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """Project `[D, K, d]`, or `[D, d]` of one head, to `[D, C]`."""
        weight = self.columns(self.weight, dims)
        # Every size is explicit: a rank may have no destination or no column, and view(-1) cannot infer a size then.
        per_head = weight.view(self.num_weights, self.width // self.num_weights, weight.shape[1])
        sums = aggregated.view(aggregated.shape[0], self.num_weights, weight.shape[1])
        return torch.einsum("nkd,kfd->nkf", sums, per_head).flatten(1)

    # --- mix, finish: these never see the raw input
    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """Divide by the mass, unless the sums are divided already, and add the self part."""
        assert self_ is not None
        if dst.mass is not None:
            aggregated = aggregated / dst.mass.clamp(min=torch.finfo(aggregated.dtype).tiny)[:, self.column]
        return aggregated + self_


@dataclass(frozen=True)
class GatedOptions(ModelOptions):
    """A stack of gated layers with `heads` gates per edge, and one gate in the last layer.

    The other options are those of `gnnexp.models.gcn.GCNOptions`.
    """

    hidden: int = 256
    layers: int = 3
    heads: int = 4
    dropout: float = 0.5
    input_dropout: float = 0.0
    residual: bool = False
    norm: bool = False
    bias: bool = True
    kernel: str = "auto"

    def problems(self) -> list[Problem]:
        """Those of every model, and heads that do not divide the hidden columns."""
        wrong = super().problems()
        if self.heads < 1 or self.hidden % self.heads:
            wrong.append(Problem("model.heads", self.heads, f"must divide model.hidden={self.hidden}", "model.heads=1"))
        return wrong

    @property
    def values_per_edge(self) -> int:
        """Scores, gates and their gradients: the estimate of memory counts them."""
        return 4 * self.heads

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        """The `index`-th layer."""
        heads = 1 if index == self.layers - 1 else self.heads
        end = self.end_of_layer(index, residual=self.residual, norm=self.norm, bias=self.bias)
        return GatedLayer(in_dim, out_dim, heads, **end)
