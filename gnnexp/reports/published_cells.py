"""Published numbers (cells of tables, numbers in texts, each with its line), and the order of systems by them.

`sweeps/<paper>/published.csv` is a transcription: nothing is read off a figure. Tests look up every value and every
quote in the paper's text. Columns are the fields of `Cell`.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from gnnexp.components.signature import unknown
from gnnexp.config.folders import papers_with
from gnnexp.errors import ConfigError

_FILE = "published.csv"
_FACTORS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "million": 1e6, "billion": 1e9}
_NUMBER = re.compile(
    r"([-+]?(?:\d{1,3}(?:,\d{3})+|\d*)(?:[.,]\d+)?)\s*([KMBT]?|million|billion)\s*"
    r"(?:[xX×%s]|ms|[KMGT]i?B)?"
)
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Cell:
    """One published number.

    Attributes:
        paper: the paper's folder name.
        source: `Table 3`, `Section 6.2`, `Figure 5` (text about the figure), `Abstract`.
        system: our preset of that name, or the paper's word; empty if the number belongs to no system.
        dataset: the graph without `ogbn-` (`papers100m`); empty if the number belongs to no graph.
        model: the model, such as `sage`; empty if the number belongs to no model.
        setting: further conditions; `over` is what a ratio compares with.
        quantity: the quantity with its unit (`epoch_s`).
        value: the number as printed.
        upper: the other end of a range, as printed; empty if the number is no range.
        unit: unit of `value` and `upper`.
        hardware: one of our profiles, or the paper's words.
        quote: the line of the table, or the sentence.
    """

    paper: str
    source: str
    system: str
    dataset: str
    model: str
    setting: Mapping[str, str]
    quantity: str
    value: str
    upper: str
    unit: str
    hardware: str
    quote: str

    @property
    def number(self) -> float:
        """`value` as a number; NaN if it is none (`OOM`)."""
        return number_of(self.value)


def number_of(printed: str) -> float:
    """`926M` is 926e6, `1.2x` 1.2, `5,87×` 5.87, `1,041` 1041, `ten` 10; NaN for what is no number (`OOM`)."""
    text = printed.strip()
    if text in _WORDS:
        return float(_WORDS.index(text))
    found = _NUMBER.fullmatch(text)
    if found is None or not found[1].strip("+-"):
        return math.nan
    whole = re.sub(r",(?=\d{3}(?:\D|$))", "", found[1])
    return float(whole.replace(",", ".")) * _FACTORS[found[2]]


def papers() -> tuple[str, ...]:
    """Papers that have been transcribed."""
    return tuple(papers_with(_FILE))


@cache
def cells(paper: str) -> tuple[Cell, ...]:
    """All transcribed cells of `paper`, in the order of its file.

    Raises:
        ConfigError: there is no such paper.
    """
    files = papers_with(_FILE)
    if paper not in files:
        raise ConfigError(unknown("report.paper", paper, paper, files))
    with files[paper].open(encoding="utf-8", newline="") as file:
        return tuple(Cell(paper=paper, setting=_setting(row.pop("setting")), **row) for row in csv.DictReader(file))


def _setting(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(";")) if text else {}


def chosen(found: Iterable[Cell], **wanted: str) -> list[Cell]:
    """Cells whose fields or settings have the `wanted` values."""
    return [
        cell
        for cell in found
        if all(getattr(cell, name, cell.setting.get(name)) == value for name, value in wanted.items())
    ]


def printed_value(paper: str, absent: str = "–", **wanted: str) -> str:
    """The printed value of the only cell with the `wanted` values, or its range; `absent` if there is no such cell."""
    found = chosen(cells(paper), **wanted)
    assert len(found) < 2, f"{paper}, {wanted}: {len(found)} cells"
    if not found:
        return absent
    return f"{found[0].value} to {found[0].upper}" if found[0].upper else found[0].value


def pairs_in_order(points: Iterable[tuple[Hashable, float, float]]) -> tuple[int, int]:
    """How many pairs of systems of a group are ordered as in the paper, and how many pairs there are.

    Each system is its group (what systems must share to be compared), our number and the paper's number. A number is
    NaN if there is none, and infinite if the run ran out of memory. Lower is better. Pairs with equal numbers in the
    paper are left out, and so are pairs that lack one of the four numbers.
    """
    groups: dict[Hashable, list[tuple[float, float]]] = {}
    for group, ours, papers in points:
        if not math.isnan(ours) and not math.isnan(papers):
            groups.setdefault(group, []).append((ours, papers))
    pairs = [(a, b) for members in groups.values() for a, b in itertools.combinations(members, 2) if a[1] != b[1]]
    return sum((a[0] < b[0]) == (a[1] < b[1]) and a[0] != b[0] for a, b in pairs), len(pairs)
