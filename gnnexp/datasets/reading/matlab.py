"""Reads matrices of MATLAB v5 files without trusting their sizes: scipy's reader crashes on some damaged files."""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

# Types of elements, from MathWorks' "MAT-File Format". A matrix of any class is stored in the smallest type that fits.
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_SPARSE, _NUMERIC, _COMPLEX = 5, range(6, 16), 0x800
_HEADER = 128
# Published files unpack to 5 times their size. A file that exceeds both limits is refused as a decompression bomb.
_MAX_RATIO, _ALWAYS_UNPACKED = 20, 1 << 26
_MAX_BYTES = 1 << 30


class SparseColumns(NamedTuple):
    """A sparse matrix in CSC form, as it is in the file. It is not checked."""

    data: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    shape: tuple[int, ...]


Variable = np.ndarray | SparseColumns


def read_matlab(path: Path, names: Collection[str]) -> dict[str, Variable]:
    """The variables `names` of a file, without those that are missing.

    Raises:
        ValueError, struct.error, zlib.error: the file is damaged or too large, or such a variable is not a matrix.
    """
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(f"{size} bytes")
    content = path.read_bytes()
    order = {b"IM": "<", b"MI": ">"}.get(content[_HEADER - 2 : _HEADER])
    if order is None:
        raise ValueError("it has no header of MATLAB v5")
    variables: dict[str, Variable] = {}
    for body in _matrices(content[_HEADER:], order, max(_ALWAYS_UNPACKED, _MAX_RATIO * size)):
        elements = _elements(body, order)
        flags, shape, name = _numbers(elements, order), _numbers(elements, order), next(elements)[1]
        if (word := name.decode("latin-1")) in names:
            variables[word] = _variable(elements, int(flags[0]), tuple(shape.tolist()), order)
    return variables


_START, _MOST_NAMES = 4096, 64


def names_in_matlab(path: Path) -> list[str]:
    """Names of the variables of a file, from the first bytes of each; empty if it is no MATLAB v5 file."""
    names: list[str] = []
    try:
        with path.open("rb") as file:
            order = {b"IM": "<", b"MI": ">"}.get(file.read(_HEADER)[_HEADER - 2 :])
            while order is not None and len(names) < _MOST_NAMES and len(tag := file.read(8)) == 8:
                kind, size = struct.unpack(f"{order}II", tag)
                start = file.read(min(size, _START))
                file.seek(size - len(start), os.SEEK_CUR)
                if kind == _COMPRESSED:
                    start = zlib.decompressobj().decompress(start, _START)
                    kind, start = struct.unpack_from(f"{order}I", start)[0], start[8:]
                parts = _elements(start, order) if kind == _MATRIX else iter([(0, b"")] * 3)
                names.append([next(parts)[1] for _ in range(3)][2].decode("latin-1"))
    except (OSError, ValueError, struct.error, zlib.error, StopIteration):
        return names
    return names


def _matrices(content: bytes, order: str, limit: int) -> Iterator[bytes]:
    """The unpacked bytes of each matrix."""
    position = 0
    while position + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, position)
        body = content[position + 8 : position + 8 + size]
        position += 8 + size
        if len(body) < size:
            raise ValueError("it ends early")
        if kind == _COMPRESSED:
            unpacker = zlib.decompressobj()
            body = unpacker.decompress(body, limit)
            if not unpacker.eof:
                raise ValueError(f"a variable is cut off, or unpacks to more than {limit} bytes")
            kind, size = struct.unpack_from(f"{order}II", body)
            body = body[8 : 8 + size]
        if kind == _MATRIX:
            yield body


def _elements(body: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Type and content of each part of a matrix."""
    position = 0
    while True:
        (kind,) = struct.unpack_from(f"{order}I", body, position)
        if kind >> 16:  # up to four bytes are in the tag itself
            size, start = kind >> 16, position + 4
            position += 8
        else:
            (size,), start = struct.unpack_from(f"{order}I", body, position + 4), position + 8
            position = start + -(-size // 8) * 8
        part = body[start : start + size]
        if len(part) < size or (kind >> 16 and size > 4):
            raise ValueError("a variable ends early")
        yield kind & 0xFFFF, part


def _numbers(elements: Iterator[tuple[int, bytes]], order: str) -> np.ndarray:
    kind, content = next(elements)
    if kind not in _NUMBERS:
        raise ValueError(f"element type {kind} instead of numbers")
    return np.frombuffer(content, np.dtype(order + _NUMBERS[kind]))


def _variable(elements: Iterator[tuple[int, bytes]], flags: int, shape: tuple[int, ...], order: str) -> Variable:
    kind = flags & 0xFF
    if flags & _COMPLEX or (kind != _SPARSE and kind not in _NUMERIC) or any(size < 0 for size in shape):
        raise ValueError(f"a variable of class {kind} and shape {shape}")
    if kind == _SPARSE:
        rows, starts, data = (_native(_numbers(elements, order)) for _ in range(3))
        count = int(starts[-1]) if starts.size else 0  # arrays may be longer
        return SparseColumns(data[:count], rows[:count], starts, shape)
    values = _native(_numbers(elements, order))
    if values.size != math.prod(shape):
        raise ValueError(f"{values.size} numbers for shape {shape}")
    return values.reshape(shape, order="F")


def _native(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("="))
