"""The answer of a query about runs (a table, its caption, the data of figures), and the tables that the query reads.

DuckDB works in memory and cannot reach files or the network. Its settings are locked before it reads the query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.errors import ConfigError, Problem
from gnnexp.planning.work import full_factor, full_steps
from gnnexp.record.runs import MACHINE, RecordedRun
from gnnexp.reports.figures.chart import Row, draw_chart
from gnnexp.reports.figures.drawing import save
from gnnexp.reports.labels import ALWAYS, flat_values, label_runs, said, setting_of
from gnnexp.reports.published_cells import cells
from gnnexp.reports.published_graphs import fraction_of_targets, graph_like, published_graph
from gnnexp.reports.query import VIEWS, Query
from gnnexp.reports.tables.table import ReportTable, stack

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


Rows = Iterator[Mapping[str, Any]]
# Long tables, and the names in a query's text that need them.
_LONG = {"metrics": ("epochs", "typical", "full_graph"), "lines": ("ranks", "batches")}


def _fill(connection: DuckDBPyConnection, runs: Sequence[RecordedRun], paper: str, text: str) -> None:
    """Fill the tables of `tables.sql`. A long table stays empty if the query's `text` does not name it."""
    tables: Mapping[str, Callable[[], Rows]] = {
        "runs": lambda: (_run(number, run, paper) for number, run in enumerate(runs)),
        "metrics": lambda: _each(runs, lambda run: ({"metrics": metrics} for metrics in run.epochs)),
        "lines": lambda: _each(
            runs, lambda run: ({**line, "resumed": bool(line.get("resumed"))} for line in run.lines())
        ),
        "published": lambda: (asdict(cell) | {"number": cell.number} for cell in (cells(paper) if paper else ())),
    }
    for name, rows in tables.items():
        columns = connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE {name})").fetchall()
        if any(word in text for word in _LONG.get(name, ("",))):
            kept = ({column: row.get(column) for column, _ in columns} for row in rows())
            _insert(connection, f"INSERT INTO {name} BY NAME", ", ".join(map(" ".join, columns)), kept)


def _each(runs: Sequence[RecordedRun], epochs_of: Callable[[RecordedRun], Rows]) -> Rows:
    for number, run in enumerate(runs):
        yield from ({"run": number, "epoch": epoch, **row} for epoch, row in enumerate(epochs_of(run)))


def _insert(connection: DuckDBPyConnection, into: str, columns: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert rows by the names of the columns, each with its type."""
    connection.execute(
        f"{into} SELECT unnest($1::JSON::STRUCT({columns})[], max_depth := 2)", [json.dumps([*rows], default=str)]
    )


def make_labels(connection: DuckDBPyConnection, chosen: Mapping[int, RecordedRun]) -> None:
    """Make `labelled` and `labels`: what distinguishes the `chosen` runs, as columns and one by one."""
    labels = label_runs([*chosen.values()])
    struct = ", ".join(f'"{name}" VARCHAR' for name in (labels[0] if labels else ALWAYS))
    _insert(
        connection,
        "CREATE OR REPLACE TABLE labelled AS",
        f"run INT, label STRUCT({struct})",
        ({"run": number, "label": label} for number, label in zip(chosen, labels, strict=True)),
    )
    each = "run INT, place INT, key VARCHAR, value VARCHAR, said VARCHAR"
    _insert(
        connection,
        "CREATE OR REPLACE TABLE labels AS",
        each,
        (
            {"run": number, "place": place, "key": key, "value": value, "said": said(key, value)}
            for number, label in zip(chosen, labels, strict=True)
            for place, (key, value) in enumerate(label.items())
        ),
    )


def _run(number: int, run: RecordedRun, paper: str) -> Mapping[str, Any]:
    names = ("system", *flat_values(run.config))
    keys = dict.fromkeys(key for name in names for key in accumulate(name.split("."), "{}.{}".format))
    setting = setting_of(run)
    like = graph_like(setting.shape)
    return {
        "run": number,
        "path": str(run.path),
        "status": run.status,
        "num_epochs": len(run.epochs),
        "config": {key: run.value(key) for key in keys},
        "facts": run.facts,
        "quality": run.quality,
        "provenance": run.provenance,
        "graph": published_graph(run),
        "graph_like": like,
        "setting": asdict(setting),
        "setting_name": str(setting),
        "full_size": full_factor(run) * full_steps(run, fraction_of_targets(paper, run)) if like else 1,
    }


_ABSENT = "–"
# Suffix of a column's name; such a column is shown only if some row has a value in it.
_OPTIONAL = "?"


@dataclass(frozen=True)
class QueryAnswer:
    """The answer of a query about the runs of one kind of machine.

    Attributes:
        machine: the kind of machine.
        table: the table, with its caption.
        data: rows of each figure, by the figure's name.
    """

    machine: str
    table: ReportTable
    data: Mapping[str, Sequence[Row]] = field(default_factory=dict)


def answers_of(query: Query, runs: Sequence[RecordedRun], where: str = "report.query") -> list[QueryAnswer]:
    """One answer for each kind of machine that the runs were made on, and at least one answer.

    Raises:
        ConfigError: DuckDB refuses a part, or a figure draws a missing column; `where` names the query.
    """
    return [
        _QuerySession(query, [run for run in runs if run.machine == machine], where).answer(machine)
        for machine in dict.fromkeys(run.machine for run in runs) or ("",)
    ]


def table_of(answers: Sequence[QueryAnswer]) -> ReportTable:
    """The table of all machines, in which each machine has its own rows."""
    return answers[0].table if len(answers) == 1 else stack({one.machine: one.table for one in answers}, MACHINE)


def draw_answer(query: Query, answers: Sequence[QueryAnswer], folder: Path, title: str) -> list[Path]:
    """Save the figures that have data, and return the files. Each kind of machine has its own folder."""
    files = []
    for number, one in enumerate(answers, 1):
        figures = {chart.figure: draw_chart(chart, rows) for chart in query.charts if (rows := one.data[chart.figure])}
        several = len(answers) > 1
        files += save(
            figures, folder / f"machine{number}" if several else folder, f"{title}, {one.machine}" if several else title
        )
    return files


class _QuerySession:
    """A query and the connection through which it is asked."""

    def __init__(self, query: Query, runs: Sequence[RecordedRun], where: str) -> None:
        import duckdb

        self._query, self._where, self._error = query, f"{where} ({query.name})", duckdb.Error
        self._connection: DuckDBPyConnection = duckdb.connect()
        self._connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        self._connection.execute(_sql("tables"))
        _fill(self._connection, runs, query.paper, " ".join(query.parts.values()))
        make_labels(self._connection, {})
        self._connection.execute(_sql("derived"))
        self._connection.execute(_sql("macros"))
        self._make(VIEWS, "CREATE")
        make_labels(self._connection, {number: runs[number] for row in self._rows("runs") for number in row.values()})
        self._make(VIEWS, "CREATE")  # labels have other columns now

    def answer(self, machine: str) -> QueryAnswer:
        """Execute all parts of the query."""
        caption = " ".join(str(text) for row in self._rows("caption") for text in row.values() if text is not None)
        header, rows = self._read("table")
        shown = [
            place
            for place, name in enumerate(header)
            if header.index(name) == place
            and (not name.endswith(_OPTIONAL) or any(row[place] is not None for row in rows))
        ]
        cells = tuple(tuple(_ABSENT if row[place] is None else str(row[place]) for place in shown) for row in rows)
        table = ReportTable(tuple(header[place].removesuffix(_OPTIONAL) for place in shown), cells, caption)
        return QueryAnswer(machine, table, {chart.figure: self._rows(chart.figure) for chart in self._query.charts})

    def _rows(self, part: str) -> list[Row]:
        header, rows = self._read(part)
        drawn = next((chart.columns for chart in self._query.charts if chart.figure == part), set[str]())
        if lacking := sorted(drawn - {*header}):
            raise self._refusal(part, f"draws {', '.join(lacking)}, but its result has only {', '.join(header)}")
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
    return (resources.files("gnnexp.reports") / "queries" / f"{name}.sql").read_text(encoding="utf-8")
