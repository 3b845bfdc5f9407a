"""A sample of large tables: a folder with the same files, each with some of its rows, and how many rows there are.

Of a text, these are its first bytes and ranges of bytes from its whole length, if no cell has quotes. A packed text
can only be read from its beginning. Of Parquet and Arrow, these are the first rows of parts from the whole length.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gnnexp.datasets.looking.places import UTF_16, TableSource, tables_at
from gnnexp.errors import DataError, Problem

if TYPE_CHECKING:
    import pyarrow as pa

_RANGES = 8
_SHARE = 16  # of the limit is read
_LEAST, _LEAST_PACKED = 1 << 12, 1 << 18  # a packed file is read in pieces of 8 KiB, so its share is known roughly
_OTHER_FILES = (".npy", ".npz")


@dataclass(frozen=True)
class Rows:
    """Rows of a table.

    Attributes:
        read: rows of the sample.
        total: rows of the table.
        exact: whether `total` is counted, and not estimated from bytes.
    """

    read: int
    total: int
    exact: bool


@dataclass(frozen=True)
class Sample:
    """A sample of the tables of a place.

    Attributes:
        place: folder or file of the sample.
        rows: files of each table, relative to the place, and their rows.
        num_bytes: bytes of all files of the tables.
    """

    place: Path
    rows: Sequence[tuple[Sequence[Path], Rows]]
    num_bytes: int


def sample_of(place: Path, limit: int, folder: Path) -> Sample | None:
    """A sample of the tables at a place, written to `folder`; None if all files have at most `limit` bytes.

    Args:
        place: a table, or a folder of tables.
        limit: bytes up to which all rows are read.
        folder: a new folder. It gets at most about `limit` / 16 bytes, and files that are no tables.

    Raises:
        DataError: a file is damaged.
    """
    tables, others = tables_at(place)
    total = sum(path.stat().st_size for source in tables for path in source.files.paths)
    if total <= limit:
        return None
    share = max(_LEAST, limit // _SHARE // max(1, sum(len(source.files.paths) for source in tables)))
    root = place if place.is_dir() else place.parent
    rows = [
        ([path.relative_to(root) for path in source.files.paths], _sampled(source, root, folder, (share, limit)))
        for source in tables
    ]
    for path in others:
        if path.suffix in _OTHER_FILES:
            (folder / path.name).symlink_to(path)
    return Sample(folder if place.is_dir() else folder / place.name, rows, total)


def _sampled(source: TableSource, root: Path, folder: Path, sizes: tuple[int, int]) -> Rows:
    parts, (share, limit) = [], sizes
    for path in source.files.paths:
        target = folder / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            parts.append(
                _of_columns(path, target, share)
                if source.files.format in ("parquet", "arrow")
                else _of_text(path, target, share, limit)
            )
        except (OSError, EOFError, ValueError) as error:
            raise DataError(
                Problem(str(path), str(error)[:200], "this table cannot be read", "correct the file, or write it again")
            ) from None
    return Rows(sum(part.read for part in parts), sum(part.total for part in parts), all(part.exact for part in parts))


def _of_columns(path: Path, target: Path, share: int) -> Rows:
    """Parquet and Arrow: the number of rows is in the file."""
    import pyarrow as pa
    from pyarrow import feather, parquet

    parts = _parquet_parts(path) if path.suffix.lower() in (".parquet", ".pq") else _arrow_parts(path)
    total, read = next(parts)
    left, kept = max(1, share // _RANGES), []
    for batch in parts:
        rows = max(1, min(batch.num_rows, left * batch.num_rows // max(1, batch.nbytes)))
        kept.append(batch.slice(0, rows))
    table = pa.Table.from_batches(kept, schema=read)
    if path.suffix.lower() in (".parquet", ".pq"):
        parquet.write_table(table, target)
    else:
        feather.write_feather(table, str(target))
    return Rows(table.num_rows, total, exact=True)


def _parquet_parts(path: Path) -> Iterator[Any]:
    """Rows of the file and its schema; then the beginning of groups of rows from its whole length."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        yield file.metadata.num_rows, file.schema_arrow
        for group in _spread(file.num_row_groups):
            yield next(file.iter_batches(1 << 16, row_groups=[group]))


def _arrow_parts(path: Path) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import ipc

    with pa.memory_map(str(path)) as source:
        file = ipc.open_file(source)
        counts: list[int] = [file.get_batch(number).num_rows for number in range(file.num_record_batches)]
        yield sum(counts), file.schema
        for number in _spread(len(counts)):
            batch = file.get_batch(number)
            batch.validate(full=True)  # its offsets and codes are followed unchecked
            yield _without_map(batch.slice(0, 1 << 16))


def _without_map(batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.take(pa.array(range(batch.num_rows)))


def _spread(count: int) -> Sequence[int]:
    """At most `_RANGES` numbers below `count`, evenly spaced."""
    return sorted({number * count // _RANGES for number in range(_RANGES)}) if count else []


def _of_text(path: Path, target: Path, share: int, limit: int) -> Rows:
    """CSV and JSON lines: rows of the sample, times the bytes of the file for each byte of the sample."""
    size, packed = path.stat().st_size, path.suffix.lower() == ".gz"
    if path.suffix.lower() == ".zst" or _is_document(path):
        if size > limit:
            raise DataError(
                Problem(
                    str(path),
                    f"{size} bytes",
                    "no part of such a file can be read alone",
                    "gnnexp data --whole reads all of it; or write JSON lines or Parquet",
                )
            )
        target.symlink_to(path)
        return Rows(0, 0, exact=False)
    with path.open("rb") as raw:
        source: gzip.GzipFile | BufferedReader = gzip.GzipFile(fileobj=raw) if packed else raw
        start = source.read(max(share, _LEAST_PACKED) if packed else share // 2)
        pieces = [_whole_lines(start) if source.read(1) else start]
        read = raw.tell() if packed else len(pieces[0])
        if not packed and read < size and b'"' not in start and not start.startswith(UTF_16):
            pieces += list(_ranges(raw, size, share // 2 // _RANGES, len(pieces[0])))
            read = sum(map(len, pieces))
    content = b"".join(pieces)
    target.write_bytes(gzip.compress(content, 1) if packed else content)
    # Line breaks between quotes belong to a cell.
    rows = sum(part.count(b"\n") for part in content.split(b'"')[::2]) + (not content.endswith((b"\n", b"\n\0")))
    return Rows(rows, round(rows * size / max(1, read)), exact=False)


def _whole_lines(content: bytes) -> bytes:
    """The lines of a beginning without the last, which is cut."""
    if content.startswith(UTF_16):
        text = content.decode("utf-16", "ignore")
        return text[: text.rfind("\n") + 1].encode("utf-16")
    end = content.rfind(b"\n")
    quotes = content.count(b'"', 0, max(0, end))
    while end > 0 and quotes % 2:  # this line break is between quotes
        earlier = content.rfind(b"\n", 0, end)
        quotes -= content.count(b'"', max(0, earlier), end)
        end = earlier
    return content[: end + 1] or content


def _ranges(file: IO[bytes], size: int, length: int, start: int) -> Iterator[bytes]:
    """Whole lines of ranges of bytes from `start` on."""
    for number in range(1, _RANGES):
        place = start + (size - start) * number // _RANGES
        file.seek(place)
        content = file.read(min(length, size - place))
        yield content[content.find(b"\n") + 1 : content.rfind(b"\n") + 1]


def _is_document(path: Path) -> bool:
    """Whether a file is one JSON document and no list of lines."""
    if path.suffix.lower() != ".json":
        return False
    with path.open("rb") as file:
        start = file.read(_LEAST).strip()
    return not start.startswith(b"{") or b"}\n" not in start.replace(b"\r", b"")
