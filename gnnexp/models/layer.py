"""The layer contract: a layer's maths, written once, cut into phases between which paradigms move data.

    project -> score -> weight -> aggregate -> mix -> finish

*project* and *aggregate* are linear, on any slice of dimensions, so they commute wherever weights allow and their
partial sums may be added across ranks; *mix* divides by the mass and never sees the raw input. docs/rooms.md
("Layers") says why each phase is needed and which paradigm uses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnexp.graph.block import Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.ops.backend import Backend, Drop
from gnnexp.ops.slices import mark_slice

Activation = Literal["relu", "elu", "none"]


@dataclass(frozen=True, eq=False)
class Degrees:
    """What layers know of the full graph: the same on every rank, whatever it holds.

    Attributes:
        in_degree, out_degree: `[V]` int64.
        num_relations: R, 0 for a graph without edge types.
    """

    in_degree: Tensor
    out_degree: Tensor
    num_relations: int

    @staticmethod
    def of(graph: Graph) -> Degrees:
        """Those of the full graph."""
        return Degrees(graph.in_degree, graph.out_degree, graph.num_relations)

    def to(self, device: torch.device) -> Degrees:
        """On a device."""
        return Degrees(self.in_degree.to(device), self.out_degree.to(device), self.num_relations)


@dataclass(frozen=True, eq=False)
class Destinations:
    """What `mix` may know of the destinations.

    Attributes:
        ids: `[D]` original ids.
        degree: `[D]` complete number of edges in the hop.
        mass: `[D, K]` denominators summed over all edges, or None: the layer has no mass, or sums are divided already.
    """

    ids: Tensor
    degree: Tensor
    mass: Tensor | None = None


class ColumnCuts(NamedTuple):
    """Where ranks may cut columns: the i-th stretch of `rows` gives the i-th stretch of `sums`.

    Attributes:
        rows: ascending columns of projected rows, from 0 to all.
        sums: as many of their sums.
    """

    rows: Sequence[int]
    sums: Sequence[int]


class Layer(nn.Module, ABC):
    """One message-passing layer on the contract.

    Attributes:
        kind: edge weights are `static` (parameter-free), `learned` (from parameters and the graph alone: weighed anew
            in every pass) or `projected` (computed from keys).
        projects_edges: the projection differs from edge to edge: it is part of the aggregation (`aggregate_projected`,
            `sum_projected`), and "projected" rows are the rows themselves.
        in_dim: Din, dimensions of the input rows.
        width: C, columns of a projected neighbour row (what is summed when projecting first).
        sum_width: columns of the sums of projected rows: as many, unless edges are projected.
        out_dim: columns of the output.
        num_weights: K, weights of an edge (heads, bases).
        edge_columns: of what an aggregation and its backward hold per edge at most, weights apart.
        self_is_neighbour: the self part is the destination's own neighbour projection (GCN, GIN).
        mixes_rows: whether `mix` does no more than scale rows and add them, with a self part that is the neighbours'
            projection: then it may come before the projection, once for both.
        activation: what `finish` ends with.
        residual: whether `finish` adds the undropped input.
        weight_dropout: probability with which weights (never masses) are dropped in training.
        attends: whether there is a fused kernel for score, weight and aggregate (`attend`, `attention`).
        sums_are_short: whether `mixed_and_biased` takes fewer passes than `mix` and the bias.
        input_weights: names of the parameters `[.., Din]` that act on input dimensions: push-pull keeps some of their
            columns (`keep_columns`). One that is left out stays whole on every rank, which is right too, but larger.
    """

    kind: Literal["static", "learned", "projected"]
    projects_edges = False
    edge_columns = 0
    self_is_neighbour = False
    mixes_rows = False
    attends = False
    sums_are_short = False
    weight_dropout = 0.0
    input_weights: tuple[str, ...] = ("weight", "residual_weight")

    def __init__(
        self, in_dim: int, width: int, out_dim: int, *, num_weights: int = 1, activation: Activation, residual: bool,
        norm: bool, bias: bool = True,
    ) -> None:
        super().__init__()
        self.in_dim, self.width, self.out_dim, self.num_weights = in_dim, width, out_dim, num_weights
        self.sum_width = width
        self.activation, self.residual = activation, residual
        self.bias = nn.Parameter(torch.zeros(out_dim)) if bias else None
        self.norm = nn.LayerNorm(out_dim) if norm else None
        self.residual_weight = nn.Parameter(torch.empty(out_dim, in_dim)) if residual and in_dim != out_dim else None
        self.held: slice | None = None
        self.backend: Backend | None = None
        self.facts: Degrees | None = None
        self.register_buffer("column", torch.arange(width) // max(1, width // num_weights), persistent=False)
        self.column: Tensor

    # --- project -------------------------------------------------------------------------------------------------
    @abstractmethod
    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`[N, C]`: bias-free projection of rows `h` `[N, len(dims)]`, which hold the input dimensions `dims`."""

    def project_self(self, h: Rows, dims: slice | None = None) -> Tensor | None:
        """`[N, C]`: the destination's own linear part, or None."""
        return None

    def residual_part(self, raw: Rows, dims: slice | None = None) -> Tensor | None:
        """`[N, out]`: the skip connection's linear part from *undropped* rows; an identity is a zero-padded slice."""
        if not self.residual:
            return None
        if self.residual_weight is not None:
            return self.linear(raw, self.residual_weight, dims)
        # As wide as the output, which is dense: sparse rows take no more here.
        return self.placed(raw.to_dense() if isinstance(raw, SparseRows) else raw, dims)

    def keys(self, h: Rows, dims: slice | None = None) -> tuple[Tensor, Tensor] | None:
        """`([N, K], [N, K])`: what edge scores need of a source and of a destination, linear in `h`."""
        return None

    def keys_of_projected(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """The same keys, computed from rows that are projected already (cheaper)."""
        return None

    # --- score, weight -------------------------------------------------------------------------------------------
    def edge_score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor | None:
        """`[E, K]` scores of edges; their maximum over *all* edges of a destination is the peak of `edge_weight`."""
        return None

    @property
    def weights_key(self) -> Hashable:
        """Layers of kind `static` with the same key weigh the edges of a block alike: computed once per block."""
        return id(self)

    def edge_weight(
        self, block: Block, score: Tensor | None, peak: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """`(weight [E, K] | None for ones, mass [D, K] | None)`: unnormalised weights, from undropped scores."""
        return None, None

    def source_weight(self, block: Block) -> Tensor | None:
        """`[S]` weights of edges that depend on their source and the graph alone, instead of `edge_weight`'s."""
        return None

    # --- aggregate -----------------------------------------------------------------------------------------------
    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None) -> Tensor:
        """Weighted sums of any rows `[S, d]` over in-edges: `[D, d]`; of K > 1 weights one sum each, `[D, K, d]`."""
        assert self.backend is not None
        scale = self.source_weight(block) if weight is None else None
        if scale is not None:
            return self.backend.aggregate_scaled(block, x, scale)
        if self.num_weights > 1:
            assert weight is not None
            return self.backend.aggregate_outer(block, x, weight)
        return self.backend.aggregate(block, x, weight, None)

    def aggregate_projected(self, block: Block, x: Tensor, weight: Tensor | None, dims: slice | None = None) -> Tensor:
        """`[D, d]` weighted sums of projected rows, or of their columns `dims` `[S, d]`, each by its own weight."""
        if self.num_weights == 1:
            return self.aggregate(block, x, weight)
        assert self.backend is not None and weight is not None
        return self.backend.aggregate(block, x, weight, self.column if dims is None else self.column[dims])

    def sum_projected(self, block: Block, h: Tensor, weight: Tensor | None, dims: slice | None = None) -> Tensor:
        """`[D, C]` weighted sums of raw rows, or of their dimensions `dims` `[S, d]`, then the projection."""
        return self.project_aggregated(self.aggregate(block, h, weight), dims)

    @property
    def cuts(self) -> ColumnCuts:
        """Where the columns of `aggregate_projected` may be cut."""
        everywhere = range(self.width + 1)
        return ColumnCuts(everywhere, everywhere)

    def aggregate_back(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """`[S, d]`: the transpose of `aggregate` with constant weights, one per edge; not differentiable."""
        assert self.backend is not None
        back = self.backend.spread(block, gradient, weight)
        scale = self.source_weight(block) if weight is None else None
        return back if scale is None else back.mul_(scale.unsqueeze(1))

    @abstractmethod
    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """`[D, C]`: `project` applied after aggregation, of `[D, d]` (or `[D, K, d]`)."""

    # --- mix, finish ---------------------------------------------------------------------------------------------
    @abstractmethod
    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """`[D, C]`: divide by the mass, add the self part."""

    def dense(self, projected: Tensor, self_: Tensor | None) -> Tensor:
        """`[N, .]`: what `preactivation` takes of a vertex without edges (models/decoupled.py)."""
        return projected if self_ is None else projected + self_

    def propagate(self, dst: Destinations, aggregated: Tensor, x: Tensor | None) -> Tensor:
        """`[D, d]`: one step of a decoupled propagation, on any slice of dimensions, from sums and own rows `x`."""
        return self.mix(dst, aggregated, x)

    def preactivation(self, mixed: Tensor) -> Tensor:
        """`[D, out]`: what `finish` does before its activation (bias, normalisation, an inner MLP)."""
        biased = mixed if self.bias is None else mixed + self.bias
        return biased if self.norm is None else self.norm(biased)

    def finish(self, mixed: Tensor, residual: Tensor | None) -> Tensor:
        """`[D, out]`: the row-local end of the layer."""
        return self.activated(self.preactivation(mixed), residual)

    def activated(self, preactivated: Tensor, residual: Tensor | None) -> Tensor:
        """The last part of `finish`."""
        out = activate(preactivated, self.activation)
        return out if residual is None else out + residual

    # --- shortcuts, where all edges and rows of the destinations are local ------------------------------------------
    def attend(
        self, block: Block, rows: Rows, keys: tuple[Tensor, Tensor], drop: Drop | None, *, projected: bool
    ) -> Tensor:
        """`[D, C]` of `rows`, projected or not: already divided by the mass."""
        raise NotImplementedError

    def attention(self, block: Block, keys: tuple[Tensor, Tensor], drop: Drop | None) -> Tensor:
        """`[E, K]` weights, already divided by the mass."""
        raise NotImplementedError

    def mixed_and_biased(self, degree: Tensor, aggregated: Tensor, own: Tensor) -> Tensor:
        """`[D, C]` from degrees `[D]`, summed rows `[D, Din]` and the destinations' rows `[D, Din]`."""
        raise NotImplementedError

    # --- shared --------------------------------------------------------------------------------------------------
    def placed(self, h: Rows, dims: slice | None) -> Tensor:
        """`[N, Din]`: rows that hold the dimensions `dims` only, zero elsewhere."""
        assert isinstance(h, Tensor), "sparse features are projected, never taken as they are"
        if dims is None:
            return h
        start, stop, _ = dims.indices(self.in_dim)
        return F.pad(h, (start, self.in_dim - stop))

    def linear(self, h: Rows, weight: Tensor, dims: slice | None = None) -> Tensor:
        """`h @ weight[:, dims].T` for dense or sparse rows."""
        chosen = self.columns(weight, dims)
        if isinstance(h, SparseRows):
            assert self.backend is not None
            return self.backend.sparse_linear(h, chosen)
        return F.linear(h, chosen)

    def columns(self, weight: Tensor, dims: slice | None) -> Tensor:
        """Columns `dims` of a weight `[.., Din]`: all that is there, where only those are held."""
        if dims is None or (self.held == dims and weight.shape[-1] == dims.stop - dims.start):
            return weight
        return weight[..., dims]

    def keep_columns(self, dims: slice) -> list[nn.Parameter]:
        """Let go of all columns but `dims` of the input weights; returns the parameters that are left of them."""
        self.held, kept = dims, []
        for name in self.input_weights:
            whole = getattr(self, name, None)
            if whole is not None:
                kept.append(nn.Parameter(whole.detach()[..., dims].clone()))
                mark_slice(kept[-1], whole.ndim - 1, dims)
                setattr(self, name, kept[-1])
        return kept

    def attach(self, backend: Backend, facts: Degrees) -> None:
        """Give the layer its kernels and what it may know of the graph."""
        self.backend, self.facts = backend, facts

    def drop_weights(self, block: Block, weight: Tensor | None, drop: Drop | None) -> Tensor | None:
        """Weights with dropout by edge identity; masses are from undropped weights."""
        if weight is None or drop is None:
            return weight
        assert self.backend is not None
        return self.backend.edge_dropout(block, weight, drop)

    def reset(self, generator: torch.Generator) -> None:
        """Draw initial parameters; the same on every rank."""
        if self.residual_weight is not None:
            nn.init.xavier_uniform_(self.residual_weight, generator=generator)


class BlockLayer(nn.Module, ABC):
    """An ordinary layer, `forward(block, h_src, h_dst)`: any PyTorch or DGL code over one destination's full in-edges.

    It runs wherever all in-edges and the full source rows of a destination are local (data, split, vertex parallel over
    edge-cut, model averaging, offload); the other paradigms refuse it.
    """

    def __init__(self, in_dim: int, out_dim: int, activation: Activation) -> None:
        super().__init__()
        self.in_dim, self.out_dim, self.activation = in_dim, out_dim, activation
        self.residual = False

    @abstractmethod
    def forward(self, block: Block, h_src: Tensor, h_dst: Tensor) -> Tensor:
        """`[D, out]` before the activation, from source rows `[S, Din]` and destination rows `[D, Din]`."""

    def attach(self, backend: Backend, facts: Degrees) -> None:
        """Give the layer its kernels and what it may know of the graph, if it wants them."""

    @abstractmethod
    def reset(self, generator: torch.Generator) -> None:
        """Draw initial parameters; the same on every rank."""


def activate(x: Tensor, activation: Activation) -> Tensor:
    """The named activation."""
    if activation == "relu":
        return F.relu(x)
    return F.elu(x) if activation == "elu" else x
