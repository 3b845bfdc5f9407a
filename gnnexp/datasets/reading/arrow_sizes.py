"""How much the batches of an Arrow file unpack to, from its metadata: pyarrow allocates what each buffer declares.

The metadata are flatbuffers (https://arrow.apache.org/docs/format/Columnar.html). pyarrow has no call for these sizes.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass

# The last bytes of a file are the length of its footer, and `ARROW1`.
_TAIL = 10
# Fields of the footer.
_DICTIONARIES, _BATCHES = 2, 3
_BLOCK = "<q16x"  # where a message begins, and its lengths
_DICTIONARY = 2  # the type of a message that has a batch with values of a dictionary


@dataclass(frozen=True)
class _Table:
    """A table of a flatbuffer: its fields have numbers."""

    data: bytes | mmap.mmap
    place: int

    @classmethod
    def at(cls, data: bytes | mmap.mmap, place: int) -> _Table:
        """The table to which the offset at `place` leads."""
        return cls(data, place + _number("<I", data, place))

    def field(self, number: int) -> int | None:
        """Where a field is; None if it has its default."""
        names = self.place - _number("<i", self.data, self.place)
        inside = 4 + 2 * number < _number("<H", self.data, names)
        offset = _number("<H", self.data, names + 4 + 2 * number) if inside else 0
        return self.place + offset if offset else None

    def table(self, number: int) -> _Table:
        """The table in a field."""
        place = self.field(number)
        if place is None:
            raise ValueError(f"field {number} is missing")
        return _Table.at(self.data, place)

    def structs(self, number: int, form: str) -> Iterator[tuple[int, ...]]:
        """The structs of a vector."""
        place = self.field(number)
        if place is not None:
            start = place + _number("<I", self.data, place)
            size = struct.calcsize(form)
            for row in range(_number("<I", self.data, start)):
                yield struct.unpack_from(form, self.data, start + 4 + row * size)


def unpacked_sizes(data: bytes | mmap.mmap) -> tuple[list[int], list[int]]:
    """Bytes that each dictionary and each batch of a file in IPC format unpack to; 0 without compression.

    Args:
        data: the bytes of the file, such as a map of it.

    Raises:
        ValueError, struct.error: the metadata are damaged.
    """
    end = len(data) - _TAIL
    footer = _Table.at(data, end - _number("<i", data, end))
    return (
        [_unpacked(data, offset) for (offset,) in footer.structs(_DICTIONARIES, _BLOCK)],
        [_unpacked(data, offset) for (offset,) in footer.structs(_BATCHES, _BLOCK)],
    )


def _unpacked(data: bytes | mmap.mmap, start: int) -> int:
    """Bytes that the buffers of the message at `start` unpack to."""
    long = _number("<I", data, start) == 0xFFFFFFFF  # since version 0.15, a mark is before the length
    begin = start + (8 if long else 4)
    body = begin + _number("<i", data, begin - 4)
    message = _Table.at(data, begin)
    kind, batch = message.field(1), message.table(2)
    if kind is not None and _number("<B", data, kind) == _DICTIONARY:
        batch = batch.table(1)
    if batch.field(3) is None:
        return 0
    lengths = [_number("<q", data, body + offset) for offset, length in batch.structs(2, "<qq") if length >= 8]
    return sum(size for size in lengths if size > 0)  # -1: this buffer is not packed


def _number(form: str, data: bytes | mmap.mmap, place: int) -> int:
    if place < 0:
        raise ValueError("a negative place")
    return int(struct.unpack_from(form, data, place)[0])
