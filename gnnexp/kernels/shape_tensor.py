"""Tensors that have a shape, a type and a place, and no values: operations on them cost nothing.

The counting mode runs the code of all paradigms on them: rows of features, and all that is computed from them. Ids,
edges and numbers of rows are real. So bytes, rows and rounds are those of a training run.
"""

# ruff: noqa: ANN401  torch's dispatch has no types
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from gnnexp.errors import UncountableError
from gnnexp.kernels.pool import Pool

_META = torch.device("meta")
_ASKS_FOR_VALUES = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero")


class ShapeTensor(Tensor):
    """A tensor in host memory without values. Operations with it give such tensors; they write nothing into real ones.

    Raises:
        UncountableError: from an operation whose result depends on values.
    """

    meta: Tensor
    __slots__: ClassVar[list[str]] = ["meta"]

    @staticmethod
    def __new__(cls: type[Self], meta: Tensor) -> Self:
        """A tensor with the shape and the type of `meta`."""
        made = Tensor._make_wrapper_subclass(
            cls, meta.size(), strides=meta.stride(), dtype=meta.dtype, device=torch.device("cpu")
        )
        made.meta = meta
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares a function instead of a method
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func._schema.name
        if name in _ASKS_FOR_VALUES:
            raise UncountableError(f"{name} asks for values, which a counting run does not compute")
        if name == "aten::index":
            args = [args[0], [_places(index) for index in args[1]], *args[2:]]
        named = dict(kwargs or {})
        if "device" in named:
            named["device"] = _META
        named.pop("pin_memory", None)
        result = func(*tree_map(_without_values, list(args)), **tree_map(_without_values, named))
        if func._schema.is_mutable:
            return args[0] if "out" not in named else (kwargs or {})["out"]
        return tree_map(lambda value: cls(value) if isinstance(value, Tensor) else value, result)


def shaped(shape: Sequence[int], dtype: torch.dtype) -> ShapeTensor:
    """A tensor without values."""
    return ShapeTensor(torch.empty(tuple(shape), dtype=dtype, device=_META))


def has_values(*tensors: Tensor) -> bool:
    """Whether all tensors are more than shapes."""
    return not any(isinstance(tensor, ShapeTensor) for tensor in tensors)


def memory_like(pool: Pool, shape: Sequence[int], like: Tensor) -> Tensor:
    """Uninitialised memory of a pool for rows with the type of `like`; no memory if `like` has no values."""
    if not has_values(like):
        return like.new_empty(tuple(shape))
    return torch.from_numpy(pool.empty(tuple(shape), like.detach()[:0].numpy().dtype))


def _without_values(value: Any) -> Any:
    if isinstance(value, ShapeTensor):
        return value.meta
    if isinstance(value, Tensor):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=_META)
    return value


def _places(index: Tensor | None) -> Tensor | None:
    """A boolean index as places, whose number must be known."""
    if index is None or index.dtype not in (torch.bool, torch.uint8) or isinstance(index, ShapeTensor):
        return index
    return torch.nonzero(index).flatten()
