"""The plan that a paradigm derives from facts of a graph. It needs no communication."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gnnexp.components.facts import Need
from gnnexp.errors import Problem
from gnnexp.graph.parts import PartSizes

# Sizes of the graph's parts; None before they are cut.
Sizes = Sequence[PartSizes] | None


# Copies of a layer's output that exist at once in training: value, after dropout and activation, gradient, and a spare.
ACTIVATION_COPIES = 4


def activation_bytes(rows: int, edges: int, *, hidden: int, per_edge: int, itemsize: int) -> int:
    """Bytes of rows of hidden layers with their gradients, and of `per_edge` values for every edge (attention)."""
    return itemsize * (ACTIVATION_COPIES * rows * hidden + per_edge * edges)


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
    def is_exact(self) -> bool:
        """Whether gradients equal those of serial training on the same batch, up to float error."""
        return not self.approximates

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that are equal for equal plans. Problems do not count."""
        return hashlib.sha256(repr(replace(self, problems=())).encode()).hexdigest()[:16]
