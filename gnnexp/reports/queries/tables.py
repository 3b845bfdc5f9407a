"""The tables that a query reads, made of runs' records (docs/reports.md names their columns)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from gnnexp.planning.full_size import full_factor, full_steps
from gnnexp.record.runs import Run
from gnnexp.reports.published.cells import cells
from gnnexp.reports.published.graphs import fraction_of_targets, graph_like, published_graph
from gnnexp.reports.values.labels import ALWAYS, flat, label_runs, said
from gnnexp.reports.values.setting import setting_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Rows = Iterator[Mapping[str, Any]]
# Tables that are long, and what names them in a query: what is made of them.
_LONG = {"metrics": ("epochs", "typical", "full_graph"), "lines": ("ranks", "batches")}


def fill(connection: DuckDBPyConnection, runs: Sequence[Run], paper: str, text: str) -> None:
    """Rows of the tables of `tables.sql`; long ones that the `text` of the query does not name stay empty."""
    tables: Mapping[str, Callable[[], Rows]] = {
        "runs": lambda: (_run(number, run, paper) for number, run in enumerate(runs)),
        "metrics": lambda: _each(runs, lambda run: ({"metrics": metrics} for metrics in run.epochs)),
        "lines": lambda: _each(runs, lambda run: (
            {**line, "resumed": bool(line.get("resumed"))} for line in run.lines())),
        "published": lambda: (asdict(cell) | {"number": cell.number} for cell in (cells(paper) if paper else ())),
    }
    for name, rows in tables.items():
        columns = connection.execute(f"SELECT column_name, column_type FROM (DESCRIBE {name})").fetchall()
        if any(word in text for word in _LONG.get(name, ("",))):
            kept = ({column: row.get(column) for column, _ in columns} for row in rows())
            _insert(connection, f"INSERT INTO {name} BY NAME", ", ".join(map(" ".join, columns)), kept)


def _each(runs: Sequence[Run], epochs_of: Callable[[Run], Rows]) -> Rows:
    for number, run in enumerate(runs):
        yield from ({"run": number, "epoch": epoch, **row} for epoch, row in enumerate(epochs_of(run)))


def _insert(connection: DuckDBPyConnection, into: str, columns: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows by the names of the columns, each with its type."""
    connection.execute(f"{into} SELECT unnest($1::JSON::STRUCT({columns})[], max_depth := 2)",
                       [json.dumps([*rows], default=str)])


def make_labels(connection: DuckDBPyConnection, chosen: Mapping[int, Run]) -> None:
    """`labelled` and `labels`: what tells the `chosen` runs apart, as columns and one by one."""
    found = label_runs([*chosen.values()])
    struct = ", ".join(f'"{name}" VARCHAR' for name in (found[0] if found else ALWAYS))
    _insert(connection, "CREATE OR REPLACE TABLE labelled AS", f"run INT, label STRUCT({struct})", (
        {"run": number, "label": label} for number, label in zip(chosen, found, strict=True)))
    each = "run INT, place INT, key VARCHAR, value VARCHAR, said VARCHAR"
    _insert(connection, "CREATE OR REPLACE TABLE labels AS", each, (
        {"run": number, "place": place, "key": key, "value": value, "said": said(key, value)}
        for number, label in zip(chosen, found, strict=True) for place, (key, value) in enumerate(label.items())))


def _run(number: int, run: Run, paper: str) -> Mapping[str, Any]:
    names = ("system", *flat(run.config))
    keys = dict.fromkeys(key for name in names for key in accumulate(name.split("."), "{}.{}".format))
    setting = setting_of(run)
    like = graph_like(setting.shape)
    return {
        "run": number, "path": str(run.path), "status": run.status, "num_epochs": len(run.epochs),
        "config": {key: run.value(key) for key in keys}, "facts": run.facts,
        "quality": run.quality, "provenance": run.provenance, "graph": published_graph(run),
        "graph_like": like, "setting": asdict(setting), "setting_name": str(setting),
        "full_size": full_factor(run) * full_steps(run, fraction_of_targets(paper, run)) if like else 1,
    }
