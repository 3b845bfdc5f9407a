"""What the host keeps of a rank's vertices between visits of chunks, layer by layer (HongTu, Figure 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from gnnexp.paradigms.offloading.start import Widths
from gnnexp.tiers.host_tier import HostTier


@dataclass(frozen=True)
class RowWidths:
    """Columns of what the host keeps of one layer; 0: nothing.

    Attributes:
        read: what chunks read.
        sums: kept sums.
        gradients: whether what is read takes any; features do not, where they are read as they are.
    """

    read: Widths
    sums: int
    gradients: bool


@dataclass(frozen=True, eq=False)
class LayerRows:
    """Rows of one layer; n vertices of the rank.

    Attributes:
        rows: `[n, d]` what chunks read of every source.
        own: `[n, o]` what they read of their destinations beside, or None.
        sums: `[n, s]` kept sums, or None.
        gradients: `[n, d]` of `rows`, or None.
        own_gradients: `[n, o]` of `own`, or None.
    """

    rows: Tensor
    own: Tensor | None = None
    sums: Tensor | None = None
    gradients: Tensor | None = None
    own_gradients: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """Those that there are."""
        return [rows for field in fields(self) if (rows := getattr(self, field.name)) is not None]


@dataclass(frozen=True)
class SlotPlan:
    """Where it all goes: columns of each slot, and per layer the slot of each field of `LayerRows`; features first.

    Gradients are written when the layer above is done with: a slot of equal width there makes room for them.
    """

    columns: tuple[int, ...]
    of_layers: tuple[dict[str, int], ...]

    @staticmethod
    def of(layers: Sequence[RowWidths], num_features: int) -> SlotPlan:
        """For all layers."""
        columns, found = [num_features], list[dict[str, int]]()
        for here in reversed(layers):
            placed = {"rows": 0} if not here.gradients else {}
            for field, width in (("rows", here.read.rows), ("own", here.read.own), ("sums", here.sums)):
                if width and field not in placed:
                    placed[field] = len(columns)
                    columns.append(width)
            free = sorted(set(found[-1].values()) - {found[-1].get("gradients"), found[-1].get("own_gradients")}
                          ) if found else []
            for field, width in (("gradients", here.read.rows), ("own_gradients", here.read.own)):
                if width and here.gradients:
                    reused = next((slot for slot in free if columns[slot] == width), None)
                    placed[field] = len(columns) if reused is None else reused
                    columns += [width] if reused is None else []
                    free = [slot for slot in free if slot != reused]
            found.append(placed)
        return SlotPlan(tuple(columns), tuple(found[::-1]))

    def num_bytes(self, count: int, itemsize: int) -> int:
        """Of `count` vertices."""
        return count * itemsize * sum(self.columns)

    def allocate(self, count: int, dtype: torch.dtype, host: HostTier) -> tuple[Tensor, list[LayerRows]]:
        """`(features [n, D], rows of every layer)` for `count` vertices."""
        slots = [host.rows(count, columns, dtype) for columns in self.columns]
        return slots[0], [LayerRows(**{field: slots[slot] for field, slot in placed.items()})
                          for placed in self.of_layers]
