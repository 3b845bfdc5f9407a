"""Sparse matrices in files: `scipy.sparse.save_npz` and Matrix Market. Sizes are checked before memory is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import scipy.sparse

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.reading.content import MARK, content_of
from gnnexp.datasets.reading.npz import NpzFile
from gnnexp.errors import DataError, Problem

_BANNER = b"%%matrixmarket"
_FIELDS, _SYMMETRIES = (
    ("pattern", "integer", "unsigned-integer", "real", "double"),
    ("general", "symmetric", "skew-symmetric"),
)
# Bytes of memory for each byte of a text: an entry has at least 4 bytes, and becomes 24 twice.
_FACTOR = 12


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of a sparse matrix, as its file has them: some may be there twice, or be 0.

    Attributes:
        shape: numbers of rows and columns.
        rows: `[n]` row of each entry.
        columns: `[n]` column of each entry.
        values: `[n]` numbers.
    """

    shape: tuple[int, int]
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray

    def csr(self) -> scipy.sparse.csr_array:
        """The matrix, with sorted and unique columns in each row."""
        check_memory(8 * self.shape[0], f"{self.shape[0]} rows")
        found = scipy.sparse.csr_array((self.values, (self.rows, self.columns)), shape=self.shape)
        found.sum_duplicates()
        return found


def is_sparse_npz(path: Path) -> bool:
    """Whether an archive has a matrix that `scipy.sparse.save_npz` wrote."""
    try:
        file = NpzFile(path)
    except DataError:
        return False
    return all(name in file for name in ("format", "shape", "data"))


def read_sparse_npz(path: Path) -> Entries:
    """A CSR, CSC or COO matrix.

    Raises:
        DataError: the file is damaged, has another format, or an index is outside of the matrix.
    """
    file = NpzFile(path)
    file.require("shape", "data")
    kind = file.word("format") if "format" in file else "csr"
    names = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}.get(kind)
    if names is None:
        raise DataError(
            Problem(
                f"{path}: format",
                kind,
                "formats are csr, csc and coo",
                "save matrix.tocsr() with scipy.sparse.save_npz",
            )
        )
    file.require(*names)
    values, first, second = file.array("data"), file.array(names[0]), file.array(names[1])
    shape = tuple(file.array("shape").tolist())
    if len(shape) != 2 or min(shape) < 0 or any(array.ndim != 1 for array in (values, first, second)):
        raise DataError(
            Problem(f"{path}: shape", shape, "must be a matrix", "save it again with scipy.sparse.save_npz")
        )
    if kind == "coo":
        return _checked(str(path), Entries(shape, first, second, values))
    major = shape[kind == "csc"]
    steps = np.diff(second)
    if second.size != major + 1 or second[0] != 0 or second[-1] > first.size or (steps < 0).any():
        raise DataError(
            Problem(
                f"{path}: indptr",
                second[:3].tolist(),
                f"must ascend from 0, with {major + 1} entries",
                "save it again with scipy.sparse.save_npz",
            )
        )
    check_memory(8 * first.size, str(path))
    owner, used = np.repeat(np.arange(major), steps), int(second[-1])
    rows, columns = (owner, first[:used]) if kind == "csr" else (first[:used], owner)
    return _checked(str(path), Entries(shape, rows, columns, values[:used]))


def read_matrix_market(path: Path) -> Entries:
    """A Matrix Market file, also `.gz`: coordinates or a full array of real numbers; zeros of an array are no entries.

    A symmetric or skew-symmetric file has one triangle: the other one is added.

    Raises:
        DataError: the file is damaged, has complex numbers, or claims more entries than it can have.
    """
    from scipy.io import mmread

    content = content_of(path, _FACTOR).removeprefix(MARK)
    key, (dense, shape, count) = str(path), _header(str(path), content)
    least = count * (2 if dense else 4) - 1
    if least > len(content):
        raise DataError(
            Problem(key, f"{count} entries", f"{len(content)} bytes cannot hold them", "get the file again")
        )
    check_memory((8 if dense else 48) * count, key)
    try:
        content_matrix = mmread(BytesIO(content))
    except (ValueError, OverflowError, TypeError, MemoryError) as error:
        raise DataError(
            Problem(key, str(error)[:200], "must be a whole Matrix Market file", "correct the file, or get it again")
        ) from None
    matrix = scipy.sparse.coo_array(content_matrix)
    return _checked(key, Entries(shape, matrix.row, matrix.col, matrix.data))


def _header(key: str, content: bytes) -> tuple[bool, tuple[int, int], int]:
    """Whether the file has a full array, its shape, and the number of entries that it says it has."""

    def wrong(value: object, allowed: str) -> DataError:
        return DataError(Problem(key, value, allowed, "correct the first lines: https://math.nist.gov/MatrixMarket"))

    position = content.find(b"\n") + 1
    words = content[: position or None].lower().split()[:6]
    if len(words) != 5 or words[:2] != [_BANNER, b"matrix"] or words[2] not in (b"coordinate", b"array"):
        raise wrong(
            content[:60].decode("utf-8", "replace"), "must begin with %%MatrixMarket matrix coordinate (or array)"
        )
    field, symmetry = words[3].decode("ascii", "replace"), words[4].decode("ascii", "replace")
    if field not in _FIELDS or symmetry not in _SYMMETRIES:
        raise wrong(f"{field} {symmetry}", f"numbers may be {', '.join(_FIELDS)}; symmetry {', '.join(_SYMMETRIES)}")
    while (
        position
        and (line := content[position : (end := content.find(b"\n", position) + 1) or None])
        and (line.startswith(b"%") or not line.strip())
    ):
        position = end
    sizes = content[position : (content.find(b"\n", position) + 1) or None].split() if position else []
    dense = words[2] == b"array"
    if len(sizes) != (2 if dense else 3) or not all(size.isdigit() and len(size) < 19 for size in sizes):
        raise wrong(
            b" ".join(sizes)[:60].decode("utf-8", "replace"),
            "the line of sizes needs rows, columns" + ("" if dense else ", entries"),
        )
    rows, columns = int(sizes[0]), int(sizes[1])
    half = symmetry != "general"
    count = (
        (rows * (rows + 1) // 2 - rows * (symmetry == "skew-symmetric") if half else rows * columns)
        if dense
        else int(sizes[2])
    )
    return dense, (rows, columns), count


def _checked(key: str, entries: Entries) -> Entries:
    """The same entries.

    Raises:
        DataError: arrays have different lengths, or an entry is outside of the matrix.
    """
    sizes = {entries.rows.size, entries.columns.size, entries.values.size}
    if len(sizes) > 1:
        raise DataError(Problem(key, sorted(sizes), "rows, columns and values must have one length", "save it again"))
    for what, ends, count in (("row", entries.rows, entries.shape[0]), ("column", entries.columns, entries.shape[1])):
        if ends.dtype.kind not in "iu":
            raise DataError(Problem(key, str(ends.dtype), f"{what}s must be whole numbers", "save it again"))
        wrong = np.flatnonzero((ends < 0) | (ends >= count))
        if wrong.size:
            raise DataError(
                Problem(
                    f"{key}, entry {wrong[0]}, {what}",
                    int(ends[wrong[0]]),
                    f"must be below {count}; {wrong.size} entries are wrong",
                    "correct the file",
                )
            )
    return entries
