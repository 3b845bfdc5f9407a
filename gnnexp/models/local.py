"""Running one contract layer where all in-edges and source rows of its destinations are local."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.graph.sparse import InputRows, Rows, SparseRows, StoredRows
from gnnexp.models.layer import BlockLayer, Destinations, Layer
from gnnexp.ops.backend import Drop
from gnnexp.ops.shortcuts import SplitDestinations

# Measured on a machine of 2 cores: float32 GEMM 195 GFLOP/s; gathered rows of an aggregation ~8 GB/s, so
# one gathered float costs as much as about 100 floating-point operations of a GEMM.
_FLOPS_PER_GATHERED_FLOAT = 100


def aggregates_first(layer: Layer, block: Block, h: InputRows) -> bool:
    """Whether summing raw rows and projecting the D sums is cheaper than projecting the S sources first.

    The backward pass counts too. Projected rows always take a gradient through the sums. Features take no gradient, so
    summing raw features first needs no backward pass of the sums.
    """
    if isinstance(h, SparseRows) or layer.traits.edge_projection is not None:
        return False
    trains = torch.is_grad_enabled()
    back = int(trains and h.requires_grad)
    gathered = block.num_edges * _FLOPS_PER_GATHERED_FLOAT
    projected = 2 * layer.in_dim * layer.width * (1 + trains + back)  # forward, the weight's gradient, the input's
    first = gathered * layer.in_dim * layer.num_weights * (1 + back) + block.num_dst * projected
    after = gathered * layer.width * (1 + trains) + block.num_src * projected
    return first < after


def destination_rows(block: Block, h: InputRows) -> Rows:
    """The destinations' rows, taken from the rows of the sources."""
    if isinstance(h, StoredRows):
        return h.rows(block.dst_places).to_dense()
    if isinstance(h, SparseRows):
        positions = block.dst_positions
        if positions is None:
            stop = int(h.indptr[block.num_dst])
            return SparseRows(h.indptr[: block.num_dst + 1], h.columns[:stop], h.values[:stop], h.num_columns)
        return h.rows(positions)
    return h[: block.num_dst] if block.dst_positions is None else h[block.dst_positions]


def can_sum_stored_rows(layer: Layer | BlockLayer) -> bool:
    """Whether the layer can sum raw rows where they are stored: by weights that need no rows, one for each edge."""
    return (
        isinstance(layer, Layer)
        and layer.traits.kind == "static"
        and layer.num_weights == 1
        and layer.traits.edge_projection is None
        and not layer.traits.weight_dropout
        and type(layer).aggregate is Layer.aggregate
    )


def preactivated_rows(layer: Layer, block: Block, h: InputRows, drop: Drop | None) -> Tensor:
    """`[D, out]`: run the layer up to its activation.

    Args:
        layer: a contract layer.
        block: the hop's edges, complete for every destination.
        h: `[S, Din]` rows of the sources, after dropout.
        drop: attention dropout, or None.
    """
    first = aggregates_first(layer, block, h)
    if isinstance(h, StoredRows) and not first:
        h = h.to_dense()
    if layer.traits.mixed_and_biased is not None and first and not isinstance(h, SparseRows):
        weight, _ = edge_weights(layer, block, None)
        return preactivated_from_sums(layer, block, *_sums_and_own(layer, block, h, weight))
    return layer.preactivation(mixed_rows(layer, block, h, drop))


def has_constant_sums(layer: Layer, block: Block) -> bool:
    """Whether sums of raw rows use no learned or dropped weights. Then they can be kept for the backward pass."""
    if layer.traits.kind != "static" or layer.traits.weight_dropout or layer.num_weights != 1:
        return False
    with torch.enable_grad():
        parts = layer.edge_weight(block, None, None)
    return not any(part is not None and part.requires_grad for part in parts)


def constant_sums(layer: Layer, block: Block, h: Tensor) -> Tensor:
    """`[D, Din]`: weighted sums of raw source rows, for a layer with constant sums."""
    weight, _ = edge_weights(layer, block, None)
    return layer.aggregate(block, h, weight)


def _sums_and_own(layer: Layer, block: Block, h: Tensor | StoredRows, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """`[D, Din]` weighted sums of raw source rows, and the raw rows of the destinations."""
    if isinstance(h, Tensor):
        whole, own = whole_and_own(block, h)
        return layer.aggregate(block, whole, weight), own
    return layer.backend.sums.aggregate_stored(block, h, weight, layer.source_weight(block) if weight is None else None)


def constant_sums_back(layer: Layer, block: Block, gradient: Tensor) -> Tensor:
    """`[S, Din]`: the transpose of `constant_sums`; not differentiable."""
    weight, _ = edge_weights(layer, block, None)
    return layer.aggregate_back(block, gradient, weight)


def has_constant_mix(layer: Layer, block: Block) -> bool:
    """Whether sums may be mixed with own rows before they are kept: `mix` scales and adds rows, without parameters.

    The gradient of a factor that is learned (GIN's eps) needs the own rows, and not only their sum.
    """
    if not layer.traits.mixes_rows:
        return False
    rows = torch.zeros(block.num_dst, 1, dtype=layer.dtype, device=block.dst_ids.device)
    with torch.enable_grad():
        return not mixed_sums(layer, block, rows, rows).requires_grad


def mixed_sums(layer: Layer, block: Block, sums: Tensor, own: Tensor) -> Tensor:
    """`[D, d]`: `mix` of any columns of sums and of the destinations' rows, for a layer with `mixes_rows`."""
    _, mass = edge_weights(layer, block, None)
    return layer.mix(Destinations.of(block, mass), sums, own if layer.traits.self_is_neighbour else None)


def constant_mix_back(layer: Layer, block: Block, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
    """`([D, d] gradient of sums, [D, d] of own rows or None)`: the transpose of `mixed_sums`; not differentiable.

    It takes no rows, because the mix is linear and has no parameters.
    """
    sums, own = gradient.detach().requires_grad_(), gradient.detach().requires_grad_()  # any values would do
    with torch.enable_grad():
        mixed = mixed_sums(layer, block, sums, own)
    if not layer.traits.self_is_neighbour:
        return torch.autograd.grad(mixed, sums, gradient)[0], None
    of_sums, of_own = torch.autograd.grad(mixed, (sums, own), gradient)
    return of_sums, of_own


def preactivated_from_sums(layer: Layer, block: Block, sums: Tensor, own: Tensor) -> Tensor:
    """`preactivated_rows` from `constant_sums` and the destinations' raw rows `[D, Din]`."""
    if layer.traits.mixed_and_biased is not None:
        mixed = layer.traits.mixed_and_biased(layer, Destinations.of(block), sums, own)
        return mixed if layer.norm is None else layer.norm(mixed)
    _, mass = edge_weights(layer, block, None)
    return layer.preactivation(_mixed_from_sums(layer, block, sums, own, mass))


def preactivated_from_projected_sums(layer: Layer, block: Block, sums: Tensor, own: Tensor | None) -> Tensor:
    """`preactivated_rows` from sums `[D, C]` of projected rows and the self part `[D, C]`, for constant sums.

    With `self_is_neighbour` the self part is the destinations' neighbour projection.
    """
    _, mass = edge_weights(layer, block, None)
    return layer.preactivation(layer.mix(Destinations.of(block, mass), sums, own))


def _mixed_from_sums(layer: Layer, block: Block, sums: Tensor, own: Rows, mass: Tensor | None) -> Tensor:
    """`[D, C]`: `mix` of sums of raw rows and the destinations' raw rows, divided by the mass if there is one."""
    dst = Destinations.of(block, mass)
    if layer.traits.mixes_rows and isinstance(own, Tensor):
        return layer.project_aggregated(layer.mix(dst, sums, own if layer.traits.self_is_neighbour else None))
    own_part = layer.project(own) if layer.traits.self_is_neighbour else layer.project_self(own)
    return layer.mix(dst, layer.project_aggregated(sums), own_part)


def mixed_rows(layer: Layer, block: Block, h: InputRows, drop: Drop | None) -> Tensor:
    """`[D, C]`: run the layer up to *finish*, stage by stage. Arguments are those of `preactivated_rows`."""
    first = aggregates_first(layer, block, h)
    if first and layer.traits.kind == "static":
        weight, mass = edge_weights(layer, block, None)
        assert not isinstance(h, SparseRows), "sparse rows are projected first"
        sums, own_sums = _sums_and_own(layer, block, h, layer.drop_weights(block, weight, drop))
        return _mixed_from_sums(layer, block, sums, own_sums, mass)
    assert not isinstance(h, StoredRows), "rows that are not summed first have been read"
    own_rows: Rows
    if isinstance(h, Tensor):
        h, own_rows = whole_and_own(block, h)
    else:
        own_rows = destination_rows(block, h)
    projected = None if first else layer.project(h)
    own_projected = None
    if projected is not None and layer.traits.self_is_neighbour:
        projected, own_projected = whole_and_own(block, projected)
    aggregated, mass = _aggregated(layer, block, h, projected, _keys(layer, block, h, projected), drop)
    if not layer.traits.self_is_neighbour:
        own = layer.project_self(own_rows)
    else:
        own = layer.project(own_rows) if own_projected is None else own_projected
    return layer.mix(Destinations.of(block, mass), aggregated, own)


def mixed_from_projected(
    layer: Layer,
    block: Block,
    projected: Tensor,
    own: Tensor | None,
    drop: Drop | None,
    keys: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """`mixed_rows` from projected rows.

    Args:
        layer: a contract layer.
        block: the hop's edges, complete for every destination.
        projected: `[S, C]` rows of the sources.
        own: `[D, C]` self part of the destinations; None for a layer without one, or with `self_is_neighbour`.
        drop: attention dropout, or None.
        keys: `([S, K], [D, K])`; None for a layer without keys, or with `keys_of_projected`.
    """
    if layer.traits.self_is_neighbour:
        projected, own = whole_and_own(block, projected)
    if keys is None:
        keys = _keys(layer, block, projected, projected)
    aggregated, mass = _aggregated(layer, block, projected, projected, keys, drop)
    return layer.mix(Destinations.of(block, mass), aggregated, own)


def whole_and_own(block: Block, rows: Tensor) -> tuple[Tensor, Tensor]:
    """All rows `[S, d]`, and the rows of the destinations `[D, d]`."""
    return SplitDestinations.run(rows, block.dst_places)


def _aggregated(
    layer: Layer,
    block: Block,
    h: Rows,
    projected: Tensor | None,
    keys: tuple[Tensor, Tensor] | None,
    drop: Drop | None,
) -> tuple[Tensor, Tensor | None]:
    """`([D, C], mass [D, K] or None)`; a fused kernel has divided by the mass, so the mass is None."""
    if keys is not None and can_fuse_attention(layer, block):
        rows = h if projected is None else projected
        attend = layer.traits.attend
        assert attend is not None, "see can_fuse_attention"
        return attend(layer, block, rows, keys, drop, projected=projected is not None), None
    weight, mass = edge_weights(layer, block, keys)
    weight = layer.drop_weights(block, weight, drop)
    if projected is not None:
        return layer.aggregate_projected(block, projected, weight), mass
    assert isinstance(h, Tensor)
    return layer.sum_projected(block, h, weight), mass


def _keys(layer: Layer, block: Block, h: Rows, projected: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """`([S, K], [D, K])` keys of sources and destinations."""
    if layer.traits.kind != "projected":
        return None
    keys = layer.keys(h) if projected is None else (layer.keys_of_projected(projected) or layer.keys(h))
    assert keys is not None, "a layer with projected weights has keys"
    dst_key = destination_rows(block, keys[1])
    assert isinstance(dst_key, Tensor)
    return keys[0], dst_key


def can_fuse_attention(layer: Layer, block: Block) -> bool:
    """Whether one kernel scores, weighs and drops. If edges have factors, the layer must multiply with them."""
    if layer.traits.attend is None or layer.traits.attend_takes_factors:
        return layer.traits.attend is not None
    return block.scale is None and (block.weight is None or not layer.takes_weights)


def edge_weights(layer: Layer, block: Block, keys: tuple[Tensor, Tensor] | None) -> tuple[Tensor | None, Tensor | None]:
    """`(weight [E, K], mass [D, K])` stage by stage, as distributed paradigms run it, with a local peak.

    Weights include the factors of the block's edges. Masses do not include the block's scale.
    """
    if keys is None and layer.traits.kind != "learned":
        return _static_weights(layer, block)
    score = peak = None
    if keys is not None:
        score = layer.edge_score(block, *keys)
        assert score is not None
        peak = layer.backend.edges.max(block, score)
    weight, mass = layer.edge_weight(block, score, peak)
    return with_factors(layer, block, weight), mass


def with_factors(layer: Layer, block: Block, weight: Tensor | None) -> Tensor | None:
    """The layer's `weight` `[E, K]`, multiplied with the weights and the scale of the block's edges."""
    factors = message_factors(layer, block)
    if factors is None:
        return weight
    if weight is not None:
        return weight * factors
    source = layer.source_weight(block)
    return factors if source is None else factors * source[block.sources.long()].unsqueeze(1)


def message_factors(layer: Layer, block: Block) -> Tensor | None:
    """`[E, 1]`: weights times scale of the block's edges; None if a layer takes none of them. They take no gradient."""
    factors = [values for values in (block.weight if layer.takes_weights else None, block.scale) if values is not None]
    return math.prod(factors[1:], start=factors[0]).to(layer.dtype).unsqueeze(1) if factors else None


def _static_weights(layer: Layer, block: Block) -> tuple[Tensor | None, Tensor | None]:
    """Weights that depend only on the block. They are kept: full-graph training uses them in every epoch."""
    known = layer.backend.constants.get(block, {})
    kept: tuple[Tensor | None, Tensor | None] | None = known.get(layer.weights_key) if known else None
    if kept is not None:
        return kept
    weight, mass = layer.edge_weight(block, None, None)
    weights = with_factors(layer, block, weight), mass
    parts = [part for part in weights if part is not None]  # ones need no memory
    if parts and not any(part.requires_grad for part in parts):
        layer.backend.constants.setdefault(block, {})[layer.weights_key] = weights
    return weights


def normalised_weights(
    layer: Layer, block: Block, keys: tuple[Tensor, Tensor] | None, drop: Drop | None
) -> Tensor | None:
    """`[E, K]` weights after dropout, divided by their mass if there is one; None for ones."""
    if keys is not None and can_fuse_attention(layer, block):
        attention = layer.traits.attention
        assert attention is not None, "a layer with `attend` has it"
        return attention(layer, block, keys, drop)
    weight, mass = edge_weights(layer, block, keys)
    weight = layer.drop_weights(block, weight, drop)
    if weight is None or mass is None:
        return weight
    lengths = block.indptr[1:] - block.indptr[:-1]
    return weight / torch.repeat_interleave(mass, lengths, dim=0, output_size=block.num_edges)
