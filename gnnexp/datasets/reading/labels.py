"""Labels of vertices from the rows of a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnexp.errors import DataError, Problem

_NAMED = 5
# As `class_count` has it for the other datasets.
_MAX_CLASS = 1 << 31


def as_labels(rows: np.ndarray | None, path: Path) -> np.ndarray | None:
    """`[V]` int64 from one column (NaN = -1), `[V, C]` float32 from several.

    Args:
        rows: `[V, k]` numbers; text is read as float64, which holds every class exactly.
        path: the file that errors name.

    Raises:
        DataError: one column has fractions, or numbers that no numbering of classes has.
    """
    if rows is None:
        return None
    if rows.shape[1] != 1:
        return np.array(rows, np.float32)
    values = rows[:, 0]
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), -1, values)
        if (np.isfinite(values) & (values != np.floor(values))).any():
            fix = "number the classes from 0 on"
            raise DataError(Problem(f"labels of {path}", "fractions", "classes must be whole numbers", fix))
    smallest, largest = values.min(initial=0).item(), values.max(initial=0).item()
    if largest >= _MAX_CLASS or smallest < -_MAX_CLASS:
        raise DataError(Problem(f"labels of {path}", f"{smallest}..{largest}", "classes must be below 2^31",
                                "number the classes from 0 on"))
    return values.astype(np.int64)


def count_classes(labels: np.ndarray | None) -> int:
    """C, 0 without labels."""
    if labels is None:
        return 0
    return int(labels.shape[1]) if labels.ndim == 2 else int(labels.max(initial=-1)) + 1


def empty_classes(labels: np.ndarray | None) -> str:
    """Classes below the largest that no vertex has, as text; labels that were never renumbered have many.

    Time and memory follow the number of vertices, whatever the classes are.
    """
    if labels is None or labels.ndim == 2:
        return ""
    present = np.unique(labels[labels >= 0])
    absent = count_classes(labels) - present.size
    # So many absent classes are below each present one; the k-th absent one has the present ones with at most k below.
    below = present - np.arange(present.size)
    named = np.arange(min(absent, _NAMED))
    named += np.searchsorted(below, named, side="right")
    more = f" and {absent - _NAMED} more" if absent > _NAMED else ""
    return ", ".join(map(str, named.tolist())) + more
