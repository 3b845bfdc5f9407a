"""Days whose order no value tells are refused; days that have one meaning are read with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.datasets.tables.dataset import Tables
from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph

MONTH_FIRST = ["01/02/2024", "12/01/2023", "01/20/2024", "03/01/2024", "02/01/2024", "11/30/2023"]
DAY_FIRST = ["02/01/2024", "01/12/2023", "20/01/2024", "01/03/2024", "01/02/2024", "30/11/2023"]
ISO = ["2024-01-02", "2023-12-01", "2024-01-20", "2024-03-01", "2024-02-01", "2023-11-30"]
EQUAL = ["01/01/2024", "02/02/2024", "03/03/2024", "04/04/2024", "05/05/2024", "06/06/2024"]


def loaded(folder: Path, days: list[str], *, of_links: bool = False) -> Graph:
    ends = [(one, (one + 1) % len(days)) for one in range(len(days))]
    (folder / "nodes.csv").write_text(
        "id,label,date\n" + "".join(f"{number},{'ab'[number % 2]},{day}\n" for number, day in enumerate(days))
    )
    (folder / "edges.csv").write_text(
        "source,target,date\n" + "".join(f"{one},{other},{day}\n" for (one, other), day in zip(ends, days, strict=True))
    )
    of_nodes = {"nodes": "nodes.csv", "train": 0.5, "val": 0.2}
    options = {"link_split": {"val": 0.2, "test": 0.2}} if of_links else of_nodes
    return Tables(path=str(folder), split="time", time="date", **options).load()  # type: ignore[arg-type]


@pytest.mark.parametrize("of_links", [False, True])
@pytest.mark.parametrize(
    ("days", "said"),
    [
        (["05/11/2024", "06/10/2024", "07/09/2024", "08/08/2024"], "day, month, year or month, day, year"),
        (["05-11-24", "06-10-23", "07-09-22", "08-07-21"], "day, month, year or month, day, year or year, month, day"),
        (["13-11-24", "14-10-23", "15-09-22", "16-07-21"], "day, month, year or year, month, day"),
        (
            ["05/11/2024 10:00:00", "06/10/2024 11:00:00", "07/09/2024 12:00:00", "08/07/2024 00:00:00"],
            "month, day, year",
        ),
    ],
)
def test_days_with_two_meanings_are_refused(tmp_path: Path, days: list[str], said: str, of_links: bool) -> None:
    with pytest.raises(DataError) as caught:
        loaded(tmp_path, days, of_links=of_links)
    assert "column date" in str(caught.value) and said in str(caught.value), caught.value


@pytest.mark.parametrize("days", [MONTH_FIRST, DAY_FIRST, ISO])
def test_days_with_one_meaning_are_read_with_it(tmp_path: Path, days: list[str]) -> None:
    splits = loaded(tmp_path, days).splits
    order = sorted(range(len(ISO)), key=ISO.__getitem__)
    assert sorted(splits.train.tolist()) == sorted(order[:3]) and splits.val.tolist() == order[3:4]


def test_equal_numbers_have_one_meaning(tmp_path: Path) -> None:
    assert sorted(loaded(tmp_path, EQUAL).splits.train.tolist()) == [0, 1, 2]
