"""Reads text tables of numbers (`.tsv`, `.csv`, `.txt`, each also `.gz`) fast, with errors that name the line."""

from __future__ import annotations

import gzip
import itertools
import math
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Literal

import numpy as np

from gnnexp.errors import DataError, Problem

_MAX_SHOWN = 5
# In longer lines, the wrong number is not searched.
_MAX_LINE = 1 << 20
# Numbers as text are compressed to a third or a tenth. A file that exceeds both limits is refused as a bomb.
_MAX_RATIO, _ALWAYS_UNPACKED = 100, 1 << 24


_SEPARATORS = (",", ";", "|")  # white space needs no option


def _numbers_between(line: str, separator: str) -> bool:
    """Whether the line consists of several numbers with this separator."""
    try:
        return len([float(cell) for cell in line.split(separator)]) > 1
    except ValueError:
        return False


def unpacked_limit(path: Path) -> int:
    """Largest number of bytes that a compressed text may have after unpacking."""
    return max(_ALWAYS_UNPACKED, _MAX_RATIO * path.stat().st_size)


class _Unpacked(gzip.GzipFile):
    """A `.gz` file that raises an error if it unpacks to far more bytes than a table can have."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._limit = unpacked_limit(path)

    def read1(self, size: int = -1) -> bytes:
        """Read some bytes; `io.TextIOWrapper` calls this."""
        data = super().read1(size)
        if self.tell() > self._limit:
            raise OSError(f"it unpacks to more than {self._limit} bytes; unpack it yourself if that is right")
        return data


@dataclass(frozen=True)
class NumberTable:
    """A text file of numbers, and its format.

    Attributes:
        path: the file; `.gz` files are unpacked while they are read.
        dtype: data type of the numbers.
        delimiter: separator of columns; None = any white space.
        header: whether the first line has no data.
        comments: text that starts a comment, up to the end of the line; empty = there are no comments.
        low: smallest allowed number, or None.
        high: smallest number that is too large, or None.
        settable: whether the user can set the format (`dataset.header`, `dataset.delimiter`), for fixes in messages.
    """

    path: Path
    dtype: Literal["int64", "float32", "float64"] = "int64"
    delimiter: str | None = ","
    header: bool = False
    comments: str = ""
    low: int | None = None
    high: int | None = None
    settable: bool = False

    def read(self) -> np.ndarray:
        """`[n, k]` numbers. All rows have the same number of columns.

        Raises:
            DataError: the file is damaged, or has wrong lines. Names the first of these with number and content.
        """
        with self._open() as file:
            return self._numbers(itertools.islice(file, int(self.header), None))

    def chunks(self, rows: int) -> Iterator[np.ndarray]:
        """The same rows in chunks `[n, k]` of at most `rows` rows. Only one chunk is in memory.

        Raises:
            DataError: as `read`, at the chunk with the mistake.
        """
        width = 0
        with self._open() as file:
            left = itertools.islice(self._lines(file), int(self.header), None)
            while chunk := list(itertools.islice(left, rows)):
                numbers = self._numbers(chunk)
                if numbers.shape[0] and numbers.shape[1] != (width := width or numbers.shape[1]):
                    raise DataError(self._line_problems())
                if numbers.shape[0]:
                    yield numbers

    def words(self) -> list[list[str]]:
        """The cells of each line that is not blank, as text.

        Raises:
            DataError: the file is damaged.
        """
        with self._open() as file:
            return [line.strip().split(self.delimiter) for line in self._lines(file) if line.strip()]

    def _lines(self, file: IO[str]) -> Iterator[str]:
        """The lines one by one. Lines that are too long raise, so that a file without line breaks is not in memory."""
        while line := file.readline(_MAX_LINE + 1):
            if len(line) > _MAX_LINE:
                raise DataError(self._line_problems())
            yield line

    def _ascii(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines, after a check that their numbers are ASCII.

        For other characters in an integer, numpy reads beyond the end of its table of digits. It then uses the bytes
        there as a digit (`1\u01fe` is 472), or crashes with SIGSEGV.

        Raises:
            ValueError: a line has a number that is not ASCII.
        """
        for line in lines:
            if not line.isascii() and not self._without_marks(line).isascii():
                raise ValueError("it has numbers that are not ASCII")
            yield line

    def _without_marks(self, line: str) -> str:
        """The line without its comment and delimiters, which may have any characters."""
        text = line.split(self.comments, maxsplit=1)[0] if self.comments else line
        return text.replace(self.delimiter, "") if self.delimiter else text

    def _numbers(self, lines: Iterable[str]) -> np.ndarray:
        """`[n, k]` numbers of some lines. Comments and blank lines have no rows."""
        try:
            with warnings.catch_warnings():
                # numpy only warns if it reads 1.5 as the integer 1, or finds no rows.
                warnings.simplefilter("error", DeprecationWarning)
                warnings.filterwarnings("ignore", message=".*input contained no data")
                numbers = np.loadtxt(
                    self._ascii(lines),
                    dtype=self.dtype,
                    delimiter=self.delimiter,
                    comments=self.comments or None,
                    ndmin=2,
                )
        except (ValueError, OverflowError, DeprecationWarning) as error:
            raise DataError(self._line_problems() or [self._damaged(error)]) from None
        except MemoryError as error:
            raise DataError(self._damaged(error)) from None
        if self._has_numbers_outside(numbers):
            raise DataError(self._line_problems())
        return numbers

    def _has_numbers_outside(self, rows: np.ndarray) -> bool:
        if rows.size == 0:
            return False
        return bool(
            (self.low is not None and rows.min() < self.low) or (self.high is not None and rows.max() >= self.high)
        )

    @contextmanager
    def _open(self) -> Iterator[IO[str]]:
        try:
            packed = self.path.suffix == ".gz"
            with (
                _Unpacked(self.path) if packed else self.path.open("rb") as raw,
                TextIOWrapper(raw, "utf-8-sig") as file,
            ):
                yield file
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise DataError(self._damaged(error)) from None

    def _damaged(self, error: Exception | Warning) -> Problem:
        found = str(error)[:200] or type(error).__name__
        return Problem(str(self.path), found, "must be a whole text file of numbers", "get it again")

    def _line_problems(self) -> list[Problem]:
        """Problems of the first wrong lines. They are found in a second, slow pass."""
        problems: list[Problem] = []
        width = 0
        with self._open() as file:
            for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE + 1), ""), start=1):
                if len(line) > _MAX_LINE:
                    return [
                        *problems,
                        Problem(
                            f"{self.path}, line {number}",
                            line[:80],
                            "is far too long for a row of numbers, or has a wrong number",
                            "correct or remove this line",
                        ),
                    ]
                text = line.split(self.comments)[0] if self.comments else line
                if (number == 1 and self.header) or not text.strip():
                    continue
                cells = text.strip().split(self.delimiter)
                why = self._why_wrong(cells, width or len(cells))
                if why is None and not self._without_marks(line).isascii():
                    why = "must be ASCII between its numbers too"
                if why is not None:
                    fix = self._fix(line, first=width == 0)
                    problems.append(Problem(f"{self.path}, line {number}", line.strip()[:80], why, fix))
                width = width or len(cells)
                if len(problems) == _MAX_SHOWN:
                    break
        return problems

    def _fix(self, line: str, *, first: bool) -> str:
        """The fix of a wrong line. If `first`, the line may be the names of columns."""
        if not self.settable:
            return "correct or remove this line"
        other = next((mark for mark in _SEPARATORS if mark in line.strip() and mark != self.delimiter), None)
        if other is not None and _numbers_between(line, other):
            return f"set \"dataset.delimiter='{other}'\" if that separates the columns"
        if first and not self.header:
            return "set dataset.header=true if this line names the columns, else correct it"
        return "correct or remove this line"

    def _why_wrong(self, cells: list[str], width: int) -> str | None:
        """What the line must be, if it is wrong."""
        kind = int if self.dtype == "int64" else float
        bounds = "" if self.low is None else f" from {self.low} on"
        bounds += "" if self.high is None else f" below {self.high}"
        allowed = f"{'whole ' if kind is int else ''}numbers{bounds}"
        try:
            values = [kind(cell.encode("ascii")) for cell in cells]
        except ValueError:
            return f"must be {allowed}"
        ends = (-(2**63), 2**63) if kind is int else (-math.inf, math.inf)
        low, high = ends[0] if self.low is None else self.low, ends[1] if self.high is None else self.high
        # Values are compared without conversion, because an integer of 310 digits has no float. NaN is in any bounds.
        if any(value < low or value >= high for value in values):
            return f"must be {allowed}"
        return None if len(cells) == width else f"must have {width} columns like the first line"
