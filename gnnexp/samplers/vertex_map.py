"""Maps from vertices to places in a batch, kept from batch to batch: never cleared, because their base moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

_HALF_INT32 = 1 << 30


@dataclass
class VertexMap:
    """One map, and memory that is kept with it because fresh pages are costly.

    Attributes:
        table: `[V]` int32; an entry below `base` is of an earlier batch.
        vertices: scratch memory for the vertices of a batch.
        base: what the entries of the next batch start at.
    """

    table: np.ndarray
    vertices: np.ndarray
    base: int = 1

    def check_room(self, count: int) -> None:
        """Entries of `count` vertices fit into the table.

        Raises:
            ValueError: they do not.
        """
        if self.base + count >= 1 << 31:
            raise ValueError(f"a batch of {count} vertices: at most 2^30 are supported, use smaller batches or fanouts")


M = TypeVar("M", bound=VertexMap)


class VertexMaps(Generic[M]):
    """As many maps as batches are sampled at once.

    Args:
        make: a new map, all of whose entries are 0, or -1 where the sign means something.
    """

    def __init__(self, make: Callable[[], M]) -> None:
        self._make = make
        self._spare: list[M] = []

    @contextmanager
    def lent(self) -> Iterator[M]:
        """A map for one batch, whose borrower moves the base; not taken back after an error.

        Entries of a batch that is half made would look as if they were of the next one.
        """
        try:
            lent = self._spare.pop()  # list.pop and append are atomic: no lock
        except IndexError:
            lent = self._make()
        if lent.base > _HALF_INT32:
            lent.table >>= 31  # every entry back to 0, or -1
            lent.base = 1
        yield lent
        self._spare.append(lent)
