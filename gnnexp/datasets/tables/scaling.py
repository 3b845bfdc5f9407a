"""Columns of numbers in float64: means and spreads of rows that come in pieces, and the float32 rows of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from gnnexp.datasets.reading.names import Column

Empty = Literal["error", "mean", "zero"]
_BLOCK = 1 << 23  # numbers at a time
_MOST_LOST = 1e-3


class Moments:
    """Numbers of values, their means, and sums of squared deviations, by column; NaN is no value.

    Rows are taken in blocks of one size, which are merged (Chan, Golub, LeVeque 1979, "Updating formulae"). So results
    do not depend on the pieces in which rows come.

    Args:
        width: D.
        count: number of all rows.
    """

    def __init__(self, width: int, count: int) -> None:
        self.count, self.mean, self.squares = np.zeros(width, np.int64), np.zeros(width), np.zeros(width)
        self._low, self._high = np.full(width, np.inf), np.full(width, -np.inf)
        self._block, self._held = np.empty((max(1, min(count, _BLOCK // max(1, width))), width)), 0

    def add(self, rows: np.ndarray) -> None:
        """Take `[n, D]` float64 rows."""
        while rows.shape[0]:
            part = rows[: self._block.shape[0] - self._held]
            self._block[self._held : self._held + part.shape[0]] = part
            self._held += part.shape[0]
            rows = rows[part.shape[0] :]
            if self._held == self._block.shape[0]:
                self.merge()

    def merge(self) -> None:
        """Merge the rows that have come since the last block."""
        for column in range(self._block.shape[1]):
            values = self._block[: self._held, column]
            values = values[~np.isnan(values)]
            if values.size:
                self._low[column] = min(self._low[column], values.min())
                self._high[column] = max(self._high[column], values.max())
                mean = values.mean()
                self._merge(column, values.size, mean, np.square(values - mean).sum())
        self._held = 0

    def _merge(self, column: int, count: int, mean: float, squares: float) -> None:
        before, apart = self.count[column], mean - self.mean[column]
        self.count[column] += count
        share = count / self.count[column]
        self.mean[column] += apart * share
        self.squares[column] += squares + apart * apart * before * share
        if self._low[column] == self._high[column]:  # the mean of equal values may be rounded
            self.mean[column], self.squares[column] = self._low[column], 0.0

    def spread(self, count: int | np.ndarray) -> np.ndarray:
        """`[D]` standard deviations of `count` values, of which those without a value are the mean."""
        found: np.ndarray = np.sqrt(self.squares / np.maximum(count, 1))
        return found


def of_columns(entries: Sequence[Column], values: np.ndarray, key: str) -> None:
    """Give the entries of columns their values of `[D]`."""
    start = 0
    for entry in entries:
        entry[key] = values[start : start + entry["width"]].tolist()  # type: ignore[literal-required]
        start += entry["width"]


def in_columns(entries: Sequence[Column], key: str) -> np.ndarray:
    """`[D]` values of all entries."""
    return np.array([value for entry in entries for value in entry[key]], np.float64)  # type: ignore[literal-required]


def scaled(
    rows: np.ndarray, empty: np.ndarray | None, mean: np.ndarray | None, spread: np.ndarray | None
) -> np.ndarray:
    """`[n, D]` float32 rows: filled with `empty`, less `mean`, divided by `spread`, where these are given.

    Args:
        rows: `[n, D]` float64.
        empty: `[D]` values for NaN, or None.
        mean, spread: `[D]`, or None.
    """
    if empty is not None:
        rows = np.where(np.isnan(rows), empty, rows)
    if mean is not None and spread is not None:
        rows = (rows - mean) / spread
    scaled_rows: np.ndarray = rows.astype(np.float32)
    return scaled_rows


def lost(rows: np.ndarray) -> np.ndarray:
    """`[D]` most that a value of `[n, D]` loses as float32; 0 for no value."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(rows - rows.astype(np.float32))
    found: np.ndarray = np.nan_to_num(apart).max(0, initial=0.0)
    return found


def loses(most: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """`[D]` whether columns lose more than a thousandth of their spread; equal values have none."""
    found: np.ndarray = (most > _MOST_LOST * spread) & (spread > 0)
    return found


def scaled_features(rows: np.ndarray, empty: Empty, *, standardize: bool) -> np.ndarray:
    """`[n, D]` float32 rows: filled and, with `standardize`, with the mean 0 and the spread 1 in each column.

    Equal values have no spread, and become 0.

    Args:
        rows: `[n, D]` float64, NaN for a missing value.
        empty: what replaces missing values.
        standardize: whether columns are standardized.
    """
    if empty == "error" and not standardize:
        return scaled(rows, None, None, None)
    rows = np.where(np.isnan(rows), 0.0, rows) if empty == "zero" else np.asarray(rows, np.float64)
    moments = Moments(rows.shape[1], rows.shape[0])
    moments.add(rows)
    moments.merge()
    spread = moments.spread(rows.shape[0])
    fill = moments.mean if empty == "mean" else None
    return scaled(rows, fill, *((moments.mean, np.where(spread == 0, 1.0, spread)) if standardize else (None, None)))
