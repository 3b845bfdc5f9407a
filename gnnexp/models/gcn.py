"""GCN (Kipf & Welling, ICLR 2017): out = Â X W with Â = D^-1/2 (A + I) D^-1/2.

On a graph with edge weights it equals PyG's `GCNConv(edge_weight)`: A has the weights, and both degrees are sums of
the weights of in-edges. A vertex without a self loop gets one of weight 1.

An added self loop is not an edge: `mix` adds it from the destination's own projection, so sampling never drops it.
On sampled hops the sum over neighbours is scaled by (degree / sampled). So it is an unbiased estimate of ÂX. With all
neighbours the factor is one. `degrees=block` is DGL's `norm="both"` on sampled blocks, a labelled option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Unpack

import torch
from torch import Tensor, nn

from gnnexp.components.facts import GraphFacts
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem
from gnnexp.graph.block import Block
from gnnexp.models.layer import Destinations, EndOfLayer, Layer, Traits
from gnnexp.models.model import ModelOptions


class GCNLayer(Layer):
    """One graph convolution with a parameter `weight` `[C, Din]`."""

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        self_loops: bool,
        degrees: Literal["graph", "block"],
        **end: Unpack[EndOfLayer],
    ) -> None:
        super().__init__(in_dim, out_dim, out_dim, **end)
        self.extra = int(self_loops)
        self.traits = Traits(
            kind="static",
            takes_weights=True,
            mixes_rows=True,
            self_is_neighbour=self_loops,
            degrees=degrees,
            weights_key=("gcn", self.extra, degrees),  # all layers of a model weigh edges in the same way
            source_weight=GCNLayer._source_weight,
        )
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Draw the weight with Glorot's rule, as in the paper."""
        super().reset(generator)
        nn.init.xavier_uniform_(self.weight, generator=generator)

    def _source_weight(self, block: Block) -> Tensor:
        """The source's half of the symmetric normalisation, d_out(u)^-1/2. Computed once for all layers."""
        return self.backend.constant(block, ("source weight", self.weights_key), self._root_of_degree)

    def _root_of_degree(self, block: Block) -> Tensor:
        if self.facts.in_weight is not None:
            return self._root(block.src_ids.long())
        if self.traits.degrees == "block":
            scale = torch.bincount(block.sources, minlength=block.num_src)
            scale[: block.num_dst] += self.extra
            scale = scale.clamp(min=1)
        else:
            scale = (self.facts.out_degree[block.src_ids.long()] + self.extra).clamp(min=1)
        return scale.to(self.weight.dtype).rsqrt()

    def _root(self, ids: Tensor) -> Tensor:
        """`[n]` (sum of the weights of in-edges and of the added loop)^-1/2; 0 where the sum is 0."""
        assert self.facts.in_weight is not None
        root = (self.facts.in_weight[ids] + self._loop(ids)).rsqrt()
        return root.masked_fill(root.isinf(), 0).to(self.weight.dtype)

    def _loop(self, ids: Tensor) -> Tensor:
        """`[n]` weights of the added self loops, 0 for vertices with a self loop in the graph."""
        assert self.facts.has_own_loop is not None
        return self.extra * ~self.facts.has_own_loop[ids]

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """Scale sums by the destination's half, d_in(v)^-1/2, and add the self loop, scaled by both halves."""
        if self.facts.in_weight is not None:
            return self._mix_weighted(dst, aggregated, self_)
        if self.traits.degrees == "block":
            incoming = outgoing = dst.degree + self.extra
            scale = torch.ones((), dtype=aggregated.dtype, device=aggregated.device)
        else:
            ids = dst.ids.long()
            incoming, outgoing = self.facts.in_degree[ids] + self.extra, self.facts.out_degree[ids] + self.extra
            sampled = dst.degree.clamp(min=1).to(aggregated.dtype)
            scale = (self.facts.in_degree[ids].to(aggregated.dtype) / sampled).unsqueeze(1)
        root = incoming.clamp(min=1).to(aggregated.dtype).rsqrt().unsqueeze(1)
        mixed = aggregated * (root * scale)
        if self_ is None:
            return mixed
        return mixed + self_ * (root * outgoing.clamp(min=1).to(aggregated.dtype).rsqrt().unsqueeze(1))

    def _mix_weighted(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        ids = dst.ids.long()
        root, drawn = self._root(ids), dst.degree.clamp(min=1).to(aggregated.dtype)
        mixed = aggregated * (root * (self.facts.in_degree[ids].to(aggregated.dtype) / drawn)).unsqueeze(1)
        return mixed if self_ is None else mixed + self_ * (root * root * self._loop(ids)).unsqueeze(1)


@dataclass(frozen=True)
class GCNOptions(ModelOptions):
    """A stack of graph convolutions.

    Attributes:
        hidden: number of columns of the hidden layers.
        layers: number of layers.
        dropout: probability on the inputs of all layers but the first.
        input_dropout: probability on the features.
        self_loops: whether to use A + I instead of A.
        degrees: whether to normalise by degrees of the full graph (`graph`) or of the block (biased under sampling).
        residual: whether to add the undropped input to each hidden layer's output.
        norm: whether to apply LayerNorm before each hidden activation.
        bias: whether layers have a bias. The authors' code has none, DGL's GraphConv has one.
        kernel: kernels for sparse operations: `auto`, `numba`, `torch` or `dgl`.
    """

    hidden: int = 256
    layers: int = 3
    dropout: float = 0.5
    input_dropout: float = 0.0
    self_loops: bool = True
    degrees: Literal["graph", "block"] = "graph"
    residual: bool = False
    norm: bool = False
    bias: bool = True
    kernel: str = "auto"

    def check_data(self, setting: Setting, facts: GraphFacts) -> list[Problem]:
        """Problems of weighted graphs: sums of weights without a square root, and degrees of blocks."""
        problems = super().check_data(setting, facts)
        if facts.least_weight is not None and facts.least_weight < 0:
            problems.append(
                Problem(
                    "dataset",
                    facts.name,
                    "the in-edge weights of some vertex have a sum below 0 "
                    f"({facts.least_weight:g}), of which gcn takes the square root",
                    "set dataset.weights=false (tables: dataset.weight=null), or choose model=sage, gin or gat",
                )
            )
        if facts.weighted and self.degrees == "block":
            problems.append(
                Problem(
                    "model.degrees",
                    "block",
                    "weighted degrees are those of the graph",
                    "set model.degrees=graph, or dataset.weights=false (tables: dataset.weight=null)",
                )
            )
        return problems

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        """The `index`-th convolution."""
        end = self.end_of_layer(index, residual=self.residual, norm=self.norm, bias=self.bias)
        return GCNLayer(in_dim, out_dim, self_loops=self.self_loops, degrees=self.degrees, **end)
