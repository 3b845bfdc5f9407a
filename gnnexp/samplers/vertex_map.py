"""Maps from vertices to places in a batch, kept from batch to batch: never cleared, because their base moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

_HALF_INT32 = 1 << 30


@dataclass
class VertexMap:
    """One map.

    Attributes:
        table: `[V]` int32; an entry below `base` is of an earlier batch.
        base: what the entries of the next batch start at.
        room: scratch memory for vertex ids, kept because fresh pages are costly.
    """

    table: np.ndarray
    base: int = 1
    room: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))


class VertexMaps:
    """As many maps as batches are sampled at once.

    Args:
        make: a new table, all of whose entries are 0, or -1 where the sign means something.
    """

    def __init__(self, make: Callable[[], np.ndarray]) -> None:
        self._make = make
        self._spare: list[VertexMap] = []

    @contextmanager
    def lent(self) -> Iterator[VertexMap]:
        """A map for one batch, whose borrower moves the base; not taken back after an error."""
        try:
            lent = self._spare.pop()  # list.pop and append are atomic: no lock
        except IndexError:
            lent = VertexMap(self._make())
        if lent.base > _HALF_INT32:
            lent.table >>= 31  # every entry back to 0, or -1
            lent.base = 1
        yield lent
        self._spare.append(lent)
