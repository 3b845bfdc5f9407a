"""What a query says of runs: a table, its caption, and the data of figures.

DuckDB works in memory, cannot reach files or the network, and its settings are locked before any of the query is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.errors import ConfigError, Problem
from gnnexp.record.runs import MACHINE, Run
from gnnexp.reports.figures.chart import Row, draw_chart
from gnnexp.reports.figures.drawing import save
from gnnexp.reports.queries.query import VIEWS, Query
from gnnexp.reports.queries.tables import fill, make_labels
from gnnexp.reports.table import Table, stack

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ABSENT = "–"
# Ends the name of a column that is shown only where some row has it.
_OPTIONAL = "?"


@dataclass(frozen=True)
class Answer:
    """Of a query about the runs of one kind of machine.

    Attributes:
        machine: the kind.
        table: with its caption.
        data: rows of a figure, by its name.
    """

    machine: str
    table: Table
    data: Mapping[str, Sequence[Row]] = field(default_factory=dict)


def ask(query: Query, runs: Sequence[Run], where: str = "report.query") -> list[Answer]:
    """One answer for each kind of machine that the runs were made on, at least one.

    Raises:
        ConfigError: DuckDB refuses a part, or a figure draws a column that is not there; `where` names the query.
    """
    return [_Asking(query, [run for run in runs if run.machine == machine], where).answer(machine)
            for machine in dict.fromkeys(run.machine for run in runs) or ("",)]


def table_of(answers: Sequence[Answer]) -> Table:
    """Of all machines: each has rows of its own."""
    return answers[0].table if len(answers) == 1 else stack({one.machine: one.table for one in answers}, MACHINE)


def draw(query: Query, answers: Sequence[Answer], folder: Path, title: str) -> list[Path]:
    """Save the figures that have something to show; the files. Each kind of machine has a folder of its own."""
    files = []
    for number, one in enumerate(answers, 1):
        figures = {chart.figure: draw_chart(chart, rows) for chart in query.charts if (rows := one.data[chart.figure])}
        several = len(answers) > 1
        files += save(figures, folder / f"machine{number}" if several else folder,
                      f"{title}, {one.machine}" if several else title)
    return files


class _Asking:
    """A query and the connection through which it is asked."""

    def __init__(self, query: Query, runs: Sequence[Run], where: str) -> None:
        import duckdb

        self._query, self._where, self._error = query, f"{where} ({query.name})", duckdb.Error
        self._connection: DuckDBPyConnection = duckdb.connect()
        self._connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        self._connection.execute(_sql("tables"))
        fill(self._connection, runs, query.paper, " ".join(query.parts.values()))
        make_labels(self._connection, {})
        self._connection.execute(_sql("derived"))
        self._connection.execute(_sql("macros"))
        self._make(VIEWS, "CREATE")
        make_labels(self._connection, {number: runs[number] for row in self._rows("runs") for number in row.values()})
        self._make(VIEWS, "CREATE")  # labels have other columns now

    def answer(self, machine: str) -> Answer:
        """Of every part."""
        caption = " ".join(str(text) for row in self._rows("caption") for text in row.values() if text is not None)
        header, rows = self._read("table")
        shown = [place for place, name in enumerate(header) if header.index(name) == place
                 and (not name.endswith(_OPTIONAL) or any(row[place] is not None for row in rows))]
        cells = tuple(tuple(_ABSENT if row[place] is None else str(row[place]) for place in shown) for row in rows)
        table = Table(tuple(header[place].removesuffix(_OPTIONAL) for place in shown), cells, caption)
        return Answer(machine, table, {chart.figure: self._rows(chart.figure) for chart in self._query.charts})

    def _rows(self, part: str) -> list[Row]:
        header, rows = self._read(part)
        drawn = next((chart.columns for chart in self._query.charts if chart.figure == part), set[str]())
        if lacking := sorted(drawn - {*header}):
            raise self._refusal(part, f"draws {', '.join(lacking)}, and its result has {', '.join(header)}")
        return [dict(zip(header, row, strict=True)) for row in rows]

    def _read(self, part: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        self._make(part, "SELECT")
        return [column[0] for column in self._connection.description or ()], self._connection.fetchall()

    def _make(self, part: str, kind: str) -> None:
        """Execute a part: one SELECT, or views and macros."""
        try:
            statements = self._connection.extract_statements(self._query.parts.get(part, ""))
            if {one.type.name for one in statements} - {kind} or (kind == "SELECT" and len(statements) != 1):
                raise self._refusal(part, "must be one SELECT" if kind == "SELECT" else "must be CREATE VIEW or MACRO")
            for statement in statements:
                self._connection.execute(statement)
        except self._error as error:
            raise self._refusal(part, str(error)) from None

    def _refusal(self, part: str, why: str) -> ConfigError:
        return ConfigError(Problem(self._where, part, why, "correct the query"))


def _sql(name: str) -> str:
    return (resources.files("gnnexp.reports.queries") / f"{name}.sql").read_text(encoding="utf-8")
