"""A layer of an edge-cut whose owners project rows before they send them (`paradigm.rows`).

1. The rank projects its rows: those that it owns, and those that it holds of other ranks.
2. Projected rows and source keys of other ranks arrive. In backward, their gradients go home.
3. The rank scores, weighs and sums its edges. Self parts, destination keys and skip connections never travel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.sparse import Rows
from gnnexp.kernels.counter import Purpose
from gnnexp.models.decoupled import contract_layer
from gnnexp.models.layer import Layer
from gnnexp.models.local import destination_rows, mixed_from_projected
from gnnexp.models.model import Exchange, Model
from gnnexp.paradigms.loops.local_chunks import OwnedWork

# Runs a layer: `(index, block, work, rows [S, C + B], own parts [D, o])` to `[D, out]`, see `LocalChunks.in_pieces`.
InPieces = Callable[[int, Block, OwnedWork, Tensor, Tensor | None], Tensor]


def in_one_piece(index: int, block: Block, work: OwnedWork, rows: Tensor, own: Tensor | None) -> Tensor:
    """Run the layer without chunks."""
    return work(block, rows, own)


def run_projected(
    model: Model,
    index: int,
    block: Block,
    h: Rows,
    key: BatchKey,
    exchange: Exchange,
    in_pieces: InPieces = in_one_piece,
) -> Tensor:
    """`[D, out]`: what `Model.run_layer` returns.

    Args:
        model: a model that is set up.
        index: number of a contract layer, from 0.
        block: its edges, complete for every destination; destinations are the first sources.
        h: `[n, in]` rows of the sources on this rank, the first n.
        key: key of the dropout masks.
        exchange: `(index, [n, C + B])` to `[S, C + B]`, the projected rows of all sources.
        in_pieces: runs the layer, in chunks or in one piece.
    """
    layer = contract_layer(model, index)
    dropped = model.drop_input(index, block.src_ids[: h.shape[0]], h, key)
    rows, own = _starts(layer, dropped, destination_rows(block, dropped))
    arrived = exchange(index, rows)
    assert isinstance(arrived, Tensor)

    def work(block: Block, rows: Tensor, own: Tensor | None) -> Tensor:
        return _preactivated(model, index, block, rows, own, key)

    out = in_pieces(index, block, work, arrived, own)
    residual = layer.residual_part(destination_rows(block, h))
    return model.finish_layer(index, block.dst_ids, out, residual)


def _starts(layer: Layer, dropped: Rows, own_rows: Rows) -> tuple[Tensor, Tensor | None]:
    """`([n, C + B] projected rows and source keys, [D, o] self parts and destination keys or None)`."""
    projected = layer.project(dropped)
    self_ = None if layer.traits.self_is_neighbour else layer.project_self(own_rows)
    if layer.traits.kind != "projected":
        return projected, self_
    keys = layer.keys_of_projected(projected) or layer.keys(dropped)
    assert keys is not None, "a layer with projected weights has keys"
    of_destinations = keys[1][: own_rows.shape[0]]
    own = of_destinations if self_ is None else torch.cat((self_, of_destinations), 1)
    return torch.cat((projected, keys[0]), 1), own


def _preactivated(model: Model, index: int, block: Block, rows: Tensor, own: Tensor | None, key: BatchKey) -> Tensor:
    """`[D, out]`: the layer up to its activation, from the parts of `_starts` for all sources of a block."""
    layer, keys, self_ = contract_layer(model, index), None, own
    drop = model.drop(Purpose.ATTENTION_DROPOUT, index, layer.traits.weight_dropout, key)
    if layer.traits.kind == "projected":
        assert own is not None
        rows, source = (part.contiguous() for part in rows.split_with_sizes([layer.width, layer.num_weights], 1))
        split = own.shape[1] - layer.num_weights
        self_, keys = own[:, :split] if split else None, (source, own[:, split:].contiguous())
    return layer.preactivation(mixed_from_projected(layer, block, rows, self_, drop, keys))
