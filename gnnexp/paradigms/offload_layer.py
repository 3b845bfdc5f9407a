"""One layer of offloaded training on one chunk: forward, and again in backward (HongTu, section 4.2).

What a layer hands on is what the next one reads: its rows after the next layer's dropout, so that a vertex that several
chunks read is dropped once; undropped rows where the next layer adds them to its output (a skip connection).

`sums`: the layer's aggregated raw rows are kept (the paper's hybrid); backward runs the row-local rest again, and the
transposed aggregation, which needs no rows. Otherwise backward runs the whole layer again from its inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey, Block
from gnnexp.models.layer import Layer
from gnnexp.models.local import (
    constant_sums,
    constant_sums_back,
    destination_rows,
    preactivated_from_sums,
)
from gnnexp.models.model import Model
from gnnexp.models.shortcuts import add_at


@dataclass(frozen=True)
class OffloadLayer:
    """Layer `index` of `model` on chunks whose source rows are in a buffer.

    Attributes:
        model: set up.
        index: which layer.
        keeps_sums: see above; only of layers with constant sums.
    """

    model: Model
    index: int
    keeps_sums: bool

    @property
    def reads_dropped(self) -> bool:
        """Whether its inputs have gone through its dropout already; features have not, nor what it adds undropped."""
        return self.index > 0 and not getattr(self.model.layers[self.index], "residual", False)

    def forward(self, block: Block, rows: Tensor, key: BatchKey | None) -> tuple[Tensor, Tensor | None]:
        """`([D, out], sums [D, Din] or None)` from the rows `[S, Din]` of a chunk's sources."""
        dropped = self._dropped(block.src_ids, rows, key)
        if not self.keeps_sums:
            pre = self.model.preactivated(self.index, block, dropped, key)
            return self._handed_on(block, pre, self._skipping(block, rows), key), None
        sums = constant_sums(self._layer, block, dropped)
        return self.from_sums(block, sums, _own(block, rows), key), sums

    def from_sums(self, block: Block, sums: Tensor, own: Tensor, key: BatchKey | None) -> Tensor:
        """`[D, out]` from kept sums and the destinations' inputs `[D, Din]`."""
        pre = preactivated_from_sums(self._layer, block, sums, self._dropped(block.dst_ids, own, key))
        return self._handed_on(block, pre, own, key)

    def backward(
        self, block: Block, rows: Tensor, key: BatchKey | None, gradient: Tensor, into: Tensor | None
    ) -> None:
        """Run again from the inputs; gradients are added to `into` `[S, Din]` (None: nobody wants them) and parameters.

        Args:
            block: of the chunk.
            rows: `[S, Din]`, as in forward.
            key: as in forward.
            gradient: `[D, out]` of what forward gave.
            into: in the device tier.
        """
        leaf, own = rows.detach(), self._skipping(block, rows)
        if into is not None:
            leaf.requires_grad_().grad = into
            if own is not None:
                own.requires_grad_()
        with torch.enable_grad():
            dropped = self._dropped(block.src_ids, leaf, key)
            pre = self.model.preactivated(self.index, block, dropped, key)
            out = self._handed_on(block, pre, own, key)
        torch.autograd.backward(out, gradient)
        if into is not None and own is not None and own.grad is not None:
            _add_own(block, into, own.grad)

    def backward_from_sums(
        self, block: Block, sums: Tensor, own: Tensor, key: BatchKey | None, gradient: Tensor, into: Tensor | None
    ) -> None:
        """Run the row-local rest again, and the transposed aggregation; arguments as in `from_sums` and `backward`."""
        own.requires_grad_(into is not None)
        sums.requires_grad_(into is not None)
        with torch.enable_grad():
            out = self.from_sums(block, sums, own, key)
        torch.autograd.backward(out, gradient)
        if into is None:
            return
        assert sums.grad is not None
        spread = constant_sums_back(self._layer, block, sums.grad)
        into += self._undropped(block.src_ids, spread, key)
        if own.grad is not None:
            _add_own(block, into, own.grad)

    # --- the ends of a layer ---------------------------------------------------------------------------------------
    @property
    def _layer(self) -> Layer:
        layer = self.model.layers[self.index]
        assert isinstance(layer, Layer)
        return layer

    def _skipping(self, block: Block, rows: Tensor) -> Tensor | None:
        """Rows of the destinations, where a skip connection adds them."""
        return _own(block, rows) if getattr(self.model.layers[self.index], "residual", False) else None

    def _dropped(self, ids: Tensor, rows: Tensor, key: BatchKey | None) -> Tensor:
        if self.reads_dropped:
            return rows
        dropped = self.model.drop_input(self.index, ids, rows, key)
        assert isinstance(dropped, Tensor)
        return dropped

    def _undropped(self, ids: Tensor, gradient: Tensor, key: BatchKey | None) -> Tensor:
        """The gradient before dropout, which is linear: its mask does not depend on the rows."""
        if self.reads_dropped or key is None:
            return gradient
        with torch.enable_grad():
            zeros = torch.zeros_like(gradient).requires_grad_()
            dropped = self._dropped(ids, zeros, key)
        return torch.autograd.grad(dropped, zeros, gradient)[0] if dropped is not zeros else gradient

    def _handed_on(self, block: Block, pre: Tensor, own: Tensor | None, key: BatchKey | None) -> Tensor:
        layer, after = self.model.layers[self.index], self.index + 1
        residual = layer.residual_part(own) if isinstance(layer, Layer) and own is not None else None
        out = self.model.finish_layer(self.index, pre, residual)
        if after == self.model.num_layers or not OffloadLayer(self.model, after, False).reads_dropped:
            return out
        dropped = self.model.drop_input(after, block.dst_ids, out, key)
        assert isinstance(dropped, Tensor)
        return dropped


def _add_own(block: Block, into: Tensor, gradient: Tensor) -> None:
    assert block.dst_positions is not None
    add_at(into, block.dst_positions, gradient)


def _own(block: Block, rows: Tensor) -> Tensor:
    own = destination_rows(block, rows)
    assert isinstance(own, Tensor)
    return own
