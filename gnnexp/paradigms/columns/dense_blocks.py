"""Dense updates by blocks of own rows: a block's rows are split into columns while the next block is computed.

NeutronTP splits the rows that a chunk is the first to read while another chunk is computed (section 4.2.2). Without
locality, chunk 0 reads nearly all rows, so this split can hide behind nothing (`rows_first_read` in the record). Blocks
hide it behind the dense updates before it, and backward hides the mirrored gather behind theirs.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.tensor_split import ColumnLayout, even_bounds, to_columns, to_rows
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.models.decoupled import Keys
from gnnexp.ops.first_order import FirstOrderFunction
from gnnexp.paradigms.columns.propagation import Pipeline

# Dense updates of a range of this rank's rows, differentiable in parameters and trained features.
Updates = Callable[[slice], tuple[Tensor, Keys | None]]


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Rows whose dense updates all ranks make at the same time.

    Attributes:
        own: range of this rank's rows; it may be empty.
        ids: `[m]` ids of the rows of all ranks, by rank.
        layout: shares of the ranks.
    """

    own: slice
    ids: Tensor
    layout: ColumnLayout


def row_blocks(
    owner: Tensor, count: int, bounds: Sequence[int], rank: int, device: torch.device
) -> tuple[RowBlock, ...]:
    """`count` blocks, each with an even share of every rank's rows.

    Args:
        owner: `[V]` rank that finishes each vertex.
        count: number of blocks.
        bounds: `[N + 1]` bounds of the ranks' columns.
        rank: this rank.
        device: where ids are needed.
    """
    rows = [torch.nonzero(owner == other).flatten() for other in range(len(bounds) - 1)]
    cuts = [even_bounds(ids.numel(), count) for ids in rows]
    return tuple(
        RowBlock(
            slice(cuts[rank][number], cuts[rank][number + 1]),
            torch.cat([ids[cut[number] : cut[number + 1]] for ids, cut in zip(rows, cuts, strict=True)]).to(device),
            ColumnLayout([cut[number + 1] - cut[number] for cut in cuts], bounds, rank),
        )
        for number in range(count)
    )


def rows_between(features: Rows, part: slice) -> Rows:
    """Rows of a range."""
    if isinstance(features, SparseRows):
        return features.rows(torch.arange(part.start, part.stop, device=features.device))
    return features[part]


def dense_columns(updates: Updates, blocks: Sequence[RowBlock], pipe: Pipeline) -> tuple[Tensor, Keys | None]:
    """`([V, width], keys)`: this rank's columns of all ranks' dense updates, and the keys `[n, K]` of its own rows."""
    anchor = torch.zeros((), requires_grad=torch.is_grad_enabled())
    x, *keys = _DenseColumns.apply(anchor, updates, blocks, pipe)  # type: ignore[no-untyped-call]
    return x, (keys[0], keys[1]) if keys else None


class _DenseColumns(FirstOrderFunction):
    @staticmethod
    def forward(
        ctx: Any, _: Tensor, updates: Updates, blocks: Sequence[RowBlock], pipe: Pipeline
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # keys that are not trained get no gradient, and not zeros
        computed, splits = [], []
        for block in blocks:
            with torch.set_grad_enabled(ctx.needs_input_grad[0]):
                rows, keys = updates(block.own)
            computed.append((rows, *(keys or ())))
            splits.append(pipe.background.start(partial(_split, rows.detach(), block.layout, pipe)))
        first = computed[0][0]
        x = first.new_empty(pipe.chunks[-1].last, blocks[0].layout.width)
        for block, pending in zip(blocks, splits, strict=True):
            x[block.ids] = pending.result()
        ctx.rest = computed, blocks, pipe
        return x, *(torch.cat([part.detach() for part in parts]) for parts in list(zip(*computed, strict=True))[1:])

    @staticmethod
    def backward(ctx: Any, of_x: Tensor | None, *of_keys: Tensor | None) -> tuple[None, ...]:
        computed, blocks, pipe = ctx.rest
        assert of_x is not None, "all rows are propagated"
        gathers = [pipe.background.start(partial(_gather, of_x[block.ids], block.layout, pipe)) for block in blocks]
        for block, parts, pending in zip(blocks, computed, gathers, strict=True):
            own = [None if gradient is None else gradient[block.own] for gradient in of_keys]
            wanted = [
                (part, gradient)
                for part, gradient in zip(parts, (pending.result(), *own), strict=True)
                if gradient is not None and part.requires_grad
            ]
            if wanted:
                torch.autograd.backward([part for part, _ in wanted], [gradient for _, gradient in wanted])
        return None, None, None, None


def _split(rows: Tensor, layout: ColumnLayout, pipe: Pipeline) -> Tensor:
    return to_columns(rows, layout, pipe.comm, "activations")


def _gather(columns: Tensor, layout: ColumnLayout, pipe: Pipeline) -> Tensor:
    return to_rows(columns, layout, pipe.comm, "activations")
