"""What chunks of a layer read of a vertex: made once, where the layer before ends, and handed on through host memory.

    raw         its rows after the layer's dropout; undropped beside, where a skip connection adds them
    projected   its neighbour projection and its key as a source; beside it, for the one chunk that computes the
                vertex: the layer's self part, its key as a destination, the skip's part

A vertex is read by several chunks (alpha of HongTu's Table 3): what is done here is not repeated in each of them, and
where a layer narrows, fewer columns cross and are summed (../shared/layer_contract.md: the order of projecting and
summing is free). Features as raw rows are what they are; as projected ones they take a sweep of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.models.model import Model

ReadRows = Literal["cheapest", "raw", "projected"]


class StartRows(NamedTuple):
    """Of some vertices.

    Attributes:
        rows: `[n, d]`, for every chunk with the vertex among its sources.
        own: `[n, o]`, for the chunk that computes it; None: nothing.
    """

    rows: Tensor
    own: Tensor | None


@dataclass(frozen=True)
class LayerStart:
    """The row-local start of layer `index`.

    Attributes:
        model: set up.
        index: which layer.
        projects: see above; only of contract layers.
    """

    model: Model
    index: int
    projects: bool

    def of(self, ids: Tensor, h: Tensor, key: BatchKey | None) -> StartRows:
        """From `h` `[n, Din]`, what the layer before gave of vertices `ids` (its preactivation, where that fuses)."""
        dropped = self.model.drop_input(self.index, ids, h, key)
        assert isinstance(dropped, Tensor)
        if not self.projects:
            return StartRows(dropped, h if self.index and self.layer.residual else None)
        parts = projected_parts(self.contract, dropped, h)
        rows = _joined(parts[:2])
        assert rows is not None
        return StartRows(rows, _joined(parts[2:]))

    @property
    def layer(self) -> Layer | BlockLayer:
        """What starts."""
        layer = self.model.layers[self.index]
        assert isinstance(layer, Layer | BlockLayer)
        return layer

    @property
    def contract(self) -> Layer:
        """The same, where only layers on the contract come."""
        assert isinstance(self.layer, Layer)
        return self.layer

    @cached_property
    def widths(self) -> Widths:
        """Columns of what is read."""
        return widths_of(self.layer, self.index, projects=self.projects)

    def split_rows(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """`(what is summed, source key)`: views."""
        summed, key = self.widths.summed, self.widths.source_key
        return (rows[:, :summed], rows[:, summed:]) if key else (rows, None)

    def split_own(self, own: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """`(self part, key, skip's part)` of projected rows' `own`."""
        if own is None:
            return None, None, None
        parts = torch.split(own, list(self.widths.own_parts), dim=1)
        self_, key, skip = (part if part.shape[1] else None for part in parts)
        return self_, key, skip


class Widths(NamedTuple):
    """Columns of what is read of a vertex: `rows` = `summed` + source keys."""

    summed: int
    source_key: int
    own_parts: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Of every source."""
        return self.summed + self.source_key

    @property
    def own(self) -> int:
        """Of every destination, beside."""
        return sum(self.own_parts)


def widths_of(layer: Layer | BlockLayer, index: int, *, projects: bool) -> Widths:
    """Of layer `index`."""
    if not projects:
        return Widths(layer.in_dim, 0, (layer.in_dim if index and layer.residual else 0,))
    assert isinstance(layer, Layer)
    dtype = next(layer.parameters()).dtype
    nothing = torch.zeros(0, layer.in_dim, dtype=dtype, device=next(layer.parameters()).device)
    with torch.no_grad():
        parts = projected_parts(layer, nothing, nothing)
    projected, source_key, *own = (0 if part is None else part.shape[1] for part in parts)
    return Widths(projected, source_key, tuple(own))


def projected_parts(layer: Layer, dropped: Tensor, raw: Tensor) -> tuple[Tensor | None, ...]:
    """`(projection [n, C], source key, self part, destination key, skip's part)`, each of them or None."""
    projected = layer.project(dropped)
    source_key = key = None
    if layer.kind == "projected":
        keys = layer.keys_of_projected(projected) or layer.keys(dropped)
        assert keys is not None, "a layer with projected weights has keys"
        source_key, key = keys
    self_ = None if layer.self_is_neighbour else layer.project_self(dropped)
    return projected, source_key, self_, key, layer.residual_part(raw)


def ends_with_own_rows(layer: Layer | BlockLayer, *, projects: bool) -> bool:
    """Whether the end of `layer`, run from sums, needs the destinations' rows too."""
    return not projects or (isinstance(layer, Layer) and layer.self_is_neighbour)


def projects_rows(layer: Layer | BlockLayer, index: int, rows: ReadRows, num_edges: int, num_vertices: int) -> bool:
    """Whether chunks read projected rows: asked for, or fewer floats are gathered per epoch.

    Raw rows are summed forward, and back where they take a gradient; projected ones always both ways, and features
    cross once more each way. Scores of edges take the projection anyway.
    """
    if rows != "cheapest" or not isinstance(layer, Layer):
        return rows == "projected"
    if layer.kind == "projected":
        return True
    raw = num_edges * layer.in_dim * (2 if index else 1)
    return 2 * num_edges * layer.width + (0 if index else 2 * num_vertices * layer.in_dim) < raw


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Side by side; alone as it is, without a copy."""
    found = [part for part in parts if part is not None]
    return torch.cat(found, 1) if len(found) > 1 else next(iter(found), None)
