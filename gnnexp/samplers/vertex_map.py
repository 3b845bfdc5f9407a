"""Maps from vertices to places in a batch, kept from batch to batch: never cleared, because their base moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

_HALF_INT32 = 1 << 30


@dataclass
class VertexMap:
    """One map.

    Attributes:
        table: `[V]` int32; an entry below `base` is of an earlier batch.
        base: what the entries of the next batch start at.
    """

    table: np.ndarray
    base: int = 1


class VertexMaps:
    """As many maps as batches are sampled at once."""

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self._spare: list[VertexMap] = []

    @contextmanager
    def lent(self) -> Iterator[VertexMap]:
        """A map for one batch, whose borrower moves the base; not taken back after an error."""
        try:
            lent = self._spare.pop()  # list.pop and append are atomic: no lock
        except IndexError:
            lent = VertexMap(np.zeros(self._num_nodes, np.int32))
        if lent.base > _HALF_INT32:
            lent.table.fill(0)
            lent.base = 1
        yield lent
        self._spare.append(lent)
