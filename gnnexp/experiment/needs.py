"""What a run needs of a machine's memories, before it is there: lines of the preflight's sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Place = Literal["host", "device", "shared", "disk"]


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
    place: Place
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
