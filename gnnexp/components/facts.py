"""Facts of a graph, and lines of an estimate of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch

from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.graph.edges import has_parallel

Memory = Literal["host", "device", "shared", "disk"]


@dataclass(frozen=True)
class Need:
    """One line of a memory estimate.

    Attributes:
        what: purpose of the memory.
        place: kind of memory. `host`: RAM of a machine. `device`: memory of a rank's device, which is RAM on CPU.
            `shared`: mapped files, whose pages the system may drop. `disk`: files below the run directory.
        num_bytes: bytes of one rank, or of the whole machine if `per_rank` is False.
        per_rank: whether each rank of the machine needs the memory.
    """

    what: str
    place: Memory
    num_bytes: int
    per_rank: bool = True


@dataclass(frozen=True)
class GraphFacts:
    """A graph in numbers, with the widths that the model of an experiment sees (`as_seen`).

    Attributes:
        name: name of the graph.
        num_nodes, num_edges, num_features, num_classes, num_relations: V, E, D, C, R.
        num_train: training vertices.
        links: `(name, number of links)` of each set of links.
        has_features: whether vertices have features or trained rows.
        trains_features: whether the rows are trained.
        sparse_values: number of values in all sparse feature rows; None: rows are dense.
        typed: whether edges have types.
        label_bytes: bytes of a vertex's label, 0 without labels.
        id_bytes: bytes of a vertex id in `indices`.
        topology_bytes: bytes of `indptr`, `indices` and edge types and weights.
        top_degrees: the largest in-degrees, descending, one for each rank.
        parallel_edges: whether several edges have the same ends and type; False if this was not checked.
        least_weight: smallest sum of the weights of a vertex' in-edges; None: edges have no weights.
    """

    name: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    num_relations: int
    num_train: int
    links: tuple[tuple[str, int], ...]
    has_features: bool
    trains_features: bool
    sparse_values: int | None
    typed: bool
    label_bytes: int
    id_bytes: int
    topology_bytes: int
    top_degrees: tuple[int, ...]
    parallel_edges: bool
    least_weight: float | None = None

    @property
    def sparse(self) -> bool:
        """Whether features are sparse rows."""
        return self.sparse_values is not None

    @property
    def weighted(self) -> bool:
        """Whether edges have weights."""
        return self.least_weight is not None

    @property
    def num_links(self) -> int | None:
        """Number of training links; None if there are none."""
        return dict(self.links).get("train")

    def row_bytes(self, itemsize: int) -> int:
        """Bytes of a feature row with values of `itemsize` bytes; the mean for sparse rows; 0 without features."""
        if not self.has_features:
            return 0
        if self.sparse_values is not None:
            return max(1, self.sparse_values * (itemsize + 4) // max(1, self.num_nodes) + 8)
        return max(1, self.num_features * itemsize)

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> GraphFacts | None:
        """Facts from the JSON of `dataclasses.asdict`; None if another version of gnnexp wrote it."""
        if {field.name for field in fields(GraphFacts)} != set(content):
            return None
        links = tuple((name, count) for name, count in content["links"])
        return GraphFacts(**{**content, "links": links, "top_degrees": tuple(content["top_degrees"])})

    @staticmethod
    def of(graph: Graph, ranks: int = 1, *, parallel: bool = True) -> GraphFacts:
        """Facts of `graph` for `ranks` ranks, in O(V); with `parallel`, O(E) to look for parallel edges."""
        features, labels, types = graph.features, graph.labels, graph.edge_types
        top = torch.topk(graph.in_degree, min(ranks, graph.num_nodes)).values
        arrays = graph.indptr.numpy(), graph.indices.numpy(), None if types is None else types.numpy()
        return GraphFacts(
            name=graph.name,
            num_nodes=graph.num_nodes,
            num_edges=graph.num_edges,
            num_features=graph.num_features,
            num_classes=graph.num_classes,
            num_relations=graph.num_relations,
            num_train=graph.splits.train.numel(),
            links=tuple((name, int(pairs.shape[0])) for name, pairs in graph.links.items()),
            has_features=features is not None,
            trains_features=graph.trains_features,
            sparse_values=features.values.numel() if isinstance(features, SparseRows) else None,
            typed=types is not None,
            label_bytes=0 if labels is None else labels[:1].numel() * labels.element_size(),
            id_bytes=graph.indices.element_size(),
            topology_bytes=graph.topology_bytes,
            top_degrees=tuple(top.tolist()),
            parallel_edges=parallel and has_parallel(*arrays),
            least_weight=None if graph.in_weight is None else float(graph.in_weight.min()),
        )
