"""GCN (Kipf & Welling, ICLR 2017): out = Â X W with Â = D^-1/2 (A + I) D^-1/2.

The self loop is not an edge: it is added in `mix` from the destination's own projection, so sampling never drops it.
On sampled hops the neighbours' sum is scaled by (degree / sampled), which keeps it an unbiased estimate of ÂX;
with all neighbours the factor is one. `degrees=block` is DGL's `norm="both"` on sampled blocks, a labelled option.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import Activation, Destinations, Layer
from gnnexp.models.model import Model


class GCNLayer(Layer):
    """One graph convolution; `weight` `[C, Din]`."""

    kind = "static"
    mixes_rows = True

    def __init__(
        self, in_dim: int, out_dim: int, *, self_loops: bool, degrees: Literal["graph", "block"],
        activation: Activation, residual: bool, norm: bool, bias: bool = True,
    ) -> None:
        super().__init__(in_dim, out_dim, out_dim, activation=activation, residual=residual, norm=norm, bias=bias)
        self.self_is_neighbour = self_loops
        self.extra = int(self_loops)
        self.degrees_of = degrees
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Glorot, as the paper."""
        super().reset(generator)
        nn.init.xavier_uniform_(self.weight, generator=generator)

    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`h W`."""
        return self.linear(h, self.weight, dims)

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """`h W`, after the sum."""
        return self.linear(aggregated, self.weight, dims)

    def source_weight(self, block: Block) -> Tensor:
        """The source's half of the symmetric normalisation, d_out(u)^-1/2; kept with the block, for all layers."""
        key = "source weight", self.extra, self.degrees_of, self.weight.dtype
        found, _ = block.static_weights.get(key, (None, None))
        if found is None:
            found = self._source_weight(block)
            block.static_weights[key] = found, None
        return found

    def _source_weight(self, block: Block) -> Tensor:
        assert self.facts is not None
        if self.degrees_of == "block":
            scale = torch.bincount(block.sources, minlength=block.num_src)
            scale[: block.num_dst] += self.extra
            scale = scale.clamp(min=1)
        else:
            scale = (self.facts.out_degree[block.src_ids.long()] + self.extra).clamp(min=1)
        return scale.to(self.weight.dtype).rsqrt()

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """The destination's half, d_in(v)^-1/2, and the self loop with both halves."""
        assert self.facts is not None
        if self.degrees_of == "block":
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


class GCN(Model):
    """A stack of graph convolutions.

    Args:
        hidden: columns of the hidden layers.
        layers: number of layers.
        dropout: on the inputs of all layers but the first.
        input_dropout: on the features.
        self_loops: A + I instead of A.
        degrees: normalise by degrees of the full graph, or of the block (biased under sampling).
        residual: add the undropped input to each hidden layer's output.
        norm: LayerNorm before each hidden activation.
        bias: whether layers have one; the authors' code has none, DGL's GraphConv has.
        kernel: `auto`, `numba`, `torch` or `dgl`.
    """

    def __init__(
        self, hidden: int = 256, layers: int = 3, dropout: float = 0.5, input_dropout: float = 0.0,
        self_loops: bool = True, degrees: Literal["graph", "block"] = "graph", residual: bool = False,
        norm: bool = False, bias: bool = True, kernel: str = "auto",
    ) -> None:
        super().__init__(
            hidden=hidden, layers=layers, dropout=dropout, input_dropout=input_dropout, residual=residual, norm=norm,
            bias=bias, kernel=kernel,
        )
        self.self_loops, self.degrees_of = self_loops, degrees

    def make_layer(self, index: int, in_dim: int, out_dim: int) -> Layer:
        """The `index`-th convolution."""
        return GCNLayer(
            in_dim, out_dim, self_loops=self.self_loops, degrees=self.degrees_of, **self.end_of_layer(index)
        )
