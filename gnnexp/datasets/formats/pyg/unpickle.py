"""What stands for the classes that files of torch and PyG name. No code of theirs runs because a file asks for it.

`torch.load(weights_only=True)` of torch 2.13 with stand-ins was tried on 4,000 damaged files, and is not enough here:

- Files that this reader refuses ended its process, never ended, or took any memory. It takes wrong sizes of storages.
  Before torch 2.10, a wrong size corrupts memory (GHSA-63cw-57p8-fm3p), and gnnexp accepts torch 2.6.
- It refuses pickles of protocol 4 and 5, and an `EdgeIndex` whose class is a stand-in.
- torch_geometric adds names to its list. One is `ClusterData`, whose constructor reads a file without restrictions.

A check before it needs the values of the pickle: keys, and sizes of storages. This module has them.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from gnnexp.datasets.reading.pickled import GLOBALS, Inert, PickledDict, Unpickler

_MOST_DIMENSIONS = 64


class Record(Inert):
    """An instance of a class: its name, the arguments of its constructor, and its state."""

    __slots__ = ("arguments", "kind", "state")
    kind: str
    arguments: tuple[object, ...]
    state: object

    def __init__(self, kind: str, arguments: tuple[object, ...]) -> None:
        self.kind, self.arguments, self.state = kind, arguments, None

    def take(self, state: object) -> None:
        """Keep the state."""
        self.state = state

    def attributes(self) -> dict[str, object]:
        """The attributes by name; empty if the state is no dictionary."""
        return self.state.named() if isinstance(self.state, PickledDict) else {}


@dataclass(frozen=True)
class _Class:
    """Makes a `Record` instead of an instance of the class `kind`."""

    kind: str

    def __call__(self, *arguments: object) -> Record:
        return Record(self.kind, arguments)


@dataclass(frozen=True, eq=False)
class PickledTensor:
    """A tensor: a part of a storage.

    Attributes:
        key: name of the storage in the file.
        dtype: type of its numbers.
        numel: how many numbers it must have.
        offset: number of the first one.
        size: size of each dimension.
        stride: distance of neighbours in each dimension, in numbers.
    """

    key: str
    dtype: torch.dtype
    numel: int
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class PickledSparse:
    """A sparse tensor: its layout and its parts."""

    layout: object
    parts: tuple[object, ...]


@dataclass(frozen=True, eq=False)
class _Storage:
    key: str
    dtype: torch.dtype
    numel: int


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, tuple) or len(value) > _MOST_DIMENSIONS:
        raise pickle.UnpicklingError("malformed sizes")
    return tuple(_count(one) for one in value)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise pickle.UnpicklingError("malformed size")
    return value


def _tensor(storage: object, offset: object, size: object, stride: object, *_: object) -> PickledTensor:
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("malformed tensor")
    sizes, strides = _sizes(size), _sizes(stride)
    if len(sizes) != len(strides):
        raise pickle.UnpicklingError("malformed tensor")
    return PickledTensor(storage.key, storage.dtype, storage.numel, _count(offset), sizes, strides)


def _sparse(layout: object, parts: object) -> PickledSparse:
    if not isinstance(parts, tuple) or not isinstance(layout, str):
        raise pickle.UnpicklingError("malformed sparse tensor")
    return PickledSparse(layout, parts)


def _first(value: object, *_: object) -> object:
    """What a class of values is made of, such as the tensor of a parameter or the tuple of a `torch.Size`."""
    return value


def _subclass(made_by: object, kind: object, arguments: object, state: object) -> Record | PickledTensor:
    """A tensor with attributes, or of a class of its own, such as `EdgeIndex`: its state has its parts."""
    if made_by is _tensor and isinstance(arguments, tuple):
        return _tensor(*arguments)
    record = Record(kind.kind if isinstance(kind, _Class) else "", (arguments,))
    record.take(state[0] if isinstance(state, tuple) and state else state)
    return record


_DTYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
_CLASSES = {
    "torch_geometric.data.data": ("Data", "DataEdgeAttr", "DataTensorAttr"),
    "torch_geometric.data.hetero_data": ("HeteroData",),
    "torch_geometric.data.feature_store": ("TensorAttr",),
    "torch_geometric.data.graph_store": ("EdgeAttr",),
    "torch_geometric.data.storage": ("BaseStorage", "GlobalStorage", "NodeStorage", "EdgeStorage", "AttrType"),
    "torch_geometric.edge_index": ("EdgeIndex", "SortOrder", "CatMetadata"),
    "torch_geometric.index": ("Index", "CatMetadata"),
    "torch_geometric.typing": ("EdgeTypeStr",),
    "torch_sparse.tensor": ("SparseTensor",),
    "torch_sparse.storage": ("SparseStorage",),
    "torch": ("Tensor", "device"),
}
_KNOWN: Mapping[tuple[str, str], Any] = {
    **GLOBALS,
    **{("torch", f"{name}Storage"): dtype for name, dtype in _DTYPES.items()},
    **{("torch", str(dtype).removeprefix("torch.")): dtype for dtype in _DTYPES.values()},
    **{(module, name): _Class(name) for module, names in _CLASSES.items() for name in names},
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch._utils", "_rebuild_sparse_tensor"): _sparse,
    ("torch._utils", "_rebuild_wrapper_subclass"): _Class("arguments"),
    ("torch._tensor", "_rebuild_from_type_v2"): _subclass,
    ("torch.serialization", "_get_layout"): _first,
    ("torch", "Size"): _first,
    ("collections", "OrderedDict"): PickledDict,
    ("__builtin__", "dict"): PickledDict,
    ("builtins", "dict"): PickledDict,
    ("__builtin__", "set"): _Class("set"),
    ("builtins", "set"): _Class("set"),
    ("numpy.core.multiarray", "scalar"): _Class("scalar"),
    ("numpy._core.multiarray", "scalar"): _Class("scalar"),
}


class TorchUnpickler(Unpickler):
    """Reads `data.pkl` of a file of `torch.save`. Tensors are described, and their numbers are not read."""

    known: ClassVar[Mapping[tuple[str, str], Any]] = _KNOWN

    def _storage(self) -> None:
        name = self.stack.pop()
        if not isinstance(name, tuple) or len(name) != 5 or name[0] != "storage":
            raise pickle.UnpicklingError("it refers to something that is no storage")
        _, dtype, key, _, numel = name
        if not isinstance(dtype, torch.dtype) or not isinstance(key, str):
            raise pickle.UnpicklingError("malformed storage")
        self.append(_Storage(key, dtype, _count(numel)))

    # Of the same type as the base's, which refuses all other opcodes.
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = type(Unpickler.dispatch)(
        {**Unpickler.dispatch, pickle.BINPERSID[0]: _storage}
    )


def unpickled(content: bytes) -> object:
    """The object of a pickle, as plain data, `PickledDict`, `Record`, `PickledTensor`, `PickledSparse`, `PickledArray`.

    Raises:
        UnpicklingError: the pickle names something that is not known. Damaged bytes may raise any exception.
    """
    return TorchUnpickler(io.BytesIO(content), len(content)).load()
