"""The content of a file of `torch.save` as tensors and plain values, without torch's loader."""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnexp.datasets.base import check_memory
from gnnexp.datasets.formats.pyg.unpickle import PickledSparse, PickledTensor, Record, unpickled
from gnnexp.datasets.reading.npz import DAMAGE
from gnnexp.datasets.reading.pickled import PickledArray, PickledDict
from gnnexp.datasets.reading.unpickle import MAX_PICKLE_BYTES, as_array
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import open_regular

# The header of a member of a zip archive, of which the last two numbers are lengths of what follows.
_HEADER = struct.Struct("<4s22xHH")
_START_BYTES = 1 << 20
_LAYOUTS = {"torch.sparse_csr": torch.sparse_csr, "torch.sparse_csc": torch.sparse_csc}
SAVE_AGAIN = (
    "save it again where PyG can read it: torch.save(data.to_dict(), FILE), or for a data set "
    "torch.save(dataset[0].to_dict(), FILE)"
)


class UnusedValue:
    """A value that gnnexp does not use.

    Attributes:
        kind: name of its class.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind


class TorchFile:
    """A file of `torch.save`. Tensors are maps of the file, so that memory holds only what is used.

    Args:
        path: the file.
        fix: what a user can do about a file that is refused.

    Raises:
        DataError: the file cannot be read, is no such archive, or is packed.
    """

    def __init__(self, path: Path, fix: str = SAVE_AGAIN) -> None:
        self.path, self._fix = path, fix
        try:
            with open_regular(path) as file, zipfile.ZipFile(file) as archive:
                self._members = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        except DAMAGE as error:
            raise self._refused(getattr(error, "strerror", None) or str(error)) from None

    def content(self) -> object:
        """The object as plain data (`unpickled`). Tensors are only described.

        Raises:
            DataError: the pickle is damaged, or names a class that is not one of PyG's own.
        """
        size = self._member("data.pkl").file_size
        if size > MAX_PICKLE_BYTES:
            raise self._refused(f"a pickle of {size} bytes")
        if "byteorder" in self._members and bytes(self._bytes("byteorder")) != b"little":
            raise self._refused("the byte order is not little")
        check_memory(4 * size, f"{self.path}: data.pkl")
        try:
            return unpickled(bytes(self._bytes("data.pkl")))
        except DataError:
            raise
        except Exception as error:
            # Damaged bytes can raise any exception in the unpickler. None of them is our bug.
            raise self._refused(str(error)[:200] or type(error).__name__) from None

    def start(self) -> bytes:
        """The first bytes of the pickle, which name what is in the file."""
        return bytes(self._bytes("data.pkl")[:_START_BYTES])

    def value(self, value: object) -> Any:  # noqa: ANN401
        """A described value: a tensor, a number, a text, a list of texts or numbers, or `UnusedValue`.

        Raises:
            DataError: a tensor does not fit its bytes.
        """
        read: dict[type, Callable[[Any], Any]] = {
            PickledTensor: self._tensor,
            PickledSparse: self._sparse,
            Record: self._of_record,
            PickledArray: lambda array: torch.from_numpy(as_array(array, str(self.path))),
        }
        if type(value) in read:
            return read[type(value)](value)
        if value is None or isinstance(value, str | bool | int | float):
            return value
        if isinstance(value, list | tuple) and all(isinstance(item, str | int | float) for item in value):
            return list(value)
        return UnusedValue("dict" if isinstance(value, PickledDict) else type(value).__name__)

    def _of_record(self, record: Record) -> Any:  # noqa: ANN401
        if record.kind == "scalar" and len(record.arguments) == 2:
            array = PickledArray()
            array.take((1, (), record.arguments[0], False, record.arguments[1]))
            return as_array(array, str(self.path)).item()
        parts: dict[str, Any] = record.attributes()
        if record.kind in ("EdgeIndex", "Index") and isinstance(parts.get("_data"), PickledTensor):
            return self._tensor(parts["_data"])
        if record.kind == "SparseTensor" and isinstance(parts.get("storage"), Record):
            return self._adjacency(parts["storage"].attributes())
        return UnusedValue(record.kind)

    def _tensor(self, pickled: PickledTensor) -> Tensor:
        item = pickled.dtype.itemsize
        count = math.prod(pickled.size)
        last = pickled.offset + sum(
            (size - 1) * stride for size, stride in zip(pickled.size, pickled.stride, strict=True)
        )
        raw = self._bytes(f"data/{pickled.key}")
        if pickled.numel * item != raw.size or (count and last >= pickled.numel):
            raise self._refused(f"a tensor {list(pickled.size)} in {raw.size} bytes")
        if not count:
            return torch.empty(pickled.size, dtype=pickled.dtype)
        if count > pickled.numel:  # an expanded tensor, which a copy would make as large as it claims to be
            check_memory(2 * count * item, f"{self.path}: a tensor {list(pickled.size)}")
        if raw.ctypes.data % item:
            raw = np.array(raw)
        stored = torch.from_numpy(raw)
        stored = stored != 0 if pickled.dtype == torch.bool else stored.view(pickled.dtype)
        return stored.as_strided(pickled.size, pickled.stride, pickled.offset)

    def _sparse(self, pickled: PickledSparse) -> Tensor:
        """A sparse tensor, whose indices torch checks."""
        parts = [self.value(part) if isinstance(part, PickledTensor) else part for part in pickled.parts]
        tensors: list[Any] = [part for part in parts if isinstance(part, Tensor)]
        size: Any = next((part for part in parts if isinstance(part, tuple)), ())
        if len(size) != 2 or not all(type(n) is int and 0 <= n < 1 << 62 for n in size):
            raise self._refused("a sparse tensor that is no matrix")
        try:
            if pickled.layout == "torch.sparse_coo" and len(tensors) == 2:
                return torch.sparse_coo_tensor(tensors[0], tensors[1], size, check_invariants=True)
            if pickled.layout in _LAYOUTS and len(tensors) == 3:
                return torch.sparse_compressed_tensor(
                    tensors[0],
                    tensors[1],
                    tensors[2],
                    size,
                    layout=_LAYOUTS[str(pickled.layout)],
                    check_invariants=True,
                )
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise self._refused(f"a sparse tensor: {_line(error)}") from None
        raise self._refused(f"a sparse tensor of layout {str(pickled.layout)[:40]}")

    def _adjacency(self, parts: dict[str, object]) -> Tensor:
        """The matrix of a `SparseTensor` of torch-sparse, which need not be installed."""
        row, starts, column, values = (self.value(parts.get(f"_{name}")) for name in ("row", "rowptr", "col", "value"))
        if not isinstance(row, Tensor) and isinstance(starts, Tensor) and isinstance(column, Tensor):
            counts = starts.diff()
            if starts.dim() != 1 or bool((counts < 0).any()) or int(counts.sum()) != column.numel():
                raise self._refused("a SparseTensor whose rows do not fit its columns")
            row = torch.repeat_interleave(torch.arange(counts.numel()), counts)
        if not isinstance(row, Tensor) or not isinstance(column, Tensor):
            raise self._refused("a SparseTensor without rows or columns")
        values = values if isinstance(values, Tensor) else torch.ones(column.shape)
        size: Any = parts.get("_sparse_sizes")
        try:
            return torch.sparse_coo_tensor(torch.stack([row, column]), values, size, check_invariants=True)
        except (RuntimeError, TypeError, ValueError) as error:
            raise self._refused(f"a SparseTensor: {_line(error)}") from None

    def _member(self, name: str) -> zipfile.ZipInfo:
        info = self._members.get(name)
        if info is None:
            raise self._refused(f"has no {name[:60]}")
        # torch stores without compression. A packed member could take more memory than the file has bytes.
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise self._refused(f"{name[:60]} is packed")
        return info

    def _bytes(self, name: str) -> np.ndarray:
        """`[n]` uint8 bytes of a member, as a map of the file. Nothing that is written to the map reaches the file."""
        info = self._member(name)
        if not info.file_size:
            return np.empty(0, np.uint8)
        try:
            with open_regular(self.path) as file:
                file.seek(info.header_offset)
                magic, name_bytes, extra = _HEADER.unpack(file.read(_HEADER.size))
                if magic != b"PK\3\4":
                    raise zipfile.BadZipFile("a member without a header")
                start = info.header_offset + _HEADER.size + name_bytes + extra
                return np.memmap(file, np.uint8, "c", start, (info.file_size,))
        except DAMAGE as error:
            raise self._refused(str(error)[:200]) from None

    def _refused(self, why: str) -> DataError:
        return DataError(
            Problem(
                str(self.path),
                why,
                "must be a file of torch.save with PyG's own classes and plain data; nothing in it was executed",
                self._fix,
            )
        )


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0][:150]
