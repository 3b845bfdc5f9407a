"""R-GCN (Schlichtkrull et al., ESWC 2018): out_v = sum_r sum_{u in N_r(v)} W_r h_u / c_vr + W_0 h_v.

Each relation has a matrix W_r: a sum of shared matrices (basis), or diagonal blocks. Edge weights depend on parameters
and the graph. So sums change in every pass and cannot be kept.

On a graph with edge weights w, a message is multiplied with its weight: sum_r sum_{u in N_r(v)} w_uv W_r h_u / c_vr.
c_vr stays the number of edges. It is DGL's `RelGraphConv` with `norm` w / c_vr. PyG's `RGCNConv` takes no weights; its
layers that do also divide their means by the number of edges. So weights may be zero or negative.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnexp.comm.tensor_split import even_bounds
from gnnexp.components.facts import GraphFacts
from gnnexp.components.locate import target_of
from gnnexp.components.options import wrong_options
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem
from gnnexp.graph.block import Block, Relations
from gnnexp.graph.shard import BlockNeeds
from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import ColumnCuts, Destinations, EdgeProjection, EndOfLayer, Layer, Traits
from gnnexp.models.local import with_factors
from gnnexp.models.model import ModelOptions
from gnnexp.ops.products import linear_by_head, product

Decomposition = Literal["basis", "block"]
NormBy = Literal["relation", "vertex"]
_WORDS = {"decomposition": ("basis", "block"), "norm_by": ("relation", "vertex")}


class RelationalLayer(Layer):
    """Base of both decompositions of the R matrices W_r. It has W_0, `self_weight` `[out, Din]`, and c_vr.

    Attributes:
        norm_by: c_vr is the number of in-edges of v in the hop, of type r (`relation`) or of any type (`vertex`).
    """

    traits = Traits(kind="learned", takes_weights=True, input_weights=("self_weight", "residual_weight"))

    def __init__(
        self,
        in_dim: int,
        width: int,
        out_dim: int,
        *,
        num_weights: int = 1,
        norm_by: NormBy,
        **end: Unpack[EndOfLayer],
    ) -> None:
        super().__init__(in_dim, width, out_dim, num_weights=num_weights, **end)
        self.norm_by = norm_by
        self.self_weight = nn.Parameter(torch.empty(out_dim, in_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Draw the weights with Glorot's rule and ReLU's gain, as for all matrices in this module."""
        super().reset(generator)
        nn.init.xavier_uniform_(self.self_weight, gain=_GAIN, generator=generator)

    def project_self(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`h W_0`."""
        return self.linear(h, self.self_weight, dims)


class BasisLayer(RelationalLayer):
    """W_r = sum_b a_rb V_b (equation 3): `weight` `[B * out, Din]`, `coefficients` `[R, B]`.

    An edge has one weight for each basis, like one for each head in attention.
    """

    traits = Traits(kind="learned", takes_weights=True, input_weights=("weight", "self_weight", "residual_weight"))

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        num_relations: int,
        bases: int,
        norm_by: NormBy,
        **end: Unpack[EndOfLayer],
    ) -> None:
        super().__init__(in_dim, bases * out_dim, out_dim, num_weights=bases, norm_by=norm_by, **end)
        self.weight = nn.Parameter(torch.empty(bases * out_dim, in_dim))
        self.coefficients = nn.Parameter(torch.empty(num_relations, bases))

    def reset(self, generator: torch.Generator) -> None:
        """Draw each basis separately."""
        super().reset(generator)
        for part in (*self.weight.data.chunk(self.num_weights), self.coefficients):
            nn.init.xavier_uniform_(part, gain=_GAIN, generator=generator)

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """Project sums `[D, B, d]` to `[D, B * out]`, each by its own basis."""
        chosen = self.columns(self.weight, dims)
        bases = chosen.view(self.num_weights, self.out_dim, chosen.shape[1])
        sums = aggregated.view(aggregated.shape[0], self.num_weights, chosen.shape[1])
        return linear_by_head(sums, bases, self.matmul).flatten(1)

    def edge_weight(self, block: Block, score: Tensor | None, peak: Tensor | None) -> tuple[Tensor, None]:
        """`[E, B]`: a_rb / c_vr."""
        assert block.edge_types is not None
        key = "inverse counts", self.norm_by, self.weight.dtype  # all layers share it
        inverse = self.backend.constant(block, key, self._inverse_counts)
        return F.embedding(block.edge_types, self.coefficients) * inverse, None

    def _inverse_counts(self, block: Block) -> Tensor:
        """`[E, 1]`: 1 / c_vr."""
        counts = block.relation_degree
        if self.norm_by == "vertex":
            lengths = block.indptr[1:] - block.indptr[:-1]
            counts = torch.repeat_interleave(block.degree, lengths, output_size=block.num_edges)
        return counts.to(self.weight.dtype).reciprocal_().unsqueeze(1)

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """Sum over bases, and add the self part."""
        assert self_ is not None
        return self_ + aggregated.view(-1, self.num_weights, self.out_dim).sum(1)

    def dense(self, projected: Tensor, self_: Tensor | None) -> Tensor:
        """Sum over bases, and add the self part."""
        assert self_ is not None
        return self_ + projected.view(-1, self.num_weights, self.out_dim).sum(1)

    def propagate(self, dst: Destinations, aggregated: Tensor, x: Tensor | None) -> Tensor:
        """Add the own rows. Edge weights are normalised already."""
        assert x is not None
        return aggregated + x


class BlockDiagonalLayer(RelationalLayer):
    """W_r = diag(Q_r1, ..., Q_rB) (equation 4): `weight` `[R, B, Din / B, out / B]`.

    Sums are taken for each pair of a destination and a relation (`Block.relations`), then projected, relation by
    relation. So memory grows with the number of such pairs, not with D * R. If B does not divide Din or out, blocks
    differ by one column; the parameters of missing columns are zero and stay zero.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        num_relations: int,
        blocks: int,
        norm_by: NormBy,
        **end: Unpack[EndOfLayer],
    ) -> None:
        super().__init__(in_dim, in_dim, out_dim, norm_by=norm_by, **end)
        self.sum_width, self.blocks = out_dim, blocks
        self.rows_per_block, self.sums_per_block = -(-in_dim // blocks), -(-out_dim // blocks)
        # There are at most as many pairs as edges. Sums, projections and gradients of both; whole and by relation.
        edge_columns = 4 * blocks * (self.rows_per_block + self.sums_per_block)
        self.traits = replace(self.traits, edge_columns=edge_columns, edge_projection=_BY_RELATION)
        self.weight = nn.Parameter(torch.empty(num_relations, blocks, self.rows_per_block, self.sums_per_block))
        for name, bounds, size in (
            ("row_place", self.cuts.rows, self.rows_per_block),
            ("sum_place", self.cuts.sums, self.sums_per_block),
        ):
            self.register_buffer(name, _places(bounds, size), persistent=False)
        self.row_place: Tensor
        self.sum_place: Tensor

    def cuts_of_blocks(self) -> ColumnCuts:
        """Columns may be cut between blocks only."""
        return ColumnCuts(even_bounds(self.in_dim, self.blocks), even_bounds(self.out_dim, self.blocks))

    def reset(self, generator: torch.Generator) -> None:
        """Draw each block separately."""
        super().reset(generator)
        bound = _GAIN * (6 / (self.rows_per_block + self.sums_per_block)) ** 0.5
        nn.init.uniform_(self.weight, -bound, bound, generator)
        with torch.no_grad():
            self.weight.mul_(_filled(self.row_place, self.blocks, self.rows_per_block).unsqueeze(2))
            self.weight.mul_(_filled(self.sum_place, self.blocks, self.sums_per_block).unsqueeze(1))

    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        """The input rows, because edges are projected in the aggregation."""
        return self.placed(h, dims)

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """The sums, which are projected already."""
        return aggregated

    def aggregate_by_relation(
        self, block: Block, x: Tensor, weight: Tensor | None, dims: slice | None = None
    ) -> Tensor:
        """`[D, o]`: columns of the blocks that `dims` touches. A block that is cut adds the part that is here."""
        pairs, (first, last) = block.relations, self._touched(dims)
        if first == last:
            return x.new_zeros(block.num_dst, 0)
        counts = pairs.degree if self.norm_by == "relation" else block.degree[pairs.destinations]
        sums = self.aggregate(pairs.incoming, x, with_factors(self, pairs.incoming, None))
        projected = self._project(pairs, sums, slice(0, self.in_dim) if dims is None else dims, first, last)
        return self.backend.sums.aggregate_scaled(pairs.outgoing, projected, counts.to(x.dtype).reciprocal())

    def sum_by_relation(self, block: Block, h: Tensor, weight: Tensor | None, dims: slice | None = None) -> Tensor:
        """`[D, out]`: what the dimensions `dims` add to the sum."""
        first, last = self._touched(dims)
        start, stop = self.cuts.sums[first], self.cuts.sums[last]
        return F.pad(self.aggregate_by_relation(block, h, weight, dims), (start, self.out_dim - stop))

    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """Add the self part."""
        assert self_ is not None
        return aggregated + self_

    def _touched(self, dims: slice | None) -> tuple[int, int]:
        """`(first, last)`: the blocks from `first` to `last - 1` have columns among `dims`."""
        if dims is None:
            return 0, self.blocks
        start, stop, _ = dims.indices(self.in_dim)
        bounds = self.cuts.rows
        return (0, 0) if start == stop else (bisect_right(bounds, start) - 1, bisect_left(bounds, stop))

    def _project(self, pairs: Relations, sums: Tensor, dims: slice, first: int, last: int) -> Tensor:
        """`[P, o]` from sums `[P, d]`: rows of every relation are projected by the relation's own blocks."""
        wide = _spread(sums, self.row_place[dims] - first * self.rows_per_block, (last - first) * self.rows_per_block)
        by_block = wide.view(-1, last - first, self.rows_per_block).transpose(0, 1)
        # Without any pairs, the result still depends on rows and parameters: all ranks must join exchanges in backward.
        of_relations = torch.split_with_sizes(by_block, pairs.counts or (0,), 1)
        matrices = self.weight[: len(of_relations), first:last]
        projected = torch.cat(
            [
                product(rows, own, self.matmul)
                for rows, own in zip(of_relations, matrices, strict=True)
                if rows.shape[1] or not pairs.counts
            ],
            1,
        )
        kept = self.sum_place[self.cuts.sums[first] : self.cuts.sums[last]] - first * self.sums_per_block
        return projected.transpose(0, 1).flatten(1).index_select(1, kept)


_BY_RELATION = EdgeProjection(
    aggregate=BlockDiagonalLayer.aggregate_by_relation,
    sum=BlockDiagonalLayer.sum_by_relation,
    cuts=BlockDiagonalLayer.cuts_of_blocks,
)
_GAIN = nn.init.calculate_gain("relu")


def _places(bounds: Sequence[int], size: int) -> Tensor:
    """`[n]` place of every column if each block takes `size` places."""
    columns = torch.arange(bounds[-1])
    block = torch.searchsorted(torch.tensor(bounds[1:]), columns, right=True)
    return block * size + columns - torch.tensor(bounds)[block]


def _filled(places: Tensor, blocks: int, size: int) -> Tensor:
    """`[B, size]` bool: whether a column is at the place."""
    return torch.zeros(blocks * size, dtype=torch.bool).index_fill(0, places, True).view(blocks, size)


def _spread(rows: Tensor, places: Tensor, width: int) -> Tensor:
    """`[P, width]`: the columns of `rows` at their `places`, zeros elsewhere."""
    if rows.shape[1] == width:
        return rows
    return rows.new_zeros(rows.shape[0], width).index_copy(1, places, rows)


@dataclass(frozen=True)
class RGCNOptions(ModelOptions):
    """A stack of relational layers. Weights of edges multiply messages, and do not change c_vr.

    Attributes:
        decomposition: `basis`: each relation's matrix is a sum of shared matrices with its own coefficients. `block`:
            each relation has its own blocks along the diagonal.
        bases: B, number of shared matrices of `basis`. The paper has 2 for link prediction, up to 40 for entities.
        blocks: B, number of blocks of `block`; at most the columns of features, hidden layers and classes.
        norm_by: messages are divided by the destination's number of in-edges: of the same `relation`, or of all
            (`vertex`).
        hidden, layers, dropout, input_dropout, residual, norm, bias, kernel: as in `gnnexp.models.gcn.GCNOptions`.
    """

    hidden: int = 256
    layers: int = 3
    decomposition: Decomposition = "basis"
    bases: int = 2
    blocks: int = 4
    norm_by: NormBy = "relation"
    dropout: float = 0.5
    input_dropout: float = 0.0
    residual: bool = False
    norm: bool = False
    bias: bool = True
    kernel: str = "auto"

    def problems(self) -> list[Problem]:
        """Invalid arguments, words that are not known, and impossible numbers of bases and blocks."""
        wrong = super().problems()
        for name, allowed in _WORDS.items():
            if getattr(self, name) not in allowed:
                wrong.append(
                    Problem(
                        f"model.{name}",
                        getattr(self, name),
                        f"must be {' or '.join(allowed)}",
                        f"set model.{name}={allowed[0]}",
                    )
                )
        counts = (("bases", self.bases), ("blocks", self.blocks))
        wrong += wrong_options("model", *((n >= 1, name, n, "must be at least 1", 2) for name, n in counts))
        if self.decomposition == "block" and self.layers > 1 and 1 <= self.hidden < self.blocks:
            wrong.append(self._too_many("model.hidden", self.hidden))
        return wrong

    def check_data(self, setting: Setting, facts: GraphFacts) -> list[Problem]:
        """Problems: no relations; for blocks also sparse rows, and fewer columns of features or classes than blocks."""
        problems = super().check_data(setting, facts)
        if not facts.typed or not facts.num_edges:
            lacks = "no edge types" if not facts.typed else "no edges, so no relations"
            problems.append(
                Problem(
                    "model",
                    target_of(self),
                    f"dataset {facts.name} has {lacks}",
                    "choose a dataset with relations, or model=sage",
                )
            )
        if self.decomposition == "basis":
            return problems
        if facts.sparse:
            problems.append(
                Problem(
                    "model.decomposition",
                    "block",
                    "blocks take dense rows, and the features are sparse",
                    "set dataset.sparse=false, or model.decomposition=basis",
                )
            )
        sizes = {"dataset features": facts.num_features, "dataset classes": facts.num_classes}
        return [*problems, *(self._too_many(what, size) for what, size in sizes.items() if 0 < size < self.blocks)]

    def _too_many(self, what: str, columns: int) -> Problem:
        return Problem(
            "model.blocks",
            self.blocks,
            f"more blocks than columns: {what} has {columns}",
            f"set model.blocks={columns} or fewer, or model.decomposition=basis",
        )

    @property
    def needs(self) -> BlockNeeds:
        """Blocks must carry types of edges."""
        return BlockNeeds(edge_types=True)

    def num_matrices(self, num_relations: int) -> int:
        """Upper bound: two matrices, and all bases or the blocks of all relations."""
        return 2 + (self.bases if self.decomposition == "basis" else -(-num_relations // self.blocks))

    @property
    def values_per_edge(self) -> int:
        """Weights of bases, like attention's of heads; or sums and projections, for at most as many pairs as edges."""
        return 3 * self.bases if self.decomposition == "basis" else 2 * self.hidden

    def make_layer(self, index: int, in_dim: int, out_dim: int, num_relations: int = 0) -> Layer:
        """The `index`-th layer."""
        end = self.end_of_layer(index, residual=self.residual, norm=self.norm, bias=self.bias)
        if self.decomposition == "basis":
            return BasisLayer(
                in_dim,
                out_dim,
                num_relations=num_relations,
                bases=self.bases,
                norm_by=self.norm_by,
                **end,
            )
        return BlockDiagonalLayer(
            in_dim,
            out_dim,
            num_relations=num_relations,
            blocks=self.blocks,
            norm_by=self.norm_by,
            **end,
        )
