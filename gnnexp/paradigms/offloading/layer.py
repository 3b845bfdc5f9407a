"""One layer of offloaded training on one chunk: forward, and again in backward (HongTu, section 4.2).

The layer takes the rows that its chunks read (`start.py`), and makes the rows that chunks of the next layer will read.
It makes the row of each vertex once.

With kept sums (the paper's hybrid), backward runs the row-local rest of the layer again, and the transposed
aggregation, which needs no rows. If the layer adds own rows to the sums, by constant factors (GCN's self loop), sums
are kept after that, and backward brings no own rows. Otherwise backward runs the whole layer again from the rows that
it read.
"""

# ruff: noqa: ANN401  autograd's contexts have no types
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey, Block
from gnnexp.kernels.counter import Purpose
from gnnexp.models.local import (
    constant_mix_back,
    constant_sums,
    constant_sums_back,
    destination_rows,
    mixed_from_projected,
    mixed_sums,
    preactivated_from_projected_sums,
    preactivated_from_sums,
)
from gnnexp.models.model import Model
from gnnexp.ops.first_order import FirstOrderFunction
from gnnexp.ops.shortcuts import add_at
from gnnexp.paradigms.offloading.start import LayerStart, StartRows, ends_with_own_rows


@dataclass(frozen=True)
class OffloadLayer:
    """A layer on chunks whose source rows are in a buffer.

    Attributes:
        start: start of this layer, which makes the rows that its chunks read.
        keeps_sums: whether aggregated rows are kept; only for layers with constant sums.
        mixes: whether sums are kept after `Layer.mix`, so that own rows are a part of them; only for layers whose mix
            is constant (`local.has_constant_mix`).
        following: start of the next layer; None after the last layer.
    """

    start: LayerStart
    keeps_sums: bool
    mixes: bool
    following: LayerStart | None

    @property
    def reads_own_rows(self) -> bool:
        """Whether the end of the layer needs the destinations' rows, see `ends_with_own_rows`."""
        return ends_with_own_rows(self.start.layer, self.start.index, projects=self.start.projects, mixes=self.mixes)

    def forward(
        self, block: Block, rows: Tensor, own: Tensor | None, key: BatchKey | None
    ) -> tuple[StartRows, Tensor | None]:
        """Run the layer: `(rows of D vertices for the next layer, sums [D, d] or None)`.

        Args:
            block: block of the chunk.
            rows: `[S, d]` rows of its sources.
            own: `[D, o]` values of its destinations, see `StartRows.own`.
            key: key of the epoch's dropout.
        """
        if not self.keeps_sums:
            return self._from_rows(block, *self.start.split_rows(rows), own, key), None
        sums = constant_sums(self.start.contract, block, self._taken(block.src_ids, rows, key))
        if self.mixes:
            sums = mixed_sums(self.start.contract, block, sums, self._own_taken(block, rows, key))
        read = destination_rows(block, rows) if self.reads_own_rows else None
        assert read is None or isinstance(read, Tensor)
        return self.from_sums(block, sums, read, own, key), sums

    def from_sums(
        self, block: Block, sums: Tensor, read: Tensor | None, own: Tensor | None, key: BatchKey | None
    ) -> StartRows:
        """The rows of `forward`, from kept sums. `read`: `[D, d]` destinations' rows if `reads_own_rows`."""
        layer, projects = self.start.contract, self.start.projects
        self_, _, skip = self.start.split_own(own) if projects else (None, None, None)
        if not projects and layer.residual:
            undropped = read if own is None else own
            assert undropped is not None, "see `ends_with_own_rows`"
            skip = layer.residual_part(undropped)
        if self.mixes:
            pre = layer.preactivation(sums if projects else layer.project_aggregated(sums))
        elif projects:
            own_part = read if layer.traits.self_is_neighbour else self_
            pre = preactivated_from_projected_sums(layer, block, sums, own_part)
        else:
            assert read is not None, "see `ends_with_own_rows`"
            pre = preactivated_from_sums(layer, block, sums, self._taken(block.dst_ids, read, key))
        return self._handed_on(block, pre, skip, key)

    def backward(
        self,
        block: Block,
        rows: Tensor,
        own: Tensor | None,
        key: BatchKey | None,
        gradient: StartRows,
        into: Tensor | None,
    ) -> Tensor | None:
        """Run the layer again, forward and backward. Returns the gradient of `own`; other gradients are added up.

        Args:
            block: block of the chunk.
            rows: `[S, d]`, as in `forward`.
            own: `[D, o]`, as in `forward`.
            key: as in `forward`.
            gradient: gradient of the rows that `forward` returned.
            into: `[S, d]` sums of the rows' gradients, in the device tier; None: the rows take no gradient.
        """
        if own is not None:
            own.requires_grad_()
        with torch.enable_grad():
            taken, source_key = self.start.split_rows(rows)
            if into is not None:
                sink, key_sink = self.start.split_rows(into)
                taken = added_into(taken, sink)
                if source_key is not None and key_sink is not None:
                    source_key = added_into(source_key, key_sink)
            out = self._from_rows(block, taken, source_key, own, key)
        backward_through(out, gradient)
        return None if own is None else own.grad

    def backward_from_sums(
        self,
        block: Block,
        sums: Tensor,
        read: Tensor | None,
        own: Tensor | None,
        key: BatchKey | None,
        gradient: StartRows,
        into: Tensor | None,
    ) -> Tensor | None:
        """Run the row-local rest again, then the transposed aggregation. Arguments as in `from_sums` and `backward`."""
        for rows in (sums, read, own):
            if rows is not None:
                rows.requires_grad_(into is not None)
        with torch.enable_grad():
            out = self.from_sums(block, sums, read, own, key)
        backward_through(out, gradient)
        if into is not None:
            assert sums.grad is not None, "rows that take a gradient give one to their sums"
            of_sums, of_read = sums.grad, None if read is None else read.grad
            if self.mixes:
                of_sums, of_read = constant_mix_back(self.start.contract, block, of_sums)
            into += constant_sums_back(self.start.contract, block, of_sums)
            if of_read is not None:
                assert block.dst_positions is not None
                add_at(into, block.dst_positions, of_read)
        return None if own is None else own.grad

    # --- from start to end -----------------------------------------------------------------------------------------
    @property
    def _model(self) -> Model:
        return self.start.model

    def _own_taken(self, block: Block, rows: Tensor, key: BatchKey | None) -> Tensor:
        """`[D, d]`: `_taken` for destinations. Dropout is drawn again: all sources' rows after it are gone by then."""
        own = destination_rows(block, rows)
        assert isinstance(own, Tensor)
        return self._taken(block.dst_ids, own, key)

    def _from_rows(
        self, block: Block, rows: Tensor, source_key: Tensor | None, own: Tensor | None, key: BatchKey | None
    ) -> StartRows:
        index, layer, taken = self.start.index, self.start.layer, self._taken(block.src_ids, rows, key)
        if self.start.projects:
            layer = self.start.contract
            drop = self._model.drop(Purpose.ATTENTION_DROPOUT, index, layer.traits.weight_dropout, key)
            self_, own_key, skip = self.start.split_own(own)
            keys = None if source_key is None or own_key is None else (source_key, own_key)
            pre = layer.preactivation(mixed_from_projected(layer, block, taken, self_, drop, keys))
        else:
            pre, skip = self._model.preactivated(index, block, taken, key), None
            if layer.residual:
                skip = self.start.contract.residual_part(destination_rows(block, rows) if own is None else own)
        return self._handed_on(block, pre, skip, key)

    def _taken(self, ids: Tensor, rows: Tensor, key: BatchKey | None) -> Tensor:
        """Source rows after the layer's dropout. Only raw features are read before dropout."""
        if self.start.index or self.start.projects:
            return rows
        dropped = self._model.drop_input(0, ids, rows, key)
        assert isinstance(dropped, Tensor)
        return dropped

    def _handed_on(self, block: Block, pre: Tensor, skip: Tensor | None, key: BatchKey | None) -> StartRows:
        out = self._model.finish_layer(self.start.index, block.dst_ids, pre, skip)
        return StartRows(out, None) if self.following is None else self.following.of(block.dst_ids, out, key)


def backward_through(out: StartRows, gradient: StartRows) -> None:
    """Run backward from rows of a layer start. Parts that do not require gradients are left out."""
    pairs: Iterable[tuple[Tensor | None, Tensor | None]] = zip(out, gradient, strict=True)
    wanted = [(part, given) for part, given in pairs if part is not None and given is not None and part.requires_grad]
    torch.autograd.backward([part for part, _ in wanted], [given for _, given in wanted])


def added_into(rows: Tensor, sink: Tensor) -> Tensor:
    """`rows` `[n, d]`. Backward adds their gradient to `sink` `[n, d]`, which may be a slice of columns."""
    anchor = torch.zeros((), requires_grad=True)
    out: Tensor = _AddedInto.apply(anchor, rows, sink)  # type: ignore[no-untyped-call]
    return out


class _AddedInto(FirstOrderFunction):
    @staticmethod
    def forward(ctx: Any, _: Tensor, rows: Tensor, sink: Tensor) -> Tensor:
        ctx.sink = sink
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        ctx.sink.add_(gradient)
        return None, None, None
