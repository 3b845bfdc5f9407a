"""Cells: what people read of values over runs, and the numbers that every text leaves out."""

from __future__ import annotations

import math

import pytest

from gnnexp.reports.tables.cells import CountCell, NumberCell, StatisticsCell, cell_text, fields_of, values_in


@pytest.mark.parametrize(
    ("values", "form", "text"),
    [
        ((50.0,), ".2f", "50.00"),
        ((50.0, 60.0), ".2f", "55.00 (50.00 to 60.00)"),
        ((1.0, 2.0, 3.0), ".4g", "2 (1 to 3)"),
        ((1.0, 2.0, 3.0, 4.0), ".4g", "2.5 (1 to 4)"),
        ((1.0, 2.0, 3.0, 4.0, 5.0), ".4g", "3 ± 2"),
        ((1.0, 2.0, 3.0, 4.0, 5.0), ".4f", "3.0000 ± 1.9632"),
        ((0.25,) * 2, ".4f", "0.2500"),
        ((0.25,) * 5, ".4f", "0.2500"),
        ((0.0, 0.0), ".3f", "0"),
        ((0.0, 0.5), ".3f", "0.250 (0 to 0.500)"),
        ((-1.0, 1.0), ".2f", "0 (-1.00 to 1.00)"),
        ((-0.0,), ".2f", "0"),
        ((1e-5,), ".3f", "0.000"),
        ((1.5,), ".4g", "1.5"),
        ((), ".4g", "–"),
    ],
)
def test_a_few_values_show_their_range_and_many_an_interval(values: tuple[float, ...], form: str, text: str) -> None:
    assert StatisticsCell(values, form).text == text


@pytest.mark.parametrize(
    ("values", "half"),
    [
        ((50.0, 60.0), 12.7062 * 5),
        ((1.0, 2.0, 3.0), 4.302653 / math.sqrt(3)),
        ((1.0, 2.0, 3.0, 4.0, 5.0), 2.776445 * math.sqrt(2.5 / 5)),
        ((0.25, 0.25), 0.0),
    ],
)
def test_the_interval_is_there_whatever_the_text_shows(values: tuple[float, ...], half: float) -> None:
    cell = StatisticsCell(values)
    assert cell.half_width == cell.fields["half_width"] == pytest.approx(half, rel=1e-5)


def test_all_numbers_of_a_cell() -> None:
    several = StatisticsCell((3.0, 1.0, 2.0)).fields
    assert several == {"mean": 2.0, "half_width": pytest.approx(2.484138), "min": 1.0, "max": 3.0, "n": 3}
    assert StatisticsCell((3.0,)).fields == {"mean": 3.0, "half_width": None, "min": 3.0, "max": 3.0, "n": 1}
    assert StatisticsCell(()).fields == {"mean": None, "half_width": None, "min": None, "max": None, "n": 0}
    assert math.isnan(StatisticsCell((3.0,)).half_width) and math.isnan(StatisticsCell(()).mean)


def test_the_parts_of_a_text() -> None:
    """A paper has a column for the mean and one for what stands behind it."""
    few, many = StatisticsCell((1.0, 2.0), ".2f"), StatisticsCell((1.0, 2.0, 3.0, 4.0, 5.0), ".2f")
    assert (few.head, few.spread, few.least, few.greatest, few.half) == (
        "1.50",
        "(1.00 to 2.00)",
        "1.00",
        "2.00",
        "6.35",
    )
    assert (many.head, many.spread, many.half) == ("3.00", "± 1.96", "1.96")
    assert StatisticsCell((1.0,)).half == "–"
    none = StatisticsCell((), absent="OOM")
    assert (none.head, none.spread, none.least, none.greatest, none.half) == ("OOM", "", "OOM", "OOM", "–")


def test_a_figure_draws_what_the_text_says() -> None:
    assert StatisticsCell((1.0, 2.0, 6.0)).bounds == (1.0, 6.0)
    low, high = StatisticsCell((1.0, 2.0, 3.0, 4.0, 5.0)).bounds
    assert (low, high) == pytest.approx((3 - 1.963243, 3 + 1.963243))
    assert all(map(math.isnan, StatisticsCell(()).bounds))


def test_words_in_place_of_numbers() -> None:
    assert StatisticsCell((), absent="OOM").text == NumberCell(math.nan, absent="OOM").text == "OOM"
    assert NumberCell(math.nan).text == "–" and NumberCell(math.nan).fields == {"": None}
    assert StatisticsCell((1.0,), absent="OOM").text == "1", "there is a value"


def test_one_number() -> None:
    cells = [NumberCell(0.0, ".3f"), NumberCell(0.0004, ".3f"), NumberCell(1234.5), NumberCell(1234.5, ".2f")]
    assert [cell.text for cell in cells] == ["0", "0.000", "1234", "1234.50"], "zero is not what is merely small"
    assert [cell.fields[""] for cell in cells] == [0.0, 0.0004, 1234.5, 1234.5]


def test_how_many_runs() -> None:
    assert (CountCell(3).text, CountCell(2, 1, "OOM").text, CountCell(0, 2, "failed").text) == (
        "3",
        "2 (+1 OOM)",
        "0 (+2 failed)",
    )
    assert CountCell(2, 1, "OOM").fields == {"finished": 2, "failed": 1, "verdict": "OOM"}
    assert CountCell(3).fields == {"finished": 3, "failed": 0, "verdict": None}


def test_a_column_has_the_fields_of_its_numbers_and_a_dash_has_no_values() -> None:
    column = ("–", StatisticsCell((2.0,)))
    assert [*fields_of(column)] == ["mean", "half_width", "min", "max", "n"] and cell_text(column[0]) == "–"
    assert values_in(column) == [
        {"mean": None, "half_width": None, "min": None, "max": None, "n": None},
        {"mean": 2.0, "half_width": None, "min": 2.0, "max": 2.0, "n": 1},
    ]
    assert fields_of(("a", "–")) == {"": str} and values_in(("a", "–")) == [{"": "a"}, {"": "–"}]


def test_a_column_has_one_kind_of_cells() -> None:
    with pytest.raises(AssertionError, match="one kind"):
        fields_of((NumberCell(1.0), StatisticsCell((1.0,))))
