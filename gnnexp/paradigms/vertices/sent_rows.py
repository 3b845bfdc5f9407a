"""Rows that ranks send before a layer of an edge-cut, and the layers whose rows are projected first.

- `raw`: the row after dropout, in_dim columns.
- `projected`: the neighbour projection (width columns) and the source key of attention (K columns).
- `cheapest`: for each layer, the kind that sends fewer bytes in forward and backward; raw rows if both are equal.

Gradients come home, unless raw rows are constant features. Projection and aggregation commute, see
`gnnexp.models.layer`. So both kinds give the same sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows
from gnnexp.models.layer import BlockLayer, Layer

SentRows = Literal["raw", "projected", "cheapest"]


@dataclass(frozen=True)
class FeatureRows:
    """What rows of layer 1 cost.

    Attributes:
        trained: whether features are trained. Then their gradients go home.
        mean_values: mean number of values of a sparse feature row; None: rows are dense.
    """

    trained: bool
    mean_values: float | None = None

    @staticmethod
    def of(graph: Graph) -> FeatureRows:
        """The inputs of a graph, from the number of its values. They are the same on all ranks."""
        features = graph.features
        if not isinstance(features, SparseRows):
            return FeatureRows(graph.trains_features)
        return FeatureRows(trained=False, mean_values=features.values.numel() / max(1, graph.num_nodes))


def projected_columns(layer: Layer) -> int:
    """Columns of a projected row: C, and K with attention."""
    return layer.width + (layer.num_weights if layer.traits.kind == "projected" else 0)


def sent_bytes(layer: Layer | BlockLayer, index: int, inputs: FeatureRows, itemsize: int, *, projects: bool) -> float:
    """Bytes of a foreign row of layer `index`, forward and backward; the mean for sparse features.

    Args:
        layer: the layer.
        index: its number, from 0.
        inputs: the features.
        itemsize: bytes of a value.
        projects: whether the row is sent projected.
    """
    if projects:
        assert isinstance(layer, Layer)
        return 2 * projected_columns(layer) * itemsize
    if index == 0 and inputs.mean_values is not None:  # a length, columns and values (`comm.rows.packed_bytes`)
        return 4 + inputs.mean_values * (4 + itemsize)
    return layer.in_dim * itemsize * (2 if index or inputs.trained else 1)


def sent_projected(
    layers: Sequence[Layer | BlockLayer], rows: SentRows, inputs: FeatureRows, itemsize: int
) -> tuple[bool, ...]:
    """For each layer, whether fetched rows come projected. It is the same on all ranks."""

    def projects(index: int, layer: Layer | BlockLayer) -> bool:
        if rows != "cheapest" or not isinstance(layer, Layer):
            return rows == "projected"
        raw, projected = (sent_bytes(layer, index, inputs, itemsize, projects=way) for way in (False, True))
        return projected < raw

    return tuple(projects(index, layer) for index, layer in enumerate(layers))
