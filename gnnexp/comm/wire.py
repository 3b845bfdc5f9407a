"""What ranks tell each other outside of tensors, as bytes: JSON, and arrays of numbers. Never a pickle.

A pickle executes what its sender wants. What crosses is of a closed set of types: None, truth values,
numbers, texts, bytes, lists, tuples, mappings, slices, torch's types of numbers, NumPy's arrays and tensors on the
host. What comes from a peer is checked as input of a stranger.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

_START = 8  # bytes for the length of the JSON
# Kinds of NumPy's types: truth values, integers, reals. Others can hold objects.
_KINDS = "biuf"
_DTYPES = {str(one).removeprefix("torch."): one for one in vars(torch).values() if isinstance(one, torch.dtype)}


class WireError(ValueError):
    """A peer sent something that no rank sends."""


def pack(value: object) -> bytes:
    """The value as bytes.

    Raises:
        TypeError: a part of it has another type.
    """
    blocks: list[bytes] = []
    text = json.dumps(_plain(value, blocks)).encode()
    return len(text).to_bytes(_START, "little") + text + b"".join(blocks)


def unpack(content: bytes | memoryview) -> Any:  # noqa: ANN401  any value of these types
    """The value of `pack`. Arrays are new.

    Raises:
        WireError: the bytes are none of `pack`.
    """
    view = memoryview(content)
    size = int.from_bytes(view[:_START], "little")
    try:
        blocks = _Blocks(view[_START + size :])
        value = _value(json.loads(bytes(view[_START : _START + size])), blocks)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, AttributeError, OverflowError) as error:
        raise WireError(f"a peer sent a message of another form: {type(error).__name__}: {error}"[:300]) from None
    if blocks.left:
        raise WireError(f"a peer's message has {blocks.left} bytes too many")
    return value


def _plain(value: object, blocks: list[bytes]) -> Any:  # noqa: ANN401
    """What JSON can hold: everything but plain values and lists is a mapping from the type's name."""
    if value is None or isinstance(value, bool):
        return value
    for kind, plain in _PLAIN.items():
        if isinstance(value, kind):
            return plain(value, blocks)
    raise TypeError(f"{type(value).__name__} does not cross between ranks")


def _all(values: Iterable[object], blocks: list[bytes]) -> list[Any]:
    return [_plain(one, blocks) for one in values]


def _plain_bytes(value: bytes, blocks: list[bytes]) -> dict[str, int]:
    blocks.append(value)
    return {"bytes": len(value)}


def _plain_array(value: np.ndarray, blocks: list[bytes]) -> dict[str, list[Any]]:
    if value.dtype.kind not in _KINDS:
        raise TypeError(f"an array of {value.dtype} does not cross between ranks")
    blocks.append(np.ascontiguousarray(value).tobytes())
    return {"array": [value.dtype.str, list(value.shape)]}


def _plain_tensor(value: Tensor, blocks: list[bytes]) -> dict[str, list[Any]]:
    if value.device.type != "cpu" or value.layout != torch.strided:
        raise TypeError(f"a tensor on {value.device} of layout {value.layout} does not cross between ranks")
    blocks.append(value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    return {"tensor": [_name(value.dtype), list(value.shape)]}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# The first type that fits decides.
_PLAIN: dict[type, Callable[[Any, list[bytes]], Any]] = {
    int: lambda value, _: int(value),
    float: lambda value, _: float(value),
    str: lambda value, _: str(value),
    list: _all,
    tuple: lambda value, blocks: {"tuple": _all(value, blocks)},
    Mapping: lambda value, blocks: {"map": [_all(pair, blocks) for pair in value.items()]},
    slice: lambda value, blocks: {"slice": _all((value.start, value.stop, value.step), blocks)},
    bytes: _plain_bytes,
    torch.dtype: lambda value, _: {"dtype": _name(value)},
    np.generic: lambda value, blocks: _plain(value.item(), blocks),
    np.ndarray: _plain_array,
    Tensor: _plain_tensor,
}


class _Blocks:
    """The bytes after the JSON, taken one after another."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    @property
    def left(self) -> int:
        return len(self._view)

    def take(self, size: int) -> memoryview:
        if not isinstance(size, int) or not 0 <= size <= self.left:
            raise ValueError(f"{size!r} bytes of {self.left}")
        taken, self._view = self._view[:size], self._view[size:]
        return taken


def _value(plain: Any, blocks: _Blocks) -> Any:  # noqa: ANN401
    if isinstance(plain, list):
        return [_value(one, blocks) for one in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    return _READ[kind](content, blocks)


def _array(content: list[Any], blocks: _Blocks) -> np.ndarray:
    dtype, shape = np.dtype(content[0]), content[1]
    if dtype.kind not in _KINDS:
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(bytearray(blocks.take(dtype.itemsize * _count(shape))), dtype).reshape(shape)


def _tensor(content: list[Any], blocks: _Blocks) -> Tensor:
    dtype, shape = _DTYPES[content[0]], content[1]
    values = bytearray(blocks.take(dtype.itemsize * _count(shape)))
    return torch.frombuffer(values, dtype=dtype).reshape(shape) if values else torch.empty(shape, dtype=dtype)


def _count(shape: list[int]) -> int:
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"a shape {shape}")
    return math.prod(shape)


_READ: dict[str, Callable[[Any, _Blocks], Any]] = {
    "tuple": lambda content, blocks: tuple(_value(one, blocks) for one in content),
    "map": lambda content, blocks: {_value(key, blocks): _value(one, blocks) for key, one in content},
    "slice": lambda content, _: slice(*(None if one is None else operator.index(one) for one in content)),
    "bytes": lambda content, blocks: bytes(blocks.take(content)),
    "dtype": lambda content, _: _DTYPES[content],
    "array": _array,
    "tensor": _tensor,
}
