"""The header of a `.npy` file, checked before any of its data is mapped, read or allocated.

No other code of gnnexp reads such headers. `numpy.load` trusts them: it divides by zero if a header declares items
without bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np

from gnnexp.errors import DataError, Problem

# numpy's own limit is 64; the arrays of graphs have at most three.
_MAX_DIMENSIONS = 32
# Exceptions of numpy for a header that is no Python literal, has no dtype, or does not end.
_DAMAGE = (ValueError, TypeError, SyntaxError, KeyError, RecursionError, MemoryError, OverflowError, EOFError,
           TokenError)  # fmt: skip


@dataclass(frozen=True)
class NpyHeader:
    """The header of a `.npy` file.

    Attributes:
        dtype: data type of the numbers.
        shape: size of each dimension, at least 0.
        fortran: whether the first index varies fastest.
        offset: number of bytes before the data.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def data_bytes(self) -> int:
        """Number of bytes that the data must have."""
        return math.prod(self.shape) * self.dtype.itemsize


def is_size(value: object) -> bool:
    """Whether `value` can be the size of a dimension."""
    return type(value) is int and 0 <= value < 1 << 62


def read_header(file: IO[bytes], *, objects: bool = False) -> NpyHeader:
    """The header at the start of `file`, in format 1.0; reads 64 KiB at most.

    Args:
        file: open file, positioned at the start of the `.npy` content.
        objects: whether the file must hold a pickled object; otherwise it must hold numbers.

    Raises:
        ValueError: there is no such header, or it describes other content, which the text names.
        OSError: the file cannot be read.
    """
    start = file.tell()
    try:
        first = file.read(8)
        if first[:6] != b"\x93NUMPY":
            raise ValueError("an archive (.npz)" if first[:2] == b"PK" else f"starts with {first[:6]!r}")
        version = tuple(first[6:])
        if version != (1, 0):  # a later version may announce a header of 4 GiB, and numpy would read all of it
            raise ValueError(f".npy format {version}")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    except _DAMAGE as error:
        raise ValueError(str(error)[:200] or type(error).__name__) from None
    if objects != dtype.hasobject or (not objects and dtype.kind not in "biuf"):
        raise ValueError(f"holds {str(dtype)[:80]}, {'an object' if objects else 'numbers'} expected")
    if len(shape) > _MAX_DIMENSIONS or not all(map(is_size, shape)):
        raise ValueError(f"has the shape {str(shape)[:80]}")
    return NpyHeader(dtype, shape, fortran, file.tell() - start)


def file_header(path: Path) -> NpyHeader:
    """The header of a file of numbers, whose length must be as the header says.

    Raises:
        DataError: the file cannot be read, is no `.npy` file of numbers, is truncated, or continues after its array.
    """
    try:
        with path.open("rb") as file:
            header = read_header(file)
            size = path.stat().st_size
    except (OSError, ValueError) as error:
        shown = (isinstance(error, OSError) and error.strerror) or str(error)[:200]
        raise DataError(
            Problem(
                str(path),
                shown,
                "must be a whole, undamaged numpy file of numbers (.npy, format 1.0)",
                "save it again with numpy.save, or get the file again",
            )
        ) from None
    if size != header.offset + header.data_bytes:
        shown = f"{size} bytes"
        allowed = f"must have {header.offset + header.data_bytes} bytes for {header.dtype} {list(header.shape)}"
        raise DataError(Problem(str(path), shown, allowed, "save it again with numpy.save, or get the file again"))
    return header


def map_array(path: Path, header: NpyHeader) -> np.ndarray:
    """The array of a file with a checked header, as a read-only memory map; an empty array is not mapped.

    Raises:
        DataError: the system cannot map the file.
    """
    order: Any = "F" if header.fortran else "C"
    try:
        if header.data_bytes == 0:
            return np.empty(header.shape, header.dtype, order)
        return np.memmap(path, header.dtype, "r", header.offset, header.shape, order)
    except (OSError, ValueError, MemoryError) as error:
        raise DataError(
            Problem(
                str(path),
                str(error)[:200],
                "must be a file that can be mapped",
                "use a file on a local disk, with an array that fits in the address space",
            )
        ) from None
