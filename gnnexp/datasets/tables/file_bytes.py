"""What the bytes of text files say before an engine reads them as tables. Packed files are unpacked."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.reading.content import MARK
from gnnexp.datasets.tables.arrow_sizes import unpacked_sizes
from gnnexp.datasets.tables.files import TableFiles
from gnnexp.errors import DataError, Problem

_FIRST_BYTES = 1 << 20
_SEPARATORS, _MANY = (b",", b";", b"\t", b"|"), 500
_READ_AHEAD = 16  # batches that pyarrow unpacks before they are asked for
_MOST_BYTES = 1 << 30  # that are searched for ends of lines
_LONGEST_CELL = 16 << 20
# A quote at the beginning of a cell, and all up to the quote that ends it: two quotes stand for one.
_OPENS = re.compile(rb'(?:\A(?:\xef\xbb\xbf)?|[,;\t|\r\n])"')
_CLOSES = re.compile(rb'(?:[^"]++|"")*+"(?!")')


def comment_of(files: TableFiles) -> str:
    """The sign with which the first line begins, if that is a comment: lists of SNAP and KONECT have such lines."""
    start = _begin(files.paths[0], 4).removeprefix(MARK)[:1].decode("latin-1")
    return start if start in ("#", "%") else ""


def has_quotes(files: TableFiles) -> bool:
    """Whether there are double quotes at the beginning of the first file: then a sample shows how they are used.

    Long lists in quoted cells count as usual quotes. DuckDB would also try them as columns, and the memory for this
    grows with the square of their number: gigabytes for a list of 5,000 numbers.
    """
    start = _begin(files.paths[0], _FIRST_BYTES)
    return start is _DAMAGED or (b'"' in start and not _has_long_lists(start))


def _has_long_lists(start: bytes) -> bool:
    """Whether cells begin with quotes, which no backslash escapes, and a line has many separators."""
    usual = any(mark + b'"' in start for mark in _SEPARATORS) and b'\\"' not in start
    return usual and any(line.count(mark) > _MANY for line in start.splitlines() for mark in _SEPARATORS)


def refuse_empty(files: TableFiles) -> None:
    """Raise if all files of a text or JSON are empty.

    Raises:
        DataError: they are.
    """
    if files.format in ("text", "json") and not any(_begin(path, 4).removeprefix(MARK) for path in files.paths):
        raise DataError(Problem(files.shown, "no bytes", "is empty", "give a table with a row or more"))


def refuse_endless(files: TableFiles) -> None:
    """Raise if a quoted cell that begins in the first MiB of a text does not end within 16 MiB.

    While DuckDB finds out how cells are written, it reads such a cell to the end of the file. It takes eight bytes of
    memory for each of them, whatever `memory_limit` says.

    Raises:
        DataError: there is such a cell.
    """
    path, place = files.paths[0], 0
    if files.format != "text" or b'"' not in _begin(path, _FIRST_BYTES):
        return
    content = _begin(path, _FIRST_BYTES + _LONGEST_CELL)
    while (opened := _OPENS.search(content, place)) and opened.end() < _FIRST_BYTES:
        if (closed := _CLOSES.match(content, opened.end())) is not None:
            place = closed.end()
        elif len(content) - opened.end() < _LONGEST_CELL:
            return
        else:
            begin, line = opened.end(), content.count(b"\n", 0, opened.end()) + 1
            raise DataError(Problem(
                f"{files.shown}, line {line}", content[begin - 1 : begin + 40].decode(errors="replace"),
                f"a quoted cell has at most {_LONGEST_CELL >> 20} MiB",
                'end the quote; if this sign is no quote, write the cell in quotes and the sign twice: """a"'))


def refuse_broken(files: TableFiles) -> None:
    """Raise if offsets or codes of an Arrow file lead out of its buffers: who reads them follows them unchecked.

    One pass over the files, a batch of rows at a time.

    Raises:
        ArrowException, OSError: a file is damaged.
        DataError: the batches of a file unpack to more than the memory.
    """
    import pyarrow as pa
    from pyarrow import ipc

    for path in files.paths if files.format == "arrow" else ():
        with pa.memory_map(str(path)) as source:
            file = ipc.open_file(source)
            _check_unpacked(path)
            for number in range(file.num_record_batches):
                file.get_batch(number).validate(full=True)


def _check_unpacked(path: Path) -> None:
    """Check that dictionaries fit in memory, and as many batches as are read ahead."""
    import pyarrow as pa

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            dictionaries, batches = unpacked_sizes(data)
        except (ValueError, struct.error) as error:
            raise pa.ArrowInvalid(f"damaged metadata: {error}") from None
    check_memory(sum(dictionaries) + sum(sorted(batches)[-_READ_AHEAD:]), f"{path}: unpacked batches")


def ends_of_lines(files: TableFiles) -> list[str]:
    """Names of the ends of lines in a text, in the first GiB of its files."""
    plain = windows = 0
    for part in _parts(files) if files.format == "text" else ():
        pairs = part.count(b"\r\n")
        plain, windows = plain + part.count(b"\n") - pairs, windows + pairs
    return [name for name, count in (("LF", plain), ("CR LF", windows)) if count]


def _parts(files: TableFiles) -> Iterator[bytes]:
    """The bytes of the files, piece by piece. No pair of two signs is cut in two."""
    import pyarrow as pa

    left = _MOST_BYTES
    for path in files.paths:
        with pa.input_stream(str(path), compression="detect") as file:
            while left > 0 and (part := bytes(file.read(min(left, _FIRST_BYTES)))):
                part += bytes(file.read(1)) if part.endswith(b"\r") else b""
                left -= len(part)
                yield part


_DAMAGED = b" "


def _begin(path: Path, count: int) -> bytes:
    """The first bytes of a file; a blank for a damaged archive, which the engine names."""
    import pyarrow as pa

    try:
        with pa.input_stream(str(path), compression="detect") as file:
            return bytes(file.read(count))
    except OSError:
        return _DAMAGED
