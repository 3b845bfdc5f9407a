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
