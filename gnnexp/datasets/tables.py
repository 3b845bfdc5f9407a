"""Text tables of numbers (`.tsv`, `.csv`, `.txt`, each also `.gz`), read fast, with errors that name the line."""

from __future__ import annotations

import gzip
import math
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np

from gnnexp.errors import DataError, Problem

_MAX_SHOWN = 5


@dataclass(frozen=True)
class Table:
    """How a text file holds numbers.

    Attributes:
        path: `.gz` files are unpacked on the fly.
        dtype: of the numbers.
        delimiter: between columns; None = any white space.
        header: whether the first line is no data.
        comments: lines (and ends of lines) from this on are skipped; empty = none.
        low: smallest number allowed, or None.
        high: first number that is too large, or None.
    """

    path: Path
    dtype: Literal["int64", "float32", "float64"] = "int64"
    delimiter: str | None = ","
    header: bool = False
    comments: str = ""
    low: int | None = None
    high: int | None = None

    def read(self) -> np.ndarray:
        """`[n, k]`, every row with the same number of columns.

        Raises:
            DataError: the file is damaged or has lines that are not such rows, each named with number and content.
        """
        try:
            with self._open() as file, warnings.catch_warnings():
                # numpy only warns where it reads 1.5 as the integer 1, or finds no rows.
                warnings.simplefilter("error", DeprecationWarning)
                warnings.filterwarnings("ignore", message=".*input contained no data")
                rows = np.loadtxt(
                    file,
                    dtype=self.dtype,
                    delimiter=self.delimiter,
                    comments=self.comments or None,
                    skiprows=int(self.header),
                    ndmin=2,
                )
        except (ValueError, OverflowError, DeprecationWarning) as error:
            raise DataError(self._bad_lines() or [self._damaged(error)]) from None
        if self._out_of_bounds(rows):
            raise DataError(self._bad_lines())
        return rows

    def _out_of_bounds(self, rows: np.ndarray) -> bool:
        if rows.size == 0:
            return False
        return bool(
            (self.low is not None and rows.min() < self.low) or (self.high is not None and rows.max() >= self.high)
        )

    @contextmanager
    def _open(self) -> Iterator[IO[str]]:
        try:
            opened = gzip.open if self.path.suffix == ".gz" else open
            with opened(self.path, "rt", encoding="utf-8", newline=None) as file:
                yield file
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise DataError(self._damaged(error)) from None

    def _damaged(self, error: Exception | Warning) -> Problem:
        return Problem(str(self.path), str(error)[:200], "must be a whole text file of numbers", "get it again")

    def _bad_lines(self) -> list[Problem]:
        """The first lines that are wrong, found by a slow second reading."""
        problems: list[Problem] = []
        width = 0
        with self._open() as file:
            for number, line in enumerate(file, start=1):
                text = line.split(self.comments)[0] if self.comments else line
                if (number == 1 and self.header) or not text.strip():
                    continue
                cells = text.strip().split(self.delimiter)
                width = width or len(cells)
                why = self._wrong(cells, width)
                if why:
                    problems.append(
                        Problem(f"{self.path}, line {number}", line.strip()[:80], why, "correct or remove this line")
                    )
                if len(problems) == _MAX_SHOWN:
                    break
        return problems

    def _wrong(self, cells: list[str], width: int) -> str:
        """What is wrong with a line, or nothing."""
        kind = int if self.dtype == "int64" else float
        bounds = "" if self.low is None else f" from {self.low} on"
        bounds += "" if self.high is None else f" below {self.high}"
        allowed = f"{'whole ' if kind is int else ''}numbers{bounds}"
        try:
            values = [kind(cell) for cell in cells]
        except ValueError:
            return f"must be {allowed}"
        low = -math.inf if self.low is None else self.low
        high = 2**63 if self.high is None and kind is int else math.inf if self.high is None else self.high
        if any(value < low or value >= high for value in values if not math.isnan(value)):
            return f"must be {allowed}"
        return "" if len(cells) == width else f"must have {width} columns like the first line"
