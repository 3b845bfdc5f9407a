"""Facts of a graph, and the plan that a paradigm derives from them. These values need no communication."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch

from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.graph import Graph
from gnnexp.graph.parts import PartSizes
from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.graph.edges import has_parallel

Memory = Literal["host", "device", "shared", "disk"]
# Sizes of the graph's parts; None before they are cut.
Sizes = Sequence[PartSizes] | None


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
class Resident:
    """Upper bounds for a rank of full-graph training, which has resident data instead of sampled batches.

    Attributes:
        edges: edges of the graphs of all layers on this rank; a graph that layers share counts once.
        inputs: rows of features.
        rows: rows of a hidden layer, including fetched rows.
    """

    edges: int
    inputs: int
    rows: int


@dataclass(frozen=True)
class Drawn:
    """The topology from which a rank samples batches.

    Attributes:
        vertices: largest number of vertices of a topology from which a batch is sampled.
        edges: largest number of its edges.
        targets: targets of a rank's batch.
        held: vertices of all topologies that the rank has at once. Each topology has its own sampler and store.
        models: models that the rank keeps with their optimizer states, in addition to the model that it trains.
    """

    vertices: int
    edges: int
    targets: int
    held: int
    models: int = 0


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
    def from_json(found: Mapping[str, Any]) -> GraphFacts | None:
        """Facts from the JSON of `dataclasses.asdict`; None if another version of gnnexp wrote it."""
        if {field.name for field in fields(GraphFacts)} != set(found):
            return None
        links = tuple((name, count) for name, count in found["links"])
        return GraphFacts(**{**found, "links": links, "top_degrees": tuple(found["top_degrees"])})

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
            links=tuple((name, int(found.shape[0])) for name, found in graph.links.items()),
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


def facts_of(experiment: Experiment, graph: Graph) -> GraphFacts:
    """Facts of a graph with the widths that the experiment's model sees."""
    return GraphFacts.of(
        as_seen(experiment, graph), experiment.num_ranks, parallel=experiment.model.options.needs.edge_identity
    )


def as_seen(experiment: Experiment, graph: Graph) -> Graph:
    """`graph` with as many features and classes as the model has inputs and outputs.

    Trained rows replace features. They do not exist yet, so the features are on torch's `meta` device, without values.
    """
    store, features = experiment.feature_store.options, graph.features
    if store.trained_columns is not None:
        features = torch.empty(graph.num_nodes, store.trained_columns, device="meta")
    num_outputs = experiment.task.options.num_outputs(graph, experiment.model.options.hidden)
    if features is graph.features and num_outputs == graph.num_classes:
        return graph
    return replace(graph, features=features, num_classes=num_outputs)


@dataclass(frozen=True)
class Plan:
    """What a run needs. The launcher acts on the plan; each rank makes the plan again and compares the digests.

    Attributes:
        num_parts: number of parts if the partitioner does not set it. This number of consecutive ranks shares one copy
            of the partition. None: nothing is placed by owner. A plan for parts that are already cut may need more.
        works_on_parts: whether ranks train on parts that are cut from the graph (`gnnexp.graph.parts`).
        full_neighbors: whether such a part holds all neighbours of the vertices that it owns.
        approximates: what differs from serial training on the same batch by more than float error; empty: exact.
        drawn: topology from which a rank samples its batches.
        resident: data of a rank in full-graph training; None if batches are sampled.
        needs: memory of a rank in addition to graph, features, batches and model.
        checkpoint_bytes: upper bound of the bytes that all ranks add to a checkpoint, in addition to parameters,
            optimizer states, trained rows and the models of `drawn`.
        features_on_host: whether features stay in host memory instead of being copied to the device.
        evaluation_memory: limit of bytes for evaluation, in addition to the limit of `train.eval_memory`; None: none.
        problems: conflicts between the experiment and the graph.
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
        """Whether gradients equal those of serial training on the same batch, up to float error."""
        return not self.approximates

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that are equal for equal plans. Problems do not count."""
        return hashlib.sha256(repr(replace(self, problems=())).encode()).hexdigest()[:16]
