"""What is known of a graph, and what a paradigm wants of an experiment on it: values, made without communication."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch

from gnnexp.errors import Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.parts import PartSizes
from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.graph.edges import has_parallel

Memory = Literal["host", "device", "shared", "disk"]
# Of the parts of the graph, once they are cut.
Sizes = Sequence[PartSizes] | None


@dataclass(frozen=True)
class Need:
    """One line of the sum.

    Attributes:
        what: for.
        place: `host` (RAM of a machine), `device` (memory of a rank's device; with CPU it is host memory too), `shared`
            (mapped files, which the system may drop again), or `disk` (below the run directory).
        num_bytes: of one rank, or of the whole machine where `per_rank` is False.
        per_rank: whether each rank of the machine needs it.
    """

    what: str
    place: Memory
    num_bytes: int
    per_rank: bool = True


@dataclass(frozen=True)
class Resident:
    """What a rank of full-graph training has at once instead of drawn batches; upper bounds.

    Attributes:
        edges: of the graphs that the layers have here, each graph once.
        inputs: rows of features.
        rows: rows of a hidden layer, fetched ones too.
    """

    edges: int
    inputs: int
    rows: int


@dataclass(frozen=True)
class Drawn:
    """What a rank draws batches from.

    Attributes:
        vertices: of the topology that a batch is drawn from, at most.
        edges: of it.
        targets: of a rank's batch.
        held: vertices of all such topologies that it has at once, each with a sampler and a store of its own.
        models: that it keeps for later, with their optimizers' states, beside the one that is trained.
    """

    vertices: int
    edges: int
    targets: int
    held: int
    models: int = 0


@dataclass(frozen=True)
class GraphFacts:
    """A graph in numbers, with the widths that the model of an experiment sees (`experiment/seen.py`).

    Attributes:
        name: of the graph.
        num_nodes, num_edges, num_features, num_classes, num_relations: V, E, D, C, R.
        num_train: training vertices.
        links: `(name, number of links)` of every set of links.
        has_features: whether vertices have features, or rows that are trained.
        trains_features: whether these rows are trained.
        sparse_values: values of all sparse rows of features; None: rows are dense.
        typed: whether edges have types.
        label_bytes: bytes of a vertex's label, 0 without labels.
        id_bytes: bytes of a vertex id in `indices`.
        topology_bytes: bytes of `indptr`, `indices` and edge types.
        top_degrees: the largest numbers of in-edges, descending: one for each rank.
        parallel_edges: whether several edges have the same ends and type; False where nobody asked.
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

    @property
    def sparse(self) -> bool:
        """Whether features are sparse rows."""
        return self.sparse_values is not None

    @property
    def num_links(self) -> int | None:
        """Training links; None without any."""
        return dict(self.links).get("train")

    def row_bytes(self, itemsize: int) -> int:
        """Bytes of a row of features with values of `itemsize` bytes; of sparse rows, the mean; 0 without features."""
        if not self.has_features:
            return 0
        if self.sparse_values is not None:
            return max(1, self.sparse_values * (itemsize + 4) // max(1, self.num_nodes) + 8)
        return max(1, self.num_features * itemsize)

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> GraphFacts | None:
        """What `dataclasses.asdict` gave, read from JSON again; None: another version of gnnexp wrote it."""
        if {field.name for field in fields(GraphFacts)} != set(found):
            return None
        links = tuple((name, count) for name, count in found["links"])
        return GraphFacts(**{**found, "links": links, "top_degrees": tuple(found["top_degrees"])})

    @staticmethod
    def of(graph: Graph, ranks: int = 1, *, parallel: bool = True) -> GraphFacts:
        """Those of a graph for so many ranks; O(V), and O(E) to look for `parallel` edges."""
        features, labels, types = graph.features, graph.labels, graph.edge_types
        top = torch.topk(graph.in_degree, min(ranks, graph.num_nodes)).values
        arrays = graph.indptr.numpy(), graph.indices.numpy(), None if types is None else types.numpy()
        return GraphFacts(
            name=graph.name, num_nodes=graph.num_nodes, num_edges=graph.num_edges, num_features=graph.num_features,
            num_classes=graph.num_classes, num_relations=graph.num_relations, num_train=graph.splits.train.numel(),
            links=tuple((name, int(found.shape[0])) for name, found in graph.links.items()),
            has_features=features is not None, trains_features=graph.trains_features,
            sparse_values=features.values.numel() if isinstance(features, SparseRows) else None,
            typed=types is not None,
            label_bytes=0 if labels is None else labels[:1].numel() * labels.element_size(),
            id_bytes=graph.indices.element_size(), topology_bytes=graph.topology_bytes,
            top_degrees=tuple(top.tolist()), parallel_edges=parallel and has_parallel(*arrays),
        )


@dataclass(frozen=True)
class Plan:
    """The launcher acts on it; every rank makes it again and compares the digests.

    Attributes:
        num_parts: parts of the partition, where the partitioner is not told; as many consecutive ranks share one. None:
            nothing is placed by owner. A plan for parts that have been cut may want more of them.
        works_on_parts: whether ranks work on parts that are cut out of the graph (`gnnexp.graph.parts`).
        full_neighbors: whether such a part holds all neighbours of what it owns.
        approximates: what is not as in serial training on the same batch, up to float error; empty: it is exact.
        drawn: what a rank draws its batches from.
        resident: what a rank has at once where no batches are drawn; None where they are.
        needs: what a rank needs beside graph, features, batches and model.
        checkpoint_bytes: what all ranks add to a checkpoint beside parameters, optimizer states, trained rows and the
            models of `drawn`; an upper bound.
        features_on_host: whether features stay in host memory instead of going to the device.
        evaluation_memory: bytes that evaluation must do with; None: `train.eval_memory` says it.
        problems: what of the experiment does not fit the graph.
    """

    num_parts: int | None
    drawn: Drawn
    works_on_parts: bool = False
    full_neighbors: bool = True
    approximates: str = ""
    resident: Resident | None = None
    needs: tuple[Need, ...] = ()
    checkpoint_bytes: int = 0
    features_on_host: bool = False
    evaluation_memory: int | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def exact(self) -> bool:
        """Same gradients as serial training on the same batch, up to float error."""
        return not self.approximates

    @property
    def digest(self) -> str:
        """Equal plans, equal digests."""
        return hashlib.sha256(repr(replace(self, problems=())).encode()).hexdigest()[:16]
