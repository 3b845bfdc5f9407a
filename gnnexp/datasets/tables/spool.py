"""Columns of numbers on disk: written once in pieces, read in chunks as often as needed."""

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
    """

    def __init__(self, folder: Path, name: str, dtypes: Mapping[str, np.dtype]) -> None:
        self._paths = {column: folder / f"{name}.{column}" for column in dtypes}
        self._dtypes, self.num_rows = dict(dtypes), 0
        self._files: list[BinaryIO] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # files that are open are closed again if one cannot be opened
            self._files = [stack.enter_context(path.open("wb", buffering=0)) for path in self._paths.values()]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
                 ) -> None:
        self._stack.close()

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self._dtypes)

    def append(self, *columns: np.ndarray) -> None:
        """Write rows: `[n]` of every column, in the order of `dtypes`.

        Raises:
            DataError: the disk has no room.
        """
        for file, (name, dtype), values in zip(self._files, self._dtypes.items(), columns, strict=True):
            rest = np.ascontiguousarray(values, dtype).view(np.uint8).data
            try:
                while rest:
                    rest = rest[file.write(rest):]
            except OSError as error:
                raise DataError(Problem(str(self._paths[name]), error.strerror, "needs room for all edges",
                                        "make room there, or set GNNEXP_CACHE to another disk")) from None
        self.num_rows += columns[0].size

    def column(self, name: str) -> np.ndarray:
        """`[rows]`, mapped."""
        if not self.num_rows:
            return np.empty(0, self._dtypes[name])
        return np.memmap(self._paths[name], self._dtypes[name], "r", shape=(self.num_rows,))

    def chunks(self, names: Sequence[str] = ()) -> Iterator[tuple[np.ndarray, ...]]:
        """The rows of some columns (by default all), in order, read into memory chunk by chunk."""
        names = names or self.names
        with ExitStack() as stack:
            files = [stack.enter_context(self._paths[name].open("rb")) for name in names]
            for start in range(0, self.num_rows, CHUNK_ROWS):
                count = min(CHUNK_ROWS, self.num_rows - start)
                yield tuple(np.fromfile(file, self._dtypes[name], count)
                            for file, name in zip(files, names, strict=True))

    def remove(self) -> None:
        """Delete the files."""
        for path in self._paths.values():
            path.unlink()
