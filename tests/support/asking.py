"""The papers' queries, asked of runs that a test made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.answer import answers_of, draw_answer, table_of
from gnnexp.reports.query import read_query
from gnnexp.reports.tables.table import ReportTable


def table(name: str, runs: Sequence[RecordedRun]) -> ReportTable:
    return table_of(answers_of(read_query(name, "query"), runs))


def data(name: str, figure: str, runs: Sequence[RecordedRun]) -> list[Mapping[str, Any]]:
    """Rows that a figure draws."""
    (answer,) = answers_of(read_query(name, "query"), runs)
    return [*answer.data[figure]]


def figures(name: str, runs: Sequence[RecordedRun], folder: Path, title: str = "") -> list[Path]:
    query = read_query(name, "query")
    return draw_answer(query, answers_of(query, runs), folder, title)


def both_of(name: str) -> tuple[Callable[[Sequence[RecordedRun]], ReportTable], Callable[..., list[Path]]]:
    """Of a query: what makes its table, and what saves its figures."""
    return partial(table, name), partial(figures, name)
