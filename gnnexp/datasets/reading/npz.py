"""Reads `.npy` and `.npz` files. Sizes are checked before memory is allocated, and pickles are restricted."""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.reading.unpickle import MAX_PICKLE_BYTES, Pickles, as_object
from gnnexp.errors import DataError, Problem
from gnnexp.graph.storage.npy import file_header, map_array, read_header

# Deflate compresses at most 1032:1, so a member that claims more is false.
_MAX_RATIO = 1032
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MAX_WORD = 1024  # bytes of a member with one word
# Errors of zipfile and numpy for damaged bytes. RuntimeError: the archive claims to be encrypted.
DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, ValueError, TypeError, SyntaxError, EOFError, OSError, KeyError,
          RuntimeError, MemoryError, OverflowError, tokenize.TokenError)  # fmt: skip


def open_npy(path: Path) -> np.ndarray:
    """A `.npy` array of numbers as a memory map.

    Raises:
        DataError: the file is missing or truncated, is not a `.npy` file, or has other values than numbers.
    """
    return map_array(path, file_header(path))


class NpzFile:
    """The members of a `.npz` archive.

    Args:
        path: path of the archive.

    Raises:
        DataError: the file is missing, or is not a zip archive.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self._members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        except DAMAGE as error:
            raise _damaged(str(path), error) from None

    def require(self, *names: str) -> None:
        """Check that the archive has all these members.

        Raises:
            DataError: names all missing members.
        """
        members = ", ".join(sorted(self._members))[:200]
        DataError.raise_all(
            [
                Problem(
                    f"{self.path}: {name}", f"has {members}", "this array is needed", "check that it is the right file"
                )
                for name in names
                if name not in self._members
            ]
        )

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def holds_numbers(self, name: str) -> bool:
        """Whether a member is an array of numbers, as its header says; False also if it cannot be read."""
        try:
            if self._members[name].compress_type not in _METHODS:
                return False
            with zipfile.ZipFile(self.path) as archive, archive.open(self._members[name]) as file:
                read_header(file)
        except DAMAGE:
            return False
        return True

    def only(self) -> str:
        """The name of the only member.

        Raises:
            DataError: there are several, or none.
        """
        if len(self._members) != 1:
            names = ", ".join(sorted(self._members))[:200]
            raise DataError(Problem(str(self.path), names, "must have one array", "write one array, or a .npy file"))
        return next(iter(self._members))

    def array(self, name: str) -> np.ndarray:
        """A numeric member.

        Raises:
            DataError: the member is missing or damaged, or its declared shape does not fit its bytes.
        """
        array: np.ndarray = self._read(name, objects=False)
        return array

    def object(self, name: str) -> object:
        """The object in a pickled 0-d member, by the restricted unpickler.

        Raises:
            DataError: the member is missing or damaged, or uses anything that the unpickler does not allow.
        """
        return as_object(self._read(name, objects=True), f"{self.path}: {name}")

    def word(self, name: str) -> str:
        """A member that is one short word of ASCII, such as the format of a sparse matrix.

        Raises:
            DataError: the member is missing, damaged, or longer.
        """
        self.require(name)
        key, info = f"{self.path}: {name}", self._members[name]
        try:
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.file_size > _MAX_WORD:
                raise ValueError(f"{info.file_size} bytes, compression method {info.compress_type}")
            with zipfile.ZipFile(self.path) as archive, archive.open(info) as file:
                content = file.read(_MAX_WORD)
            start = 10 + int.from_bytes(content[8:10], "little")  # the length of the header in format 1.0
            return content[start:].replace(b"\0", b"").decode("ascii")
        except DAMAGE as error:
            raise _damaged(key, error) from None

    def _read(self, name: str, *, objects: bool) -> Any:  # noqa: ANN401
        self.require(name)
        key, info = f"{self.path}: {name}", self._members[name]
        try:
            # numpy does not use other methods, and zipfile would unpack them without a limit.
            if info.compress_type not in _METHODS:
                raise ValueError(f"compression method {info.compress_type}")
            if info.file_size > _MAX_RATIO * info.compress_size + 1024:
                raise ValueError(f"claims {info.file_size} bytes in {info.compress_size} compressed ones")
            with zipfile.ZipFile(self.path) as archive, archive.open(info) as file:
                return _read_member(file, info.file_size, key, objects=objects)
        except DAMAGE as error:
            raise _damaged(key, error) from None


def _read_member(file: IO[bytes], size: int, key: str, *, objects: bool) -> Any:  # noqa: ANN401
    header = read_header(file, objects=objects)
    left = size - header.offset
    if objects:
        if left > MAX_PICKLE_BYTES:
            raise ValueError(f"a pickle of {left} bytes")
        check_memory(4 * left, key)
        return Pickles(file.read(left), key).load()
    if header.data_bytes != left:
        raise ValueError(f"{left} bytes for {header.dtype} {list(header.shape)}")
    check_memory(left, key)
    array = np.empty(math.prod(header.shape), header.dtype)
    _fill(file, array.view(np.uint8))
    return array.reshape(header.shape, order="F" if header.fortran else "C")


def _fill(file: IO[bytes], target: np.ndarray) -> None:
    position = 0
    while position < target.size:
        piece = file.read(min(1 << 24, target.size - position))
        if not piece:
            raise EOFError("is truncated")
        target[position : position + len(piece)] = np.frombuffer(piece, np.uint8)
        position += len(piece)
    if file.read(1):
        raise ValueError("has more bytes after its array")


def _damaged(key: str, error: Exception) -> DataError:
    found = str(error)[:200] or type(error).__name__
    return DataError(Problem(key, found, "must be a whole, undamaged numpy file", "get the file again"))
