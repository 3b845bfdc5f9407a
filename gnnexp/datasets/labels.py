"""Labels of vertices from the rows of a table."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gnnexp.errors import DataError, Problem

_NAMED = 5


def as_labels(rows: np.ndarray | None, path: Path) -> np.ndarray | None:
    """`[V]` int64 from one column (NaN = -1), `[V, C]` float32 from several.

    Raises:
        DataError: one column has fractions.
    """
    if rows is None:
        return None
    if rows.shape[1] != 1:
        return np.array(rows, np.float32)
    values = np.where(np.isnan(rows[:, 0]), -1, rows[:, 0])
    if ((values != np.floor(values)) | (np.abs(values) >= 2**24)).any():
        mend = "number the classes from 0 on"
        raise DataError(Problem(f"labels of {path}", "fractions", "classes must be whole numbers", mend))
    return values.astype(np.int64)


def count_classes(labels: np.ndarray | None) -> int:
    """C, 0 without labels."""
    if labels is None:
        return 0
    return int(labels.shape[1]) if labels.ndim == 2 else int(labels.max(initial=-1)) + 1


def empty_classes(labels: np.ndarray | None) -> str:
    """Classes below the largest that no vertex has, as text; labels that were never renumbered have many."""
    if labels is None or labels.ndim == 2:
        return ""
    absent = np.setdiff1d(np.arange(count_classes(labels)), labels)
    more = f" and {absent.size - _NAMED} more" if absent.size > _NAMED else ""
    return ", ".join(map(str, absent[:_NAMED].tolist())) + more
