"""Reads the pickles of published datasets, without executing their code.

A pickle is a program. `gnnexp.datasets.reading.pickled` makes plain data of it. `as_array`, `as_object` and
`as_csr` check the sizes of these data, and make arrays.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse

from gnnexp.datasets.reading.pickled import PickledArray, PickledCsr, Unpickler
from gnnexp.errors import DataError, Problem

# The largest published pickle has 4 MiB. The content of a pickle is in memory several times.
MAX_PICKLE_BYTES = 1 << 31

_NUMBERS = frozenset(f"{kind}{size}" for kind in "iuf" for size in (1, 2, 4, 8)) - {"f1"} | {"b1"}


@dataclass(frozen=True)
class Pickles:
    """A sequence of pickles in one byte string.

    Attributes:
        content: the bytes.
        key: name of the file in errors.
    """

    content: bytes
    key: str

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """The content of a file.

        Raises:
            DataError: the file is larger than `MAX_PICKLE_BYTES`.
        """
        size = path.stat().st_size
        if size > MAX_PICKLE_BYTES:
            raise cls(b"", str(path))._refused(f"{size} bytes")
        return cls(path.read_bytes(), str(path))

    def load(self) -> Any:  # noqa: ANN401
        """The object of the first pickle."""
        return self.load_all(1)[0]

    def load_all(self, count: int) -> list[Any]:
        """The objects of the first `count` pickles (legacy torch files have several in sequence).

        Raises:
            DataError: the content is not a pickle, is truncated, or uses anything that is not on the allow-list.
        """
        if len(self.content) > MAX_PICKLE_BYTES:
            raise self._refused(f"{len(self.content)} bytes")
        stream = io.BytesIO(self.content)
        try:
            return [Unpickler(stream, len(self.content)).load() for _ in range(count)]
        except Exception as error:
            # Damaged bytes can raise any exception in the unpickler. None of them is our bug.
            raise self._refused(str(error)[:200] or type(error).__name__) from None

    def _refused(self, why: str) -> DataError:
        fix = "get the file again from its publisher; nothing in it was executed"
        return DataError(Problem(self.key, why, "a pickle of plain arrays, sparse matrices, lists and dicts", fix))


def as_array(value: object, key: str) -> np.ndarray:
    """The numeric array that `value` describes. Its declared shape must fit its bytes.

    Raises:
        DataError: the value is not a numeric array, or its sizes contradict each other.
    """
    if not isinstance(value, PickledArray):
        raise _malformed(key, type(value).__name__, "a numeric array")
    if value.dtype.text not in _NUMBERS or value.dtype.order not in "<>|=" or isinstance(value.data, list):
        raise _malformed(key, value.dtype.text[:20], "an array of numbers")
    dtype = np.dtype(value.dtype.order + value.dtype.text)
    raw = value.data.encode("latin-1") if isinstance(value.data, str) else value.data
    if len(raw) != math.prod(value.shape) * dtype.itemsize:
        raise _malformed(key, f"{len(raw)} bytes", f"the bytes of {dtype} {list(value.shape)}")
    array = np.frombuffer(raw, dtype).astype(dtype.newbyteorder("="))
    return array.reshape(value.shape, order="F" if value.fortran else "C")


def as_object(value: object, key: str) -> object:
    """The object in a 0-d object array.

    Raises:
        DataError: the value is not a 0-d object array with one object.
    """
    if not isinstance(value, PickledArray) or value.shape != () or not isinstance(value.data, list):
        raise _malformed(key, type(value).__name__, "a 0-d object array")
    if len(value.data) != 1:
        raise _malformed(key, f"{len(value.data)} objects", "one object")
    return value.data[0]


def as_csr(value: object, key: str) -> scipy.sparse.csr_array:
    """The sparse matrix that `value` describes, with sorted, unique columns per row.

    Raises:
        DataError: the value is not a sparse matrix, or row pointers, columns and shape contradict each other.
    """
    if not isinstance(value, PickledCsr):
        raise _malformed(key, type(value).__name__, "a sparse matrix")
    shape = value.state.get("_shape")
    if not isinstance(shape, tuple) or len(shape) != 2 or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise _malformed(key, type(shape).__name__, "a shape of two sizes")
    data, columns, starts = (as_array(value.state.get(name), key) for name in ("data", "indices", "indptr"))
    return csr_matrix(data, columns, starts, shape, key)


def csr_matrix(
    data: np.ndarray, columns: np.ndarray, starts: np.ndarray, shape: tuple[int, int], key: str
) -> scipy.sparse.csr_array:
    """A CSR matrix from its arrays, which are checked.

    Raises:
        DataError: row pointers, columns and shape contradict each other.
    """
    flat = data.ndim == columns.ndim == starts.ndim == 1 and columns.dtype.kind in "iu" and starts.dtype.kind in "iu"
    if not flat or starts.size != shape[0] + 1 or data.size != columns.size:
        raise _malformed(key, f"{starts.shape}, {columns.shape}, {data.shape}", f"the arrays of a {shape} CSR matrix")
    starts = starts.astype(np.int64)
    if starts[0] != 0 or starts[-1] != data.size or (np.diff(starts) < 0).any():
        raise _malformed(key, "row pointers out of order", f"ascending from 0 to {data.size}")
    if columns.size and not 0 <= int(columns.min()) <= int(columns.max()) < shape[1]:
        raise _malformed(key, f"columns {columns.min()}..{columns.max()}", f"columns in 0..{shape[1] - 1}")
    matrix = scipy.sparse.csr_array((data, columns, starts), shape=shape)
    matrix.sum_duplicates()
    return matrix


def _malformed(key: str, found: str, allowed: str) -> DataError:
    return DataError(Problem(key, found, f"must hold {allowed}", "get the file again from its publisher"))
