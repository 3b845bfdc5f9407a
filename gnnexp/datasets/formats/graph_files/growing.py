"""Memory for what becomes objects of Python, asked for while rows come: two bytes of a file may become 600."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from gnnexp.datasets.base import check_memory

_STEP = 1 << 16  # rows between two questions
# Bytes for each further row, and for what is made of all rows once the file has ended.
_NEXT, _AFTER = 640, 256
T = TypeVar("T")


def check_rows(count: int, what: str) -> None:
    """Check that more rows fit in memory, after each `_STEP` of them.

    Raises:
        DataError: they do not. Names `what`.
    """
    if count and not count % _STEP:
        check_memory(_STEP * _NEXT + count * _AFTER, f"{what}: more than {count} rows")


def growing(rows: Iterable[T], what: str) -> Iterator[T]:
    """The same rows.

    Raises:
        DataError: more of them do not fit in memory. Names `what`.
    """
    for count, row in enumerate(rows):
        check_rows(count, what)
        yield row
