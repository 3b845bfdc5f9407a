"""Columns of numbers: written once in pieces, read in chunks as often as needed. Memory holds the first pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from gnnexp.errors import DataError, Problem

CHUNK_ROWS = 1 << 21


class Spool:
    """Writes columns, as a context; afterwards it reads them.

    Args:
        folder: folder of the files, one per column.
        name: first word of the files' names.
        dtypes: data type of each column.
        held_bytes: most bytes of pieces in memory; all later pieces go to the files.
    """

    def __init__(self, folder: Path, name: str, dtypes: Mapping[str, np.dtype], held_bytes: int = 0) -> None:
        self._paths = {column: folder / f"{name}.{column}" for column in dtypes}
        self.dtypes, self.num_rows = dict(dtypes), 0
        self._held: list[tuple[np.ndarray, ...]] = []
        self._room = held_bytes
        self._files: dict[str, BinaryIO] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # files that are open are closed again if one cannot be opened
            self._files = {
                name: stack.enter_context(path.open("wb", buffering=0)) for name, path in self._paths.items()
            }
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.dtypes)

    def append(self, *columns: np.ndarray) -> None:
        """Write rows: `[n]` of every column, in the order of `dtypes`.

        Raises:
            DataError: the disk has no room.
        """
        size = sum(columns[0].size * dtype.itemsize for dtype in self.dtypes.values())
        if size <= self._room:
            self._held.append(
                tuple(np.array(values, dtype) for values, dtype in zip(columns, self.dtypes.values(), strict=True))
            )
            self._room -= size
        else:
            self._room = 0  # pieces in memory are the first rows
            for (name, dtype), values in zip(self.dtypes.items(), columns, strict=True):
                self._write(name, np.ascontiguousarray(values, dtype))
        self.num_rows += columns[0].size

    def widen(self, names: Sequence[str], dtype: np.dtype) -> None:
        """Give columns a wider data type. What the files have already is written again.

        Raises:
            DataError: the disk has no room.
        """
        places = {self.names.index(name) for name in names}
        self._held = [
            tuple(values.astype(dtype) if place in places else values for place, values in enumerate(piece))
            for piece in self._held
        ]
        for name in names:
            narrow, old = self.dtypes[name], self._paths[name].with_suffix(".narrow")
            self._paths[name].rename(old)
            self.dtypes[name] = dtype
            self._files[name] = self._stack.enter_context(self._paths[name].open("wb", buffering=0))
            with old.open("rb") as file:
                while (values := np.fromfile(file, narrow, CHUNK_ROWS)).size:
                    self._write(name, values.astype(dtype))
            old.unlink()

    def _write(self, name: str, values: np.ndarray) -> None:
        rest = values.view(np.uint8).data
        try:
            while rest:
                rest = rest[self._files[name].write(rest) :]
        except OSError as error:
            raise DataError(
                Problem(
                    str(self._paths[name]),
                    error.strerror,
                    "needs room for all edges",
                    "make room there, or set GNNEXP_CACHE to another disk",
                )
            ) from None

    def column(self, name: str) -> np.ndarray:
        """`[rows]` in memory."""
        return np.concatenate([np.empty(0, self.dtypes[name]), *(values for (values,) in self.chunks((name,)))])

    def chunks(self, names: Sequence[str] = ()) -> Iterator[tuple[np.ndarray, ...]]:
        """The rows of some columns (by default all), in order, chunk by chunk. Do not write to the arrays."""
        names = names or self.names
        places = [self.names.index(name) for name in names]
        for piece in self._held:
            yield tuple(piece[place] for place in places)
        rest = self.num_rows - sum(piece[0].size for piece in self._held)
        with ExitStack() as stack:
            files = [stack.enter_context(self._paths[name].open("rb")) for name in names]
            for start in range(0, rest, CHUNK_ROWS):
                count = min(CHUNK_ROWS, rest - start)
                yield tuple(
                    np.fromfile(file, self.dtypes[name], count) for file, name in zip(files, names, strict=True)
                )

    def remove(self) -> None:
        """Delete the files and the pieces in memory."""
        self._held.clear()
        for path in self._paths.values():
            path.unlink()
