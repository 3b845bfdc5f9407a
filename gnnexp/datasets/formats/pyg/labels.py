"""Labels and splits of the vertices of one type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from gnnexp.datasets.formats.pyg.values import array, as_tensor
from gnnexp.errors import DataError, Problem
from gnnexp.graph.storage.layout import SPLITS

_MOST_CLASSES = 1 << 31
# Names that PyG's data sets give to each split.
_NAMES = {"train": ("train",), "val": ("val", "valid"), "test": ("test",)}


def pyg_labels(value: Any, count: int, key: str, notes: list[str]) -> np.ndarray | None:  # noqa: ANN401
    """`[n]` int64 classes (-1 = none), `[n]` float32 real targets, `[n, C]` float32 of 0 and 1; None without labels.

    Args:
        value: the attribute.
        count: n.
        key: names the attribute in messages.
        notes: gets what a user must know.

    Raises:
        DataError: the values are neither.
    """
    tensor = as_tensor(value)
    if tensor is None or tensor.dim() == 0 or tensor.shape[0] != count:
        shape = "" if tensor is None else f" {list(tensor.shape)}"
        notes.append(f"{key}{shape} is left out: it has no row for each of the {count} vertices")
        return None
    values = array(tensor, key)
    if values.ndim > 1 and math.prod(values.shape[1:]) == 1:
        values = values.reshape(count)
    if values.ndim > 2:
        raise DataError(
            Problem(
                key, list(values.shape), "must be classes [n], or 0 and 1 [n, C]", "choose one: data.y = data.y[:, 0]"
            )
        )
    return _one(values, key) if values.ndim == 1 else _several(values, key, notes)


def _one(values: np.ndarray, key: str) -> np.ndarray:
    """Classes if all values are whole numbers (NaN = no label), else real targets."""
    if values.dtype.kind == "f":
        known = values[~np.isnan(values)]
        if not np.isfinite(known).all():
            raise DataError(Problem(key, "inf", "labels must be finite", "use NaN, or -1, for no label"))
        if (known != np.floor(known)).any():
            return values.astype(np.float32)
        values = np.where(np.isnan(values), -1, values)
    if values.size and values.max() >= _MOST_CLASSES:
        raise DataError(Problem(key, values.max().item(), "classes must be below 2^31", "number the classes from 0 on"))
    return np.maximum(values.astype(np.int64), -1)


def _several(values: np.ndarray, key: str, notes: list[str]) -> np.ndarray:
    """Classes of one-hot rows, else several labels. A row of NaN has no label."""
    absent = np.isnan(values).all(1) if values.dtype.kind == "f" else np.zeros(values.shape[0], bool)
    known = values[~absent]
    wrong = np.flatnonzero(((known != 0) & (known != 1)).any(1))
    if wrong.size:
        row = int(np.flatnonzero(~absent)[wrong[0]])
        raise DataError(
            Problem(
                f"{key}, row {row}",
                known[wrong[0]][:8].tolist(),
                f"several columns must be one-hot classes or 0 and 1 for each label; {wrong.size} rows are neither",
                "choose one column: data.y = data.y[:, 0]",
            )
        )
    if known.shape[0] and (known.sum(1) == 1).all():
        notes.append(f"{key} is one-hot: the classes are its columns")
        return np.where(absent, -1, np.nan_to_num(values.astype(np.float32)).argmax(1)).astype(np.int64)
    return values.astype(np.float32)


def splits_of(store: Mapping[str, Any], count: int, mask: int, key: str, notes: list[str]) -> dict[str, np.ndarray]:
    """Ids of `train`, `val` and `test`, from `train_mask` or `train_idx` and so on; empty without a split.

    Args:
        store: attributes of the vertices.
        count: n.
        mask: which of several splits `[n, k]`.
        key: names the vertices in messages.
        notes: gets what a user must know.

    Raises:
        DataError: a mask does not have a value for each vertex, or an id is outside.
    """
    splits: dict[str, np.ndarray] = {}
    several = 0
    for split in SPLITS:
        for name in (f"{word}_{ending}" for word in _NAMES[split] for ending in ("mask", "idx", "index")):
            tensor = as_tensor(store.get(name))
            if tensor is None or split in splits:
                continue
            values = array(tensor, f"{key}.{name}")
            if name.endswith("_mask"):
                several = max(several, values.shape[1] if values.ndim == 2 else 0)
                splits[split] = np.flatnonzero(_mask(values, count, mask, f"{key}.{name}"))
            else:
                splits[split] = _ids(values, count, f"{key}.{name}")
    if several > 1:
        notes.append(f"split {mask} of {several} (dataset.mask)")
    return splits


def _mask(values: np.ndarray, count: int, chosen: int, key: str) -> np.ndarray:
    """`[n]` bool."""
    if values.ndim not in (1, 2) or values.shape[0] != count:
        raise DataError(
            Problem(
                key,
                list(values.shape),
                f"must have a value for each of the {count} vertices, or a row of several splits",
                "correct the mask",
            )
        )
    if values.ndim == 2:
        if not 0 <= chosen < values.shape[1]:
            raise DataError(
                Problem("dataset.mask", chosen, f"{key} has {values.shape[1]} splits, from 0 on", "set dataset.mask=0")
            )
        values = values[:, chosen]
    if values.dtype != bool and not np.isin(values, (0, 1)).all():
        raise DataError(
            Problem(
                key,
                str(values.dtype),
                "must have true and false, or 1 and 0",
                f"name ids {key.rpartition('.')[2].replace('_mask', '_idx')}",
            )
        )
    return values.astype(bool)


def _ids(values: np.ndarray, count: int, key: str) -> np.ndarray:
    """`[k]` int64 ids. A mask may have this name, too."""
    if values.dtype == bool:
        return np.flatnonzero(_mask(values, count, 0, key))
    values = values.reshape(-1)
    if values.dtype.kind not in "iu" or (values.size and not 0 <= values.min() <= values.max() < count):
        raise DataError(
            Problem(
                key,
                f"{values.dtype}, up to {values.max(initial=0)}",
                f"must be ids 0 to {count - 1}",
                "correct the ids",
            )
        )
    return np.unique(values.astype(np.int64))
