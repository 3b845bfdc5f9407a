"""Streams of edges in files: memory is bounded, and any number of passes is possible.

`.npy` and `.bin` files are read and not mapped, because pages of a mapped file count as memory of the process. Text is
parsed in every pass, at some million edges per second. Other files are read at the speed of the disk.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from gnnexp.datasets.reading.npz import DAMAGE, NpzFile
from gnnexp.datasets.reading.tables import NumberTable
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file
from gnnexp.graph.storage.arrays import META
from gnnexp.graph.storage.format import open_graph
from gnnexp.graph.storage.npy import NpyHeader, file_header, read_header
from gnnexp.graph.stream import (
    CHUNK_EDGES,
    EdgeChunk,
    EdgeStream,
    GraphStream,
    PairStream,
    as_ids,
    empty_stream,
)

PairType = Literal["int32", "int64"]
TEXT = (".tsv", ".csv", ".txt", ".edges")
# Lines that are parsed at once: numpy needs about 30 MB for 2^18 lines.
_CHUNK_LINES = 1 << 18
_LOCAL_HEADER = struct.Struct("<4s22xHH")


class TextFormat(NamedTuple):
    """The format of edges in a text file.

    Attributes:
        delimiter: separator of columns; None: a comma in `.csv`, else any white space.
        header: whether the file starts with a line of names.
        comments: text that starts a comment.
    """

    delimiter: str | None = None
    header: bool = False
    comments: str = "#"


class FileStream(PairStream):
    """Edges as binary integers in a file.

    Args:
        path: path of the file.
        dtype: data type of the integers.
        offset: bytes before the first integer.
        shape: `(E, 2)`, or `(2, E)` for a row of sources and a row of destinations.
        num_nodes: V, number of vertices; None = the largest id + 1, found by a pass.
        chunk_edges: edges of a chunk.
    """

    def __init__(
        self,
        path: Path,
        dtype: np.dtype[Any],
        offset: int,
        shape: tuple[int, ...],
        num_nodes: int | None = None,
        chunk_edges: int = CHUNK_EDGES,
    ) -> None:
        if len(shape) != 2 or 2 not in shape or dtype.kind not in "iu":
            raise DataError(
                Problem(
                    str(path),
                    f"{dtype} {list(shape)}",
                    "edges must be whole numbers [E, 2] or [2, E]",
                    "save them in this form",
                )
            )
        self._path, self._dtype, self._offset, self._by_edge = path, dtype, offset, shape[1] == 2
        super().__init__(shape[0] if self._by_edge else shape[1], num_nodes, str(path), chunk_edges)

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Sources and destinations of the edges `start:stop`, read from the file."""
        if self._by_edge:
            sources, destinations = self._numbers(2 * start, 2 * (stop - start)).reshape(-1, 2).T
        else:
            sources = self._numbers(start, stop - start)
            destinations = self._numbers(self.num_edges + start, stop - start)
        return as_ids(sources), as_ids(destinations)

    def _numbers(self, first: int, count: int) -> np.ndarray:
        try:
            numbers = np.fromfile(self._path, self._dtype, count, offset=self._offset + first * self._dtype.itemsize)
        except OSError as error:
            raise DataError(Problem(self.name, error.strerror, "must be readable", "get it again")) from None
        if numbers.size < count:
            raise DataError(
                Problem(
                    self.name,
                    f"ends after number {first + numbers.size}",
                    f"has {self.num_edges} edges",
                    "get the whole file again",
                )
            )
        return numbers


class TextStream(EdgeStream):
    """Edges as rows of source and destination in a text file. Further columns are ignored.

    Args:
        path: text file, also `.gz`.
        text: format of the file.
        num_nodes: V, number of vertices; None: the largest id + 1, found by a pass.
        chunk_lines: number of lines that are parsed at once.
    """

    def __init__(
        self, path: Path, text: TextFormat, num_nodes: int | None = None, chunk_lines: int = _CHUNK_LINES
    ) -> None:
        self.name, self._given, self._lines = str(path), num_nodes, chunk_lines
        comma = path.name.removesuffix(".gz").endswith(".csv")
        delimiter = text.delimiter if text.delimiter is not None else "," if comma else None
        self._table = NumberTable(path, "int64", delimiter, text.header, text.comments, 0, num_nodes, settable=True)

    @cached_property
    def _survey(self) -> tuple[int, int]:
        """Largest id and number of edges, found by a pass.

        Raises:
            DataError: there are no edges.
        """
        largest, count = -1, 0
        for rows in self._rows():
            largest, count = max(largest, int(rows.max())), count + rows.shape[0]
        if not count:
            raise DataError(empty_stream(self.name))
        return largest, count

    @property
    def num_nodes(self) -> int:
        """V, number of vertices."""
        return self._survey[0] + 1 if self._given is None else self._given

    @property
    def num_edges(self) -> int:
        """E, number of edges."""
        return self._survey[1]

    def chunks(self) -> Iterator[EdgeChunk]:
        """All edges in one pass, chunk by chunk."""
        position = 0
        dtype = np.int32 if self.num_nodes < 1 << 31 else np.int64
        for rows in self._rows():
            columns = np.ascontiguousarray(rows.T, dtype)
            yield EdgeChunk(columns[0], columns[1], slice(position, position + rows.shape[0]))
            position += rows.shape[0]

    def _rows(self) -> Iterator[np.ndarray]:
        for rows in self._table.chunks(self._lines):
            if rows.shape[1] < 2:
                raise DataError(
                    Problem(
                        self.name,
                        f"{rows.shape[1]} column",
                        "two columns: source and destination",
                        "set dataset.delimiter to the separator of the columns",
                    )
                )
            yield rows[:, :2]


def open_edges(
    path: Path, num_nodes: int | None = None, pairs: PairType = "int32", text: TextFormat | None = None
) -> EdgeStream:
    """The edges of a file or folder.

    Args:
        path: a `.npy` file (`[E, 2]` or `[2, E]`), a `.bin` file (little-endian pairs), a text file (also `.gz`), a
            graph in gnnexp's format, or a raw folder of OGB.
        num_nodes: V, number of vertices; None: the number in the file, or the largest id + 1.
        pairs: type of the integers in a `.bin` file.
        text: format of a text file.

    Raises:
        DataError: the file or folder is missing, truncated, empty or of an unknown kind.
    """
    if path.is_dir():
        return _open_folder(path, num_nodes)
    if not is_file(path):
        raise DataError(Problem("dataset.path", str(path), "there is no such file", "set dataset.path to the edges"))
    if path.suffix == ".npy":
        return _stream_of(path, file_header(path), num_nodes)
    if path.suffix == ".bin":
        return _stream_pairs(path, pairs, num_nodes)
    if path.name.removesuffix(".gz").endswith(TEXT):
        return TextStream(path, text or TextFormat(), num_nodes)
    raise DataError(
        Problem(
            "dataset.path",
            str(path),
            f"a file of edges ends in .npy, .bin, {', '.join(TEXT)} (also .gz)",
            "rename it, or convert it",
        )
    )


def note_types(edges: np.ndarray | None) -> tuple[str, ...]:
    """A note for reports if edges `[E, 3]` have types: a column of weights or times would give many types."""
    count = 0 if edges is None or edges.shape[1] != 3 else int(edges[:, 2].max()) + 1
    return (f"the third column of the edges is used as their types: {count} relations",) if count else ()


def edge_files_of(path: Path) -> list[Path]:
    """The files whose bytes decide the edges."""
    if not path.is_dir():
        return [path]
    if (path / META).is_file():
        return [path / META]  # it has checksums of all arrays
    raw = path / "raw" if (path / "raw").is_dir() else path
    return [raw / name for name in ("edge.csv.gz", "num-node-list.csv.gz", "data.npz") if (raw / name).is_file()]


def _open_folder(folder: Path, num_nodes: int | None) -> EdgeStream:
    if (folder / META).is_file():
        return GraphStream(open_graph(folder))
    raw = folder / "raw" if (folder / "raw").is_dir() else folder
    if (raw / "edge.csv.gz").is_file():
        return TextStream(raw / "edge.csv.gz", TextFormat(","), num_nodes or _ogb_nodes(raw))
    if (raw / "data.npz").is_file():
        return _stream_npz(raw / "data.npz", num_nodes)
    raise DataError(
        Problem(
            "dataset.path",
            str(folder),
            f"a folder of edges holds {META} (gnnexp's format), or edge.csv.gz or data.npz (OGB)",
            "set dataset.path to the file of the edges",
        )
    )


def _ogb_nodes(raw: Path) -> int | None:
    path = raw / "num-node-list.csv.gz"
    if not path.is_file():
        return None
    counts = NumberTable(path, "int64", low=1).read()
    if counts.size != 1:
        raise DataError(
            Problem(
                str(path),
                f"{counts.size} numbers",
                "must be one number of vertices",
                "get the file again, or set dataset.num_nodes",
            )
        )
    return int(counts[0, 0])


def _stream_of(path: Path, header: NpyHeader, num_nodes: int | None, start: int = 0) -> FileStream:
    """The integers after a header that starts at byte `start`."""
    # The columns of a Fortran array are the rows in the file.
    shape = header.shape[::-1] if header.fortran else header.shape
    return FileStream(path, header.dtype, start + header.offset, shape, num_nodes)


def _stream_pairs(path: Path, pairs: PairType, num_nodes: int | None) -> FileStream:
    dtype, size = np.dtype(pairs).newbyteorder("<"), path.stat().st_size
    if not size or size % (2 * dtype.itemsize):
        raise DataError(
            Problem(
                str(path),
                f"{size} bytes",
                f"must be pairs of {pairs}: a multiple of {2 * dtype.itemsize} bytes, and not empty",
                "get the whole file again, or set dataset.pairs to the type of its numbers",
            )
        )
    return FileStream(path, dtype, 0, (size // (2 * dtype.itemsize), 2), num_nodes)


def _stream_npz(path: Path, num_nodes: int | None) -> FileStream:
    """`edge_index` of an uncompressed archive (like OGB's), read at its place in the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo("edge_index.npy")
            if info.compress_type != zipfile.ZIP_STORED:
                raise DataError(
                    Problem(
                        str(path),
                        "edge_index is compressed",
                        "only uncompressed arrays can be streamed",
                        "save it with numpy.save as .npy",
                    )
                )
            with path.open("rb") as file:
                file.seek(info.header_offset)
                magic, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
                if magic != b"PK\x03\x04":
                    raise zipfile.BadZipFile("no member where one is named")
                start = info.header_offset + _LOCAL_HEADER.size + name + extra
                file.seek(start)
                header = read_header(file)
            if header.offset + header.data_bytes != info.file_size:
                raise ValueError(f"edge_index has {info.file_size} bytes, not those of {header.dtype} {header.shape}")
    except DAMAGE as error:
        raise DataError(
            Problem(
                str(path),
                str(error)[:200] or type(error).__name__,
                "must be a whole archive with edge_index",
                "get it again",
            )
        ) from None
    return _stream_of(path, header, num_nodes or _npz_nodes(path), start)


def _npz_nodes(path: Path) -> int | None:
    archive = NpzFile(path)
    if "num_nodes_list" not in archive:
        return None
    counts = archive.array("num_nodes_list")
    if counts.size != 1 or counts.dtype.kind not in "iu" or not 0 < int(counts.ravel()[0]) < 1 << 62:
        raise DataError(
            Problem(
                f"{path}: num_nodes_list",
                f"{counts.dtype} {list(counts.shape)}",
                "must be one number of vertices, 1 or more",
                "get the archive again, or set dataset.num_nodes",
            )
        )
    return int(counts.ravel()[0])
