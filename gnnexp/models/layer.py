"""The layer contract: a layer's maths, written once, in stages. Paradigms move data between the stages.

The stages: project -> score -> weight -> aggregate -> mix -> finish

*project* and *aggregate* are linear, on any slice of dimensions. So they commute wherever weights allow, and their
partial sums may be added across ranks. *mix* divides by the mass and never sees the raw input. docs/rooms.md
("Layers") says why each stage is needed and which paradigm uses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, NotRequired, TypedDict, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnnexp.comm.slices import mark_slice
from gnnexp.components.schema import Matmul
from gnnexp.graph.block import Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.ops import products
from gnnexp.ops.backend import Backend, Drop

Activation = Literal["relu", "elu", "none"]


@dataclass(frozen=True, eq=False)
class Degrees:
    """What layers know of the full graph. It is the same on every rank, even if a rank holds only a part.

    Attributes:
        in_degree, out_degree: `[V]` int64, number of in-edges and of out-edges.
        num_relations: R, number of edge types; 0 for a graph without edge types.
        in_weight: `[V]` float64, sums of the weights of in-edges; None for a graph without weights.
        has_own_loop: `[V]` bool, whether an edge leads from the vertex to itself; None for a graph without weights.
    """

    in_degree: Tensor
    out_degree: Tensor
    num_relations: int
    in_weight: Tensor | None = None
    has_own_loop: Tensor | None = None

    @staticmethod
    def of(graph: Graph) -> Degrees:
        """The degrees of a full graph."""
        loops = None if graph.in_weight is None else graph.has_own_loop
        return Degrees(graph.in_degree, graph.out_degree, graph.num_relations, graph.in_weight, loops)

    def to(self, device: torch.device) -> Degrees:
        """A copy on a device."""
        weighted = (None if values is None else values.to(device) for values in (self.in_weight, self.has_own_loop))
        return Degrees(self.in_degree.to(device), self.out_degree.to(device), self.num_relations, *weighted)


@dataclass(frozen=True, eq=False)
class Destinations:
    """What `mix` may know about destinations.

    Attributes:
        ids: `[D]` original ids.
        degree: `[D]` number of all in-edges in the hop.
        mass: `[D, K]` denominators summed over all edges, or None if the layer has no mass or sums are divided already.
        weight: `[D]` float64, sum of the weights of all in-edges in the hop (`Block.total_weight`), or None.
    """

    ids: Tensor
    degree: Tensor
    mass: Tensor | None = None
    weight: Tensor | None = None

    @staticmethod
    def of(block: Block, mass: Tensor | None = None) -> Destinations:
        """The destinations of a block."""
        return Destinations(block.dst_ids, block.degree, mass, block.total_weight)


class ColumnCuts(NamedTuple):
    """Where ranks may cut columns: the i-th stretch of `rows` gives the i-th stretch of `sums`.

    Attributes:
        rows: ascending columns of projected rows, from 0 to all.
        sums: ascending columns of the sums, as many as `rows`.
    """

    rows: Sequence[int]
    sums: Sequence[int]


class EndOfLayer(TypedDict):
    """What a layer does after its sums.

    Attributes:
        activation: what *finish* ends with.
        residual: whether *finish* adds the undropped input.
        norm: whether LayerNorm comes before the activation.
        bias: whether the layer has one.
    """

    activation: Activation
    residual: bool
    norm: bool
    bias: NotRequired[bool]


@dataclass(frozen=True, eq=False)
class EdgeProjection:
    """How a layer projects whose projection differs from edge to edge: in the aggregation. "Projected" rows are inputs.

    Attributes:
        aggregate: `[D, d]` sums of `(layer, block, x, weight, dims)`: rows `x` `[S, d]`, each projected by its edge.
        sum: `[D, C]` the same, with what the dimensions `dims` add to all columns.
        cuts: where the columns of `(layer)` may be cut for ranks.
    """

    aggregate: Callable[..., Tensor]
    sum: Callable[..., Tensor]
    cuts: Callable[..., ColumnCuts]


@dataclass(frozen=True, eq=False)
class Traits:
    """What a layer is, and its fast paths. A fast path is a function whose first argument is the layer.

    Attributes:
        kind: edge weights are `static` (parameter-free), `learned` (from parameters and the graph alone, so computed
            again in every pass) or `projected` (computed from keys).
        takes_weights: whether the layer has a formula for a graph's edge weights: messages are multiplied with them
            (`local.edge_weights`); `Degrees.in_weight` and `Destinations.weight` are sums of them. Other layers refuse
            graphs with edge weights.
        self_is_neighbour: whether the self part is the destination's own neighbour projection (GCN, GIN).
        mixes_rows: whether `mix` only scales and adds rows, and its self part is the neighbour projection. Then `mix`
            may come before the projection, which runs once for both parts. Offloading keeps rows after `mix`, unless
            its factors are parameters.
        weight_dropout: probability with which weights (never masses) are dropped in training.
        degrees: whether the layer normalises by degrees of the full graph (`graph`) or of the block (`block`).
        edge_columns: most columns that an aggregation and its backward pass hold for every edge, besides weights.
        input_weights: names of the parameters `[.., Din]` that act on input dimensions. Push-pull keeps some of their
            columns (`keep_columns`). A parameter that is not named stays whole on every rank: correct, but larger.
        weights_key: layers of kind `static` with the same key have the same edge weights, computed once for each block.
        source_weight: `[S]` weights of `(layer, block)`, which depend on sources and the graph alone, instead of
            `edge_weight`'s.
        keys_of_projected: keys of `(layer, x)` from projected rows, which is cheaper than `keys`.
        edge_projection: if the projection differs from edge to edge.
        aggregate_back: transpose of an own `aggregate`, with `(layer, block, gradient, weight)`.
        attend: `[D, C]` sums of `(layer, block, rows, keys, drop, projected=)`, divided by the mass: score, weight and
            aggregate in one kernel. `projected` says whether rows are projected already.
        attention: `[E, K]` weights of `(layer, block, keys, drop)`, divided by the mass; with `attend`.
        attend_takes_factors: whether `attend` and `attention` multiply with `local.message_factors`. If not, a block
            with weights that the layer takes, or with a scale, runs stage by stage.
        mixed_and_biased: `[D, C]` `mix` and the bias of `(layer, dst, aggregated, own)`, in fewer passes, from summed
            rows `[D, Din]` and the destinations' rows `[D, Din]`.
    """

    kind: Literal["static", "learned", "projected"]
    takes_weights: bool = False
    self_is_neighbour: bool = False
    mixes_rows: bool = False
    weight_dropout: float = 0.0
    degrees: Literal["graph", "block"] = "graph"
    edge_columns: int = 0
    input_weights: tuple[str, ...] = ("weight", "residual_weight")
    weights_key: Hashable = None
    source_weight: Callable[..., Tensor] | None = None
    keys_of_projected: Callable[..., tuple[Tensor, Tensor]] | None = None
    edge_projection: EdgeProjection | None = None
    aggregate_back: Callable[..., Tensor] | None = None
    attend: Callable[..., Tensor] | None = None
    attention: Callable[..., Tensor] | None = None
    attend_takes_factors: bool = False
    mixed_and_biased: Callable[..., Tensor] | None = None


class Layer(nn.Module, ABC):
    """One message-passing layer on the contract.

    The constructor sets sizes: `in_dim` (Din), `out_dim`, `width` (C, columns of a projected row), `sum_width` (columns
    of the sums of such rows) and `num_weights` (K: heads, bases). It also sets how *finish* ends: `activation` and
    `residual`. `Model.setup` sets `matmul` (how dense products round their factors). `attach` sets `backend` (kernels)
    and `facts` (degrees of the full graph).

    Attributes:
        traits: what the layer is, and its fast paths.
        weight: parameter of the projection, unless a subclass overrides `project`.
    """

    traits: Traits
    weight: nn.Parameter

    def __init__(
        self,
        in_dim: int,
        width: int,
        out_dim: int,
        *,
        num_weights: int = 1,
        activation: Activation,
        residual: bool,
        norm: bool,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.in_dim, self.width, self.out_dim, self.num_weights = in_dim, width, out_dim, num_weights
        self.sum_width = width
        self.matmul: Matmul = "float32"
        self.backend: Backend
        self.facts: Degrees
        self.activation, self.residual = activation, residual
        self.bias = nn.Parameter(torch.zeros(out_dim)) if bias else None
        self.norm = nn.LayerNorm(out_dim) if norm else None
        self.residual_weight = nn.Parameter(torch.empty(out_dim, in_dim)) if residual and in_dim != out_dim else None
        self.held: slice | None = None
        # On torch's `meta` device there are no values, and a division would import the compiler.
        column = (
            torch.empty(width, dtype=torch.int64)
            if torch.get_default_device().type == "meta"
            else torch.arange(width) // max(1, width // num_weights)
        )
        self.register_buffer("column", column, persistent=False)
        self.column: Tensor
        self._host_column = self.column  # stays there: kernels read it on the host, and must not wait for a GPU

    # --- project -------------------------------------------------------------------------------------------------
    def project(self, h: Rows, dims: slice | None = None) -> Tensor:
        """`[N, C]`: bias-free projection of rows `h` `[N, len(dims)]`, which hold the input dimensions `dims`.

        By default the product with `weight` `[C, Din]`.
        """
        return self.linear(h, self.weight, dims)

    def project_self(self, h: Rows, dims: slice | None = None) -> Tensor | None:
        """`[N, C]`: the destination's own linear part, or None."""
        return None

    @final
    def residual_part(self, raw: Rows, dims: slice | None = None) -> Tensor | None:
        """`[N, out]`: linear skip connection, from *undropped* rows; an identity has zeros outside `dims`."""
        if not self.residual:
            return None
        if self.residual_weight is not None:
            return self.linear(raw, self.residual_weight, dims)
        # As wide as the output, which is dense: sparse rows need no less memory here.
        return self.placed(raw.to_dense() if isinstance(raw, SparseRows) else raw, dims)

    def keys(self, h: Rows, dims: slice | None = None) -> tuple[Tensor, Tensor] | None:
        """`([N, K], [N, K])`: keys of sources and destinations for edge scores, linear in `h`."""
        return None

    @final
    def keys_of_projected(self, x: Tensor) -> tuple[Tensor, Tensor] | None:
        """The same keys, computed from projected rows; None if the layer has no such way."""
        return None if self.traits.keys_of_projected is None else self.traits.keys_of_projected(self, x)

    # --- score, weight -------------------------------------------------------------------------------------------
    def edge_score(self, block: Block, src_key: Tensor, dst_key: Tensor) -> Tensor | None:
        """`[E, K]` scores of edges. The peak of `edge_weight` is their maximum over *all* in-edges of a destination."""
        return None

    @property
    @final
    def weights_key(self) -> Hashable:
        """Layers of kind `static` with the same key have the same edge weights, computed once for each block."""
        return id(self) if self.traits.weights_key is None else (self.traits.weights_key, self.dtype)

    def edge_weight(
        self, block: Block, score: Tensor | None, peak: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        """`(weight [E, K] | None for ones, mass [D, K] | None)`: unnormalised weights, from undropped scores."""
        return None, None

    @final
    def source_weight(self, block: Block) -> Tensor | None:
        """`[S]` weights of edges that depend on their source and the graph alone, instead of `edge_weight`'s."""
        return None if self.traits.source_weight is None else self.traits.source_weight(self, block)

    @property
    @final
    def takes_weights(self) -> bool:
        """Whether the layer has a formula for a graph's edge weights."""
        return self.traits.takes_weights

    @property
    @final
    def dtype(self) -> torch.dtype:
        """Type of the parameters."""
        return next((parameter.dtype for parameter in self.parameters()), torch.get_default_dtype())

    # --- aggregate -----------------------------------------------------------------------------------------------
    def aggregate(self, block: Block, x: Tensor, weight: Tensor | None) -> Tensor:
        """Weighted sums of any rows `[S, d]` over in-edges: `[D, d]`; `[D, K, d]` with K > 1 weights."""
        scale = self.source_weight(block) if weight is None else None
        if scale is not None:
            return self.backend.sums.aggregate_scaled(block, x, scale)
        if self.num_weights > 1:
            assert weight is not None
            return self.backend.sums.aggregate_outer(block, x, weight)
        return self.backend.sums.aggregate(block, x, weight, None)

    @final
    def aggregate_projected(self, block: Block, x: Tensor, weight: Tensor | None, dims: slice | None = None) -> Tensor:
        """`[D, d]` weighted sums of projected rows, or of their columns `dims` `[S, d]`, each by its own weight.

        If `dims` goes beyond the width, the further columns of `x` are zeros, and so are their sums.
        """
        if self.traits.edge_projection is not None:
            return self.traits.edge_projection.aggregate(self, block, x, weight, dims)
        if self.num_weights == 1:
            return self.aggregate(block, x, weight)
        assert weight is not None
        column = self._host_column if dims is None else self._host_column[dims]
        more = x.shape[1] - column.numel()
        return self.backend.sums.aggregate(
            block, x, weight, F.pad(column, (0, more), value=self.num_weights - 1) if more else column
        )

    @final
    def sum_projected(self, block: Block, h: Tensor, weight: Tensor | None, dims: slice | None = None) -> Tensor:
        """`[D, C]` weighted sums of raw rows, or of their dimensions `dims` `[S, d]`, then the projection."""
        if self.traits.edge_projection is not None:
            return self.traits.edge_projection.sum(self, block, h, weight, dims)
        return self.project_aggregated(self.aggregate(block, h, weight), dims)

    @property
    @final
    def cuts(self) -> ColumnCuts:
        """Where the columns of `aggregate_projected` may be cut for ranks."""
        if self.traits.edge_projection is not None:
            return self.traits.edge_projection.cuts(self)
        everywhere = range(self.width + 1)
        return ColumnCuts(everywhere, everywhere)

    @final
    def aggregate_back(self, block: Block, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """`[S, d]`: the transpose of `aggregate` with constant weights, one per edge; not differentiable."""
        if self.traits.aggregate_back is not None:
            return self.traits.aggregate_back(self, block, gradient, weight)
        back = self.backend.sums.spread(block, gradient, weight)
        scale = self.source_weight(block) if weight is None else None
        return back if scale is None else back.mul_(scale.unsqueeze(1))

    def project_aggregated(self, aggregated: Tensor, dims: slice | None = None) -> Tensor:
        """`[D, C]`: `project` after aggregation, from sums `[D, d]`. A subclass with K > 1 takes `[D, K, d]`."""
        return self.project(aggregated, dims)

    # --- mix, finish ---------------------------------------------------------------------------------------------
    @abstractmethod
    def mix(self, dst: Destinations, aggregated: Tensor, self_: Tensor | None) -> Tensor:
        """`[D, C]`: divide by the mass, add the self part."""

    def dense(self, projected: Tensor, self_: Tensor | None) -> Tensor:
        """`[N, .]`: what `preactivation` takes if vertices have no edges (models/decoupled.py)."""
        return projected if self_ is None else projected + self_

    def propagate(self, dst: Destinations, aggregated: Tensor, x: Tensor | None) -> Tensor:
        """`[D, d]`: one step of a decoupled propagation, on any slice of dimensions, from sums and own rows `x`."""
        return self.mix(dst, aggregated, x)

    def preactivation(self, mixed: Tensor) -> Tensor:
        """`[D, out]`: what *finish* does before its activation (bias, normalisation, an inner MLP)."""
        biased = mixed if self.bias is None else mixed + self.bias
        return biased if self.norm is None else self.norm(biased)

    @final
    def activated(self, preactivated: Tensor, residual: Tensor | None) -> Tensor:
        """`[D, out]`: the last part of *finish*, after `preactivation`."""
        out = activate(preactivated, self.activation)
        return out if residual is None else out + residual

    # --- shared --------------------------------------------------------------------------------------------------
    @final
    def placed(self, h: Rows, dims: slice | None) -> Tensor:
        """`[N, Din]` from rows that hold only the dimensions `dims`, with zeros elsewhere."""
        assert isinstance(h, Tensor), "sparse features are always projected"
        if dims is None:
            return h
        start, stop, _ = dims.indices(self.in_dim)
        return F.pad(h, (start, self.in_dim - stop))

    @final
    def linear(self, h: Rows, weight: Tensor, dims: slice | None = None) -> Tensor:
        """`h @ weight[:, dims].T` for dense or sparse rows. Only products of dense rows round their factors."""
        chosen = self.columns(weight, dims)
        if isinstance(h, SparseRows):
            return self.backend.sparse_linear(h, chosen)
        return products.linear(h, chosen, self.matmul)

    @final
    def columns(self, weight: Tensor, dims: slice | None) -> Tensor:
        """Columns `dims` of a weight `[.., Din]`; the whole weight if it holds only these columns."""
        if dims is None or (self.held == dims and weight.shape[-1] == dims.stop - dims.start):
            return weight
        return weight[..., dims]

    @final
    def keep_columns(self, dims: slice) -> list[nn.Parameter]:
        """Keep only the columns `dims` of the input weights. Returns the new parameters."""
        self.held, kept = dims, []
        for name in self.traits.input_weights:
            whole = getattr(self, name, None)
            if whole is not None:
                kept.append(nn.Parameter(whole.detach()[..., dims].clone()))
                mark_slice(kept[-1], whole.ndim - 1, dims)
                setattr(self, name, kept[-1])
        return kept

    @final
    def attach(self, backend: Backend, facts: Degrees) -> None:
        """Give the layer its kernels and the degrees of the full graph."""
        self.backend, self.facts = backend, facts

    @final
    def drop_weights(self, block: Block, weight: Tensor | None, drop: Drop | None) -> Tensor | None:
        """Weights after dropout by edge identity. Masses are sums of undropped weights."""
        if weight is None or drop is None:
            return weight
        return self.backend.edges.dropout(block, weight, drop)

    def reset(self, generator: torch.Generator) -> None:
        """Draw initial parameters. They are the same on every rank."""
        if self.residual_weight is not None:
            nn.init.xavier_uniform_(self.residual_weight, generator=generator)


class BlockLayer(nn.Module, ABC):
    """An ordinary layer, `forward(block, h_src, h_dst)`: any PyTorch or DGL code over all in-edges of destinations.

    It runs wherever all in-edges and the full source rows of a destination are local (data, split, vertex parallel over
    edge-cut, model averaging, offload); the other paradigms refuse it.

    Attributes:
        takes_weights: whether `forward` uses `block.weight`. If not, graphs with edge weights are refused.
        takes_scale: whether `forward` uses `block.scale`. If not, samplers that rescale messages are refused.
        takes_matmul: whether dense products are those of `gnnexp.ops.products`, with `matmul`. If not,
            `train.matmul` must be float32.
        matmul: how dense products round their factors; `Model.setup` sets it.
    """

    takes_weights = False
    takes_scale = False
    takes_matmul = False
    matmul: Matmul = "float32"

    def __init__(self, in_dim: int, out_dim: int, activation: Activation) -> None:
        super().__init__()
        self.in_dim, self.out_dim, self.activation = in_dim, out_dim, activation
        self.residual = False

    @abstractmethod
    def forward(self, block: Block, h_src: Tensor, h_dst: Tensor) -> Tensor:
        """`[D, out]` before the activation, from source rows `[S, Din]` and destination rows `[D, Din]`."""

    def attach(self, backend: Backend, facts: Degrees) -> None:
        """Give the layer its kernels and the degrees of the full graph. By default it ignores them."""

    @abstractmethod
    def reset(self, generator: torch.Generator) -> None:
        """Draw initial parameters. They are the same on every rank."""


def activate(x: Tensor, activation: Activation) -> Tensor:
    """The named activation."""
    if activation == "relu":
        return F.relu(x)
    return F.elu(x) if activation == "elu" else x
