"""What the bytes of text files say before an engine reads them as tables. Packed files are unpacked."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.reading.arrow_sizes import unpacked_sizes
from gnnexp.datasets.reading.content import MARK
from gnnexp.datasets.tables.files import TableFiles
from gnnexp.errors import DataError, Problem

_FIRST_BYTES = 1 << 20
_SEPARATORS, _MANY = (b",", b";", b"\t", b"|"), 500
_READ_AHEAD = 16  # batches that pyarrow unpacks before they are asked for
_MOST_BYTES = 1 << 30  # that are searched for ends of lines
_LONGEST_CELL = 16 << 20
_ENDS = tuple(bytes([one]) for one in b",;\t|\r\n")
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")  # gzip, zstd


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
    """Raise if a quoted cell of a text does not end within 16 MiB. Of packed files, only the start is looked at.

    DuckDB reads such a cell to the end of the file. It takes at least eight bytes of memory for each of them, whatever
    `memory_limit` says.

    Raises:
        DataError: there is such a cell.
    """
    for path in files.paths if files.format == "text" else ():
        with path.open("rb") as file:
            packed = file.read(4).startswith(_PACKED)
            if not packed and os.fstat(file.fileno()).st_size > _LONGEST_CELL:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                    _refuse_gaps(data, files.shown)
        if packed and b'"' in _begin(path, _FIRST_BYTES):
            _refuse_gaps(_begin(path, _FIRST_BYTES + _LONGEST_CELL), files.shown)


def _refuse_gaps(data: bytes | mmap.mmap, shown: str) -> None:
    """Look for pieces without quotes that are as long as no cell may be, after a quote that begins a cell.

    Each of them contains a whole block, and most blocks show a quote at once.
    """
    block, seen = max(1, _LONGEST_CELL // 2), -1
    for low in range(0, len(data), block):
        if data.find(b'"', low, low + block) >= 0:
            continue
        quote = data.rfind(b'"', seen + 1, low)
        following = data.find(b'"', low)
        gap = (len(data) if following < 0 else following) - quote
        if quote >= 0 and gap > _LONGEST_CELL and _begins_a_cell(data, quote):
            _refuse(data, quote, shown)
        if following < 0:
            return
        seen = max(seen, quote)


def _begins_a_cell(data: bytes | mmap.mmap, quote: int) -> bool:
    """Whether a quote follows the end of a cell, or nothing, and no end of a cell follows the quote."""
    before, after = bytes(data[max(0, quote - 1) : quote]), bytes(data[quote + 1 : quote + 2])
    return (quote == 0 or before in _ENDS or (quote == len(MARK) and data[:quote] == MARK)) and after not in _ENDS


def _refuse(data: bytes | mmap.mmap, quote: int, shown: str) -> None:
    line = 1 + sum(
        bytes(data[low : min(low + _FIRST_BYTES, quote)]).count(b"\n") for low in range(0, quote, _FIRST_BYTES)
    )
    raise DataError(
        Problem(
            f"{shown}, line {line}",
            bytes(data[quote : quote + 40]).decode(errors="replace"),
            f"a quoted cell has at most {_LONGEST_CELL >> 20} MiB",
            'end the quote; if this sign is no quote, write the cell in quotes and the sign twice: """a"',
        )
    )


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
