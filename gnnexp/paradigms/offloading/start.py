"""Rows that chunks of a layer read of a vertex. They are made once, at the end of the layer before, and stored on the
host. There are two kinds:

- `raw`: the row after the layer's dropout. If a skip connection adds it, also the row before dropout.
- `projected`: the neighbour projection and the source key. The one chunk that computes the vertex also reads the self
  part, the destination key and the skip's part.

Several chunks read a vertex (alpha in HongTu's Table 3). So work that is done here is not repeated in each of them. If
a layer has fewer output columns than input columns, fewer columns cross and are summed. The order of projecting and
summing is free (`gnnexp.models.layer`). Raw features need no work; projected features need a sweep of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gnnexp.graph.block import BatchKey
from gnnexp.graph.sparse import Rows
from gnnexp.models.layer import BlockLayer, Layer
from gnnexp.models.model import Model

ReadRows = Literal["cheapest", "raw", "projected"]


class StartRows(NamedTuple):
    """Rows that a layer start makes for some vertices.

    Attributes:
        rows: `[n, d]`, read by every chunk that has the vertex as a source.
        own: `[n, o]`, read by the one chunk that computes the vertex, or None.
    """

    rows: Tensor
    own: Tensor | None


@dataclass(frozen=True)
class LayerStart:
    """The row-local start of layer `index`.

    Attributes:
        model: a model that is set up.
        index: number of the layer, from 0.
        projects: whether rows are projected; only for contract layers.
    """

    model: Model
    index: int
    projects: bool

    def of(self, ids: Tensor, h: Rows, key: BatchKey | None) -> StartRows:
        """The start for vertices `ids`, from outputs `h` `[n, Din]` of the layer before (preactivations if fused)."""
        dropped = self.model.drop_input(self.index, ids, h, key)
        if not self.projects:
            assert isinstance(dropped, Tensor) and isinstance(h, Tensor), "sparse features are projected"
            return StartRows(dropped, h if self.index and self.layer.residual else None)
        parts = projected_parts(self.contract, dropped, h)
        rows = _joined(parts[:2])
        assert rows is not None
        return StartRows(rows, _joined(parts[2:]))

    @property
    def layer(self) -> Layer | BlockLayer:
        """The layer."""
        return self.model.stack[self.index]

    @property
    def contract(self) -> Layer:
        """The layer, if it must be a contract layer."""
        assert isinstance(self.layer, Layer)
        return self.layer

    @cached_property
    def widths(self) -> Widths:
        """Columns that chunks read."""
        return widths_of(self.layer, self.index, projects=self.projects)

    def split_rows(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Views `(rows to be summed, source key)` of `rows`."""
        summed, key = self.widths.summed, self.widths.source_key
        return (rows[:, :summed], rows[:, summed:]) if key else (rows, None)

    def split_own(self, own: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """`(self part, destination key, skip's part)` from `own` of projected rows."""
        if own is None:
            return None, None, None
        parts = torch.split(own, list(self.widths.own_parts), dim=1)
        self_, key, skip = (part if part.shape[1] else None for part in parts)
        return self_, key, skip


class Widths(NamedTuple):
    """Numbers of columns that chunks read of a vertex."""

    summed: int
    source_key: int
    own_parts: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Columns that are read of every source: summed ones and source keys."""
        return self.summed + self.source_key

    @property
    def own(self) -> int:
        """Additional columns that are read of every destination."""
        return sum(self.own_parts)


def widths_of(layer: Layer | BlockLayer, index: int, *, projects: bool) -> Widths:
    """The columns of layer `index`."""
    if not projects:
        return Widths(layer.in_dim, 0, (layer.in_dim if index and layer.residual else 0,))
    assert isinstance(layer, Layer)
    dtype = next(layer.parameters()).dtype
    nothing = torch.zeros(0, layer.in_dim, dtype=dtype, device=next(layer.parameters()).device)
    with torch.no_grad():
        parts = projected_parts(layer, nothing, nothing)
    projected, source_key, *own = (0 if part is None else part.shape[1] for part in parts)
    return Widths(projected, source_key, tuple(own))


def projected_parts(layer: Layer, dropped: Rows, raw: Rows) -> tuple[Tensor | None, ...]:
    """`(projection [n, C], source key, self part, destination key, skip's part)`, each a tensor or None."""
    projected = layer.project(dropped)
    source_key = key = None
    if layer.traits.kind == "projected":
        keys = layer.keys_of_projected(projected) or layer.keys(dropped)
        assert keys is not None, "a layer with projected weights has keys"
        source_key, key = keys
    self_ = None if layer.traits.self_is_neighbour else layer.project_self(dropped)
    return projected, source_key, self_, key, layer.residual_part(raw)


def ends_with_own_rows(layer: Layer | BlockLayer, index: int, *, projects: bool, mixes: bool) -> bool:
    """Whether the end of layer `index`, run from kept sums, also needs the destinations' rows.

    Args:
        layer: the layer.
        index: its number, from 0.
        projects: whether its chunks read projected rows.
        mixes: whether own rows are a part of the kept sums. Then only a skip connection needs raw features.
    """
    if mixes:
        return layer.residual and index == 0 and not projects
    return not projects or (isinstance(layer, Layer) and layer.traits.self_is_neighbour)


def projects_rows(layer: Layer | BlockLayer, index: int, rows: ReadRows, num_edges: int, num_vertices: int) -> bool:
    """Whether chunks read projected rows: if chosen, or if an epoch gathers fewer floats with them.

    Raw rows are summed in forward, and in backward if they take a gradient. Projected rows are summed in both, and
    features then cross once more in each direction. Edge scores need the projection in any case.
    """
    if rows != "cheapest" or not isinstance(layer, Layer):
        return rows == "projected"
    if layer.traits.kind == "projected":
        return True
    raw = num_edges * layer.in_dim * (2 if index else 1)
    return 2 * num_edges * layer.width + (0 if index else 2 * num_vertices * layer.in_dim) < raw


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The tensors side by side. A single tensor is not copied."""
    found = [part for part in parts if part is not None]
    return torch.cat(found, 1) if len(found) > 1 else next(iter(found), None)
