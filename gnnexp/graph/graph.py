"""The graph: CSC topology in canonical order, features, labels and splits, as plain (possibly mapped) tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.graph.edges import count_parallel, count_sources, edge_destinations


@dataclass(frozen=True, eq=False)
class Splits:
    """Vertices for training, model selection and the final report: `[n]` int64 each, ascending, unique, disjoint."""

    train: Tensor
    val: Tensor
    test: Tensor


@dataclass(frozen=True, eq=False)
class Graph:
    """A directed multigraph, stored by destination (CSC): the in-edges of v are `indptr[v]:indptr[v + 1]`.

    Edges are in canonical order: sorted by (destination, source, type, occurrence). An undirected graph holds both
    directions.

    Attributes:
        indptr: `[V + 1]` int64.
        indices: `[E]` int32 (int64 from 2^31 vertices on), the source of each edge.
        features: `[V, D]` float32 dense (possibly memory-mapped) or sparse rows, or None. If trained rows replace the
            features (`config.seen`), they are on torch's `meta` device: their width is known, but they have no values.
        labels: None, or one of: `[V]` int64 classes, -1 for "no label"; `[V, C]` float32 in {0, 1} (multi-label), with
            rows of NaN for "no label"; `[V]` float32 or float64 real numbers, NaN for "no label".
        num_classes: C; 0 if labels are real numbers.
        splits: train, validation and test vertices.
        edge_types: `[E]` int32 or None.
        node_types: `[V]` int32 or None.
        edge_features: `[E, De]` float32 or None.
        edge_weights: `[E]` float32, finite, or None: layers multiply messages with them (docs/concepts/layer.md).
        links: positive and negative pairs of link prediction, `[n, 2]` int64 (or `[n, 3]` head, relation, tail), by
            name: `train`, `valid`, `valid_neg`, `test`, `test_neg`.
        name: name of the dataset.
        notes: facts that a user must know about this data (known gaps, a split by gnnexp, ...); printed and recorded.
    """

    indptr: Tensor
    indices: Tensor
    features: Tensor | SparseRows | None = None
    labels: Tensor | None = None
    num_classes: int = 0
    splits: Splits = field(default_factory=lambda: Splits(*(torch.empty(0, dtype=torch.int64),) * 3))
    edge_types: Tensor | None = None
    node_types: Tensor | None = None
    edge_features: Tensor | None = None
    edge_weights: Tensor | None = None
    links: Mapping[str, Tensor] = field(default_factory=dict)
    name: str = "graph"
    notes: tuple[str, ...] = ()

    @property
    def num_nodes(self) -> int:
        """V, the number of vertices."""
        return int(self.indptr.numel()) - 1

    @property
    def num_edges(self) -> int:
        """E, the number of directed edges."""
        return int(self.indices.numel())

    @property
    def topology_bytes(self) -> int:
        """Bytes of `indptr`, `indices`, edge types and weights."""
        arrays = (self.indptr, self.indices, self.edge_types, self.edge_weights)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def num_features(self) -> int:
        """D, or 0 without features."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def trains_features(self) -> bool:
        """Whether trained rows replace the features."""
        return isinstance(self.features, Tensor) and self.features.is_meta

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have several labels at once."""
        return self.labels is not None and self.labels.dim() == 2

    @property
    def real_labels(self) -> bool:
        """Whether labels are real numbers, not classes."""
        return self.labels is not None and self.labels.dim() == 1 and self.labels.is_floating_point()

    @cached_property
    def in_degree(self) -> Tensor:
        """`[V]` int64 number of in-edges of each vertex."""
        return self.indptr[1:] - self.indptr[:-1]

    @cached_property
    def out_degree(self) -> Tensor:
        """`[V]` int64 number of out-edges of each vertex."""
        return torch.from_numpy(count_sources(self.indices.numpy(), self.num_nodes))

    @cached_property
    def in_weight(self) -> Tensor | None:
        """`[V]` float64 sum of the weights of the in-edges of each vertex; None without weights."""
        return None if self.edge_weights is None else weight_sums(self.indptr, self.edge_weights)

    @cached_property
    def has_own_loop(self) -> Tensor:
        """`[V]` bool: whether a vertex has a self loop."""
        found = torch.zeros(self.num_nodes, dtype=torch.bool)
        found[self.indices[self.indices == self.destinations()].long()] = True
        return found

    @cached_property
    def num_relations(self) -> int:
        """R: edge types are `0..R - 1`; 0 without types. Only for whole graphs, because a part may lack types."""
        types = self.edge_types
        return 0 if types is None or not types.numel() else int(types.max()) + 1

    @cached_property
    def occurrence(self) -> Tensor | None:
        """`[E]` int32 0-based index among parallel edges (same src, dst and type); None without parallel edges."""
        types = None if self.edge_types is None else self.edge_types.numpy()
        counts = count_parallel(self.indptr.numpy(), self.indices.numpy(), types)
        return None if counts.size == 0 else torch.from_numpy(counts)

    def destinations(self) -> Tensor:
        """`[E]` destination of each edge, in the dtype of `indices`."""
        return torch.from_numpy(edge_destinations(self.indptr.numpy(), self.indices.numpy()))


def weight_sums(indptr: Tensor, weights: Tensor) -> Tensor:
    """`[D]` float64 sum of `weights` `[E]` in each row of `indptr` `[D + 1]`; 0 for an empty row."""
    return torch.segment_reduce(weights.double(), "sum", offsets=indptr, initial=0)
