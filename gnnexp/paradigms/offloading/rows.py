"""Rows that the host keeps of a rank's vertices, layer by layer (HongTu, Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gnnexp.paradigms.offloading.start import Widths
from gnnexp.tiers.host_tier import HostTier


@dataclass(frozen=True)
class RowWidths:
    """Numbers of columns that the host keeps of one layer; 0: nothing.

    Attributes:
        read: columns that chunks read.
        sums: columns of kept sums.
        gradients: whether the rows that chunks read take a gradient. Raw features take none.
    """

    read: Widths
    sums: int
    gradients: bool


@dataclass(frozen=True, eq=False)
class LayerRows:
    """Rows of one layer, for the n vertices of the rank.

    Attributes:
        rows: `[n, d]` rows that chunks read of every source.
        own: `[n, o]` additional rows that chunks read of their destinations, or None.
        sums: `[n, s]` kept sums, or None.
        gradients: `[n, d]` gradients of `rows`, or None.
        own_gradients: `[n, o]` gradients of `own`, or None.
    """

    rows: Tensor
    own: Tensor | None = None
    sums: Tensor | None = None
    gradients: Tensor | None = None
    own_gradients: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """All tensors that are not None."""
        return [rows for field in fields(self) if (rows := getattr(self, field.name)) is not None]


@dataclass(frozen=True)
class SlotPlan:
    """The arrays (slots) of all rows: columns of each slot, and for each layer the slot of each field of `LayerRows`.

    The first slot has the features; sparse ones are kept apart, and it has no columns. Gradients are written when the
    layer above is done. So they reuse a slot of that layer with the same width.
    """

    columns: tuple[int, ...]
    of_layers: tuple[dict[str, int], ...]

    @staticmethod
    def of(layers: Sequence[RowWidths], num_features: int) -> SlotPlan:
        """The slots for all layers."""
        columns, slots = [num_features], list[dict[str, int]]()
        for here in reversed(layers):
            placed = {"rows": 0} if not here.gradients else {}
            for field, width in (("rows", here.read.rows), ("own", here.read.own), ("sums", here.sums)):
                if width and field not in placed:
                    placed[field] = len(columns)
                    columns.append(width)
            free = (
                sorted(set(slots[-1].values()) - {slots[-1].get("gradients"), slots[-1].get("own_gradients")})
                if slots
                else []
            )
            for field, width in (("gradients", here.read.rows), ("own_gradients", here.read.own)):
                if width and here.gradients:
                    reused = next((slot for slot in free if columns[slot] == width), None)
                    placed[field] = len(columns) if reused is None else reused
                    columns += [width] if reused is None else []
                    free = [slot for slot in free if slot != reused]
            slots.append(placed)
        return SlotPlan(tuple(columns), tuple(slots[::-1]))

    def num_bytes(self, count: int, itemsize: int) -> int:
        """Bytes of all slots, for `count` vertices."""
        return count * itemsize * sum(self.columns)

    def allocate(self, count: int, dtype: torch.dtype, host: HostTier) -> tuple[Tensor, list[LayerRows]]:
        """`(features [n, D], rows of every layer)` for `count` vertices."""
        slots = [host.rows(count, columns, dtype) for columns in self.columns]
        return slots[0], [
            LayerRows(**{field: slots[slot] for field, slot in placed.items()}) for placed in self.of_layers
        ]
