"""Layers of R-GCN (Schlichtkrull et al., ESWC 2018): out_v = sum_r sum_{u in N_r(v)} W_r h_u / c_vr + W_0 h_v.

Edges weigh by parameters and the graph: sums cannot be kept from pass to pass, as constant ones can.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnexp.comm.tensor_split import even_bounds
from gnnexp.graph.block import Block, Relations
from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import Activation, ColumnCuts, Destinations, Layer

NormBy = Literal["relation", "vertex"]


class RelationalLayer(Layer):
    """What both decompositions of the R matrices W_r share: W_0, `self_weight` `[out, Din]`, and c_vr.

    Attributes:
        norm_by: c_vr is the number of v's in-edges in the hop, of type r (`relation`) or of any (`vertex`).
    """

    kind = "learned"
    input_weights: tuple[str, ...] = ("self_weight", "residual_weight")

    def __init__(
        self, in_dim: int, width: int, out_dim: int, *, num_weights: int, norm_by: NormBy, activation: Activation,
        residual: bool, norm: bool, bias: bool,
    ) -> None:
        super().__init__(
            in_dim, width, out_dim, num_weights=num_weights, activation=activation, residual=residual, norm=norm,
            bias=bias,
        )
        self.norm_by = norm_by
        self.self_weight = nn.Parameter(torch.empty(out_dim, in_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Glorot with ReLU's gain, as all matrices here."""
        super().reset(generator)
        nn.init.xavier_uniform_(self.self_weight, gain=_GAIN, generator=generator)

    def project_self(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`h W_0`."""
        return self.linear(h, self.self_weight, dims)


class BasisLayer(RelationalLayer):
    """W_r = sum_b a_rb V_b (equation 3): `weight` `[B * out, Din]`, `coefficients` `[R, B]`.

    An edge has one weight per basis, as it has one per head in attention.
    """

    input_weights = ("weight", *RelationalLayer.input_weights)

    def __init__(
        self, in_dim: int, out_dim: int, *, num_relations: int, bases: int, norm_by: NormBy, activation: Activation,
        residual: bool, norm: bool, bias: bool,
    ) -> None:
        super().__init__(
            in_dim, bases * out_dim, out_dim, num_weights=bases, norm_by=norm_by, activation=activation,
            residual=residual, norm=norm, bias=bias,
        )
        self.weight = nn.Parameter(torch.empty(bases * out_dim, in_dim))
        self.coefficients = nn.Parameter(torch.empty(num_relations, bases))

    def reset(self, generator: torch.Generator) -> None:
        """Each basis on its own."""
        super().reset(generator)
        for part in (*self.weight.data.chunk(self.num_weights), self.coefficients):
            nn.init.xavier_uniform_(part, gain=_GAIN, generator=generator)

    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`h V_b`, bases side by side."""
        return self.linear(h, self.weight, dims)

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """`[D, B, d]` sums to `[D, B * out]`, each by its own basis."""
        chosen = self.columns(self.weight, dims)
        bases = chosen.view(self.num_weights, self.out_dim, chosen.shape[1])
        sums = aggregated.view(aggregated.shape[0], self.num_weights, chosen.shape[1])
        return torch.einsum("nbd,bod->nbo", sums, bases).flatten(1)

    def edge_weight(self, block: Block, score: Tensor | None, peak: Tensor | None) -> tuple[Tensor, None]:
        """`[E, B]`: a_rb / c_vr."""
        assert block.edge_types is not None
        return F.embedding(block.edge_types, self.coefficients) * self._inverse_counts(block), None

    def _inverse_counts(self, block: Block) -> Tensor:
        """`[E, 1]`: 1 / c_vr, kept with the block for all layers."""
        key = "inverse counts", self.norm_by, self.weight.dtype
        found, _ = block.static_weights.get(key, (None, None))
        if found is None:
            counts = block.relation_degree
            if self.norm_by == "vertex":
                lengths = block.indptr[1:] - block.indptr[:-1]
                counts = torch.repeat_interleave(block.degree, lengths, output_size=block.num_edges)
            found = counts.to(self.weight.dtype).reciprocal_().unsqueeze(1)
            block.static_weights[key] = found, None
        return found

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """The sum over bases, and the self part."""
        assert self_ is not None
        return self_ + aggregated.view(-1, self.num_weights, self.out_dim).sum(1)

    def dense(self, projected: Tensor, self_: Tensor | None) -> Tensor:
        """All bases and the self part."""
        assert self_ is not None
        return self_ + projected.view(-1, self.num_weights, self.out_dim).sum(1)

    def propagate(self, dst: Destinations, aggregated: Tensor, x: Tensor | None) -> Tensor:
        """Weights are divided already."""
        assert x is not None
        return aggregated + x


class BlockDiagonalLayer(RelationalLayer):
    """W_r = diag(Q_r1, ..., Q_rB) (equation 4): `weight` `[R, B, Din / B, out / B]`.

    Sums are taken per pair of a destination and a relation (`Block.relations`), then projected, relation by relation,
    so that memory follows the pairs there are, not D * R. Where B does not divide Din or out, blocks differ by one
    column and the parameters of the missing ones are zero, and stay so.
    """

    projects_edges = True

    def __init__(
        self, in_dim: int, out_dim: int, *, num_relations: int, blocks: int, norm_by: NormBy, activation: Activation,
        residual: bool, norm: bool, bias: bool,
    ) -> None:
        super().__init__(
            in_dim, in_dim, out_dim, num_weights=1, norm_by=norm_by, activation=activation, residual=residual,
            norm=norm, bias=bias,
        )
        self.sum_width, self.blocks = out_dim, blocks
        self.rows_per_block, self.sums_per_block = -(-in_dim // blocks), -(-out_dim // blocks)
        # As many pairs as edges at most: sums and projections, whole and by relation, and gradients of both.
        self.edge_columns = 4 * blocks * (self.rows_per_block + self.sums_per_block)
        self.weight = nn.Parameter(torch.empty(num_relations, blocks, self.rows_per_block, self.sums_per_block))
        for name, bounds, size in (("row_place", self.cuts.rows, self.rows_per_block),
                                   ("sum_place", self.cuts.sums, self.sums_per_block)):
            self.register_buffer(name, _places(bounds, size), persistent=False)
        self.row_place: Tensor
        self.sum_place: Tensor

    @property
    def cuts(self) -> ColumnCuts:
        """Between blocks."""
        return ColumnCuts(even_bounds(self.in_dim, self.blocks), even_bounds(self.out_dim, self.blocks))

    def reset(self, generator: torch.Generator) -> None:
        """Each block on its own."""
        super().reset(generator)
        bound = _GAIN * (6 / (self.rows_per_block + self.sums_per_block)) ** 0.5
        nn.init.uniform_(self.weight, -bound, bound, generator)
        with torch.no_grad():
            self.weight.mul_(_filled(self.row_place, self.blocks, self.rows_per_block).unsqueeze(2))
            self.weight.mul_(_filled(self.sum_place, self.blocks, self.sums_per_block).unsqueeze(1))

    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        """The rows themselves."""
        return self.placed(h, dims)

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """Sums come out projected."""
        return aggregated

    def aggregate_projected(self, block: Block, x: Tensor, weight: Tensor | None, dims: slice | None = None) -> Tensor:
        """`[D, o]`: the columns of the blocks that `dims` touches; of a block that is cut the part that is here."""
        assert self.backend is not None
        pairs, (first, last) = block.relations, self._touched(dims)
        if first == last:
            return x.new_zeros(block.num_dst, 0)
        counts = pairs.degree if self.norm_by == "relation" else block.degree[pairs.destinations]
        sums = self.backend.aggregate(pairs.incoming, x, None, None)
        projected = self._project(pairs, sums, slice(0, self.in_dim) if dims is None else dims, first, last)
        return self.backend.aggregate_scaled(pairs.outgoing, projected, counts.to(x.dtype).reciprocal())

    def sum_projected(self, block: Block, h: Tensor, weight: Tensor | None, dims: slice | None = None) -> Tensor:
        """`[D, out]`: what `dims` add to it."""
        first, last = self._touched(dims)
        start, stop = self.cuts.sums[first], self.cuts.sums[last]
        return F.pad(self.aggregate_projected(block, h, weight, dims), (start, self.out_dim - stop))

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """Add the self part."""
        assert self_ is not None
        return aggregated + self_

    def _touched(self, dims: slice | None) -> tuple[int, int]:
        """`(first, last)`: blocks `first..last - 1` have columns among `dims`."""
        if dims is None:
            return 0, self.blocks
        start, stop, _ = dims.indices(self.in_dim)
        bounds = self.cuts.rows
        return (0, 0) if start == stop else (bisect_right(bounds, start) - 1, bisect_left(bounds, stop))

    def _project(self, pairs: Relations, sums: Tensor, dims: slice, first: int, last: int) -> Tensor:
        """`[P, o]` of `[P, d]`: rows of every relation by its own blocks."""
        wide = _spread(sums, self.row_place[dims] - first * self.rows_per_block, (last - first) * self.rows_per_block)
        by_block = wide.view(-1, last - first, self.rows_per_block).transpose(0, 1)
        # Without any pairs still a function of rows and parameters: the next exchange needs all ranks in backward.
        of_relations = torch.split_with_sizes(by_block, pairs.counts or (0,), 1)
        matrices = self.weight[: len(of_relations), first:last]
        projected = torch.cat([
            torch.bmm(rows, own) for rows, own in zip(of_relations, matrices, strict=True)
            if rows.shape[1] or not pairs.counts
        ], 1)
        kept = self.sum_place[self.cuts.sums[first] : self.cuts.sums[last]] - first * self.sums_per_block
        return projected.transpose(0, 1).flatten(1).index_select(1, kept)


_GAIN = nn.init.calculate_gain("relu")


def _places(bounds: Sequence[int], size: int) -> Tensor:
    """`[n]` place of every column where each block has `size` of them."""
    columns = torch.arange(bounds[-1])
    block = torch.searchsorted(torch.tensor(bounds[1:]), columns, right=True)
    return block * size + columns - torch.tensor(bounds)[block]


def _filled(places: Tensor, blocks: int, size: int) -> Tensor:
    """`[B, size]` bool: places that a column has."""
    return torch.zeros(blocks * size, dtype=torch.bool).index_fill(0, places, True).view(blocks, size)


def _spread(rows: Tensor, places: Tensor, width: int) -> Tensor:
    """`[P, width]`: the columns of `rows` at their `places`, zeros elsewhere."""
    if rows.shape[1] == width:
        return rows
    return rows.new_zeros(rows.shape[0], width).index_copy(1, places, rows)
