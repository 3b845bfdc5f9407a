"""Maps from vertices to places in a batch. A map serves many batches: its base moves, so it need not be cleared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

_HALF_INT32 = 1 << 30


@dataclass
class VertexMap:
    """One map, and working memory that is kept with it because fresh pages are slow.

    Attributes:
        table: `[V]` int32; an entry below `base` belongs to an earlier batch.
        vertices: working memory for the vertices of a batch.
        base: smallest entry of the next batch.
    """

    table: np.ndarray
    vertices: np.ndarray
    base: int = 1

    def check_room(self, count: int) -> None:
        """Check that entries for `count` vertices fit in int32.

        Raises:
            ValueError: the entries would be too large.
        """
        if self.base + count >= 1 << 31:
            raise ValueError(f"a batch of {count} vertices: at most 2^30 are supported, use smaller batches or fanouts")


M = TypeVar("M", bound=VertexMap)


class VertexMaps(Generic[M]):
    """One map for each batch that is sampled at the same time.

    Args:
        make: function that makes a new map; its entries are 0, or -1 if the sign has a meaning.
        spare: maps that nobody uses, which others may share; None: a list of its own.
    """

    def __init__(self, make: Callable[[], M], spare: list[M] | None = None) -> None:
        self._make = make
        self._spare: list[M] = [] if spare is None else spare

    @contextmanager
    def lent(self) -> Iterator[M]:
        """Context with a map for one batch; the batch must move the base. After an error the map is not used again.

        Otherwise entries of the incomplete batch would look like entries of the next one.
        """
        try:
            lent = self._spare.pop()  # list.pop and append are atomic: no lock
        except IndexError:
            lent = self._make()
        if lent.base > _HALF_INT32:
            lent.table >>= 31  # every entry becomes 0 or -1
            lent.base = 1
        yield lent
        self._spare.append(lent)
