"""Published numbers are in the papers: every value in its quote, every quote in the text."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest

from gnnexp.errors import ConfigError
from gnnexp.reports.published_cells import Cell, cells, chosen, number_of, papers

TEXTS = Path(os.environ.get("GNNEXP_DATA", "")).resolve().parent / "papers"
needs_texts = pytest.mark.skipif(not TEXTS.is_dir(), reason="the papers' texts are not next to GNNEXP_DATA")
SOURCE = re.compile(r"(Table|Figure|Section) [0-9IVXA]+[.0-9A-Za-z()-]*|Abstract|Introduction")


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def test_all_five_papers_are_there() -> None:
    assert papers() == ("fastsample", "gsplit", "hongtu", "neutrontp", "sdt_gnn")
    with pytest.raises(ConfigError, match="gsplit"):
        cells("gsplid")


@needs_texts
@pytest.mark.parametrize("paper", papers())
def test_every_cell_is_in_the_text(paper: str) -> None:
    text = flat((TEXTS / f"{paper}.txt").read_text(encoding="utf-8"))
    for cell in cells(paper):
        quote = flat(cell.quote)
        assert quote and quote in text, cell
        for printed in filter(None, (cell.value, cell.upper)):
            assert re.search(rf"(?<![\d.]){re.escape(printed)}(?!\d)", quote), cell


@pytest.mark.parametrize("paper", papers())
def test_cells_are_distinct_and_well_formed(paper: str) -> None:
    seen = set()
    for cell in cells(paper):
        assert SOURCE.fullmatch(cell.source), cell
        assert cell.value and cell.quantity and len(cell.quote) <= 600, cell
        assert all(re.fullmatch(r"[a-z0-9_]*", word) for word in (cell.system, cell.dataset, cell.model, cell.quantity))
        key = (
            cell.source,
            cell.system,
            cell.dataset,
            cell.model,
            *sorted(cell.setting.items()),
            cell.quantity,
            cell.hardware,
            "" if cell.source.startswith("Table") else cell.quote,
        )
        assert key not in seen, cell
        seen.add(key)


@pytest.mark.parametrize(
    ("printed", "number"),
    [
        ("926M", 926e6),
        ("13.4B", 13.4e9),
        ("1.2x", 1.2),
        ("2.5×", 2.5),
        ("61.9%", 61.9),
        ("1041", 1041),
        ("1,041.5", 1041.5),
        ("5,87×", 5.87),
        ("12,345,678", 12345678),
        ("ten", 10),
        ("-3", -3),
        (".5", 0.5),
        ("80GB", 80),
        ("3.1K", 3100),
        ("+4.5", 4.5),
        ("111 million", 111e6),
        ("1.6 billion", 1.6e9),
    ],
)
def test_numbers_as_printed(printed: str, number: float) -> None:
    assert number_of(printed) == pytest.approx(number)


@pytest.mark.parametrize("printed", ["OOM", "-", "–", "", "N/A", "1.2.3", "12 apples", "2L", "1,2,3"])
def test_what_is_no_number(printed: str) -> None:
    assert math.isnan(number_of(printed))


def test_cells_are_chosen_by_field_and_by_setting() -> None:
    one = Cell("p", "Table 1", "gsplit", "orkut", "sage", {"workers": "4"}, "epoch_s", "1.5", "", "s", "", "q")
    assert chosen([one], system="gsplit", workers="4") == [one]
    assert chosen([one], workers="8") == chosen([one], dataset="reddit") == []
