"""The cells of a table: values until a format is chosen, and what each format makes of them.

A cell is a text, a number, the statistics of a quantity over the runs of a row, or how many runs a row has. Data
formats (CSV, JSON, Parquet) get all its fields; formats that people read get one text.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gnnexp.reports.metrics import mean_and_interval

ABSENT = "–"
# From this number of runs on, an interval is shown; below it, the least and the greatest value.
ENOUGH_FOR_INTERVAL = 5

Value = float | int | str | None


@dataclass(frozen=True)
class NumberCell:
    """One number.

    Attributes:
        value: the number in the column's unit; NaN if there is none.
        form: format of the text.
        absent: text in place of a number, such as `OOM`.
    """

    FIELDS: ClassVar[Mapping[str, type]] = {"": float}
    value: float
    form: str = ".4g"
    absent: str = ABSENT

    @property
    def text(self) -> str:
        """The number as people read it."""
        return number_text(self.value, self.form) if math.isfinite(self.value) else self.absent

    @property
    def fields(self) -> dict[str, Value]:
        """The number itself; None if there is none."""
        return {"": finite(self.value)}


@dataclass(frozen=True)
class StatisticsCell:
    """A quantity over the runs of a row.

    Attributes:
        values: a value per run that has one, in the column's unit. All are finite.
        form: format of the mean, the least and the greatest value. Fixed decimals (`.4f`) apply to the interval, too.
        absent: text if there is no value, such as `OOM`.
    """

    FIELDS: ClassVar[Mapping[str, type]] = {"mean": float, "half_width": float, "min": float, "max": float, "n": int}
    values: tuple[float, ...]
    form: str = ".4g"
    absent: str = ABSENT

    def __post_init__(self) -> None:
        assert all(map(math.isfinite, self.values)), "a value that is not finite is no value"

    @property
    def mean(self) -> float:
        """Mean of the values; NaN if there are none. The mean of equal values is this value, without a rounding."""
        if not self.values:
            return math.nan
        return min(max(statistics.fmean(self.values), min(self.values)), max(self.values))

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % confidence interval of the mean (Student's t); NaN below two values."""
        return mean_and_interval(self.values)[1]

    @property
    def text(self) -> str:
        """`1.23 ± 0.04`; below `ENOUGH_FOR_INTERVAL` values `1.23 (1.19 to 1.26)`; only the number if all are equal."""
        spread = self.spread
        return f"{self.head} {spread}" if spread else self.head

    @property
    def head(self) -> str:
        """The mean as text, or the text in its place."""
        return number_text(self.mean, self.form) if self.values else self.absent

    @property
    def spread(self) -> str:
        """What stands behind the mean: the interval or the range; empty if all values are equal."""
        if len(self.values) < 2 or self.least == self.greatest:
            return ""
        if len(self.values) < ENOUGH_FOR_INTERVAL:
            return f"({self.least} to {self.greatest})"
        return f"± {self.half}"

    @property
    def least(self) -> str:
        """The least value as text."""
        return number_text(min(self.values), self.form) if self.values else self.absent

    @property
    def greatest(self) -> str:
        """The greatest value as text."""
        return number_text(max(self.values), self.form) if self.values else self.absent

    @property
    def half(self) -> str:
        """Half the width of the interval as text; a dash below two values."""
        form = self.form if self.form.endswith("f") else ".2g"
        return number_text(self.half_width, form) if len(self.values) > 1 else ABSENT

    @property
    def bounds(self) -> tuple[float, float]:
        """What a figure draws around the mean: the range or the interval, as in `spread`."""
        if len(self.values) >= ENOUGH_FOR_INTERVAL:
            return self.mean - self.half_width, self.mean + self.half_width
        return min(self.values, default=math.nan), max(self.values, default=math.nan)

    @property
    def fields(self) -> dict[str, Value]:
        """All five numbers; None where there is none."""
        least, greatest = (min(self.values), max(self.values)) if self.values else (None, None)
        half, mean = finite(self.half_width), finite(self.mean)
        return {"mean": mean, "half_width": half, "min": least, "max": greatest, "n": len(self.values)}


@dataclass(frozen=True)
class VerdictCell(NumberCell):
    """A number, or the reason why there is none (`OOM`), which data formats have in a field of its own."""

    FIELDS: ClassVar[Mapping[str, type]] = {"value": float, "verdict": str}

    @property
    def fields(self) -> dict[str, Value]:
        """The number or the reason; None for the other."""
        reason = self.absent if self.absent != ABSENT and not math.isfinite(self.value) else None
        return {"value": finite(self.value), "verdict": reason}


@dataclass(frozen=True)
class CountCell:
    """How many runs a row has.

    Attributes:
        finished: runs that finished.
        others: runs that did not.
        verdict: how the others ended, such as `OOM`.
    """

    FIELDS: ClassVar[Mapping[str, type]] = {"finished": int, "failed": int, "verdict": str}
    finished: int
    others: int = 0
    verdict: str = ""

    @property
    def text(self) -> str:
        """`3`, or `2 (+1 OOM)`."""
        return f"{self.finished}" + (f" (+{self.others} {self.verdict})" if self.others else "")

    @property
    def fields(self) -> dict[str, Value]:
        """The two counts, and the verdict on those that failed."""
        return {"finished": self.finished, "failed": self.others, "verdict": self.verdict if self.others else None}


@dataclass(frozen=True)
class IntervalCell:
    """An interval.

    Attributes:
        low, high: its ends; NaN if there is none.
        form: format of both.
    """

    FIELDS: ClassVar[Mapping[str, type]] = {"low": float, "high": float}
    low: float
    high: float
    form: str = ".4g"

    @property
    def text(self) -> str:
        """`0.81 to 0.88`."""
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return ABSENT
        return f"{number_text(self.low, self.form)} to {number_text(self.high, self.form)}"

    @property
    def fields(self) -> dict[str, Value]:
        """Both ends; None if there is no interval."""
        return {"low": finite(self.low), "high": finite(self.high)}


TableCell = str | NumberCell | StatisticsCell | CountCell | IntervalCell


def cell_text(cell: TableCell) -> str:
    """A cell as people read it."""
    return cell if isinstance(cell, str) else cell.text


def number_text(value: float, form: str) -> str:
    """A number as people read it; zero has no decimals, so that it differs from what is merely small."""
    return f"{value:{form}}" if value else "0"


def finite(value: float) -> float | None:
    """The value, or None for NaN and infinity, which data formats do not have."""
    return value if math.isfinite(value) else None


def fields_of(column: Sequence[TableCell]) -> Mapping[str, type]:
    """The fields of a column and their types; a column of texts has one field, without a name."""
    kinds = [type(cell).FIELDS for cell in column if not isinstance(cell, str)]
    assert all(kind == kinds[0] for kind in kinds), "a column has one kind of cells"
    return kinds[0] if kinds else {"": str}


def values_in(column: Sequence[TableCell]) -> list[dict[str, Value]]:
    """The fields of each cell of a column. In a column of numbers a text, such as a dash, has no values."""
    fields = fields_of(column)
    texts = fields == {"": str}
    nothing: dict[str, Value] = dict.fromkeys(fields)
    return [({"": cell} if texts else nothing) if isinstance(cell, str) else cell.fields for cell in column]
