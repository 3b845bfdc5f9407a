"""`gnnexp.runs`: all runs in one table, chosen by a condition in SQL."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.api.frames import check_package, make_frame
from gnnexp.api.record import main_figures_of
from gnnexp.components.signature import nearest
from gnnexp.errors import ConfigError, Problem
from gnnexp.record.runs import MACHINE, RUNS, RecordedRun, find_runs

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pandas import DataFrame

Value = str | int | float | bool | None
Row = Mapping[str, Value]

_CHOICES = ("system", "dataset", "model", "paradigm", "partitioner", "ranks", "seed")
_FIGURES = ("metric", "val", "test", "best_epoch", "epochs", "epoch_s", "sent_MB", "host_MB", "device_MB")
_ENDS = ("status", "reason", MACHINE, "date", "run_dir")
# Groups and keys that change no result.
_UNIMPORTANT = ("tracker", "preflight", "name", "system")
_MOST = 2**63
_NUMBER = '"row number"'
# Texts and quoted names, which stay as they are, or a name with dots.
_DOTTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[A-Za-z_]\w*(?:\.\w+)+""")


def runs(where: str | None = None, folder: str | Path = RUNS) -> DataFrame:
    """A table of the runs below `folder` that have ended, one row for each run, oldest first.

    Its columns are the main choices, the other keys in which runs with the same main choices differ, the main figures,
    and `status`, `reason`, `machine`, `date`, `run_dir`. The columns `val` and `test` have the task's `metric` (0 to 1)
    at the best validation epoch. The column `epoch_s` has the median of all epochs after the first. MB are 10^6 bytes.

    Args:
        where: a condition in DuckDB's SQL: `system = 'gsplit' and epoch_s < 0.1`. It may use the columns, and every key
            of the configuration: `optimizer.lr > 0.01`. None: all runs.
        folder: folder of run directories.

    Raises:
        ConfigError: DuckDB refuses the condition, a package is missing, or there is no such folder.
    """
    if not Path(folder).is_dir():
        raise ConfigError(
            Problem(
                "folder",
                str(folder),
                "must be a folder of run directories",
                "gnnexp.runs(folder=...), or make a run first: gnnexp.run(...)",
            )
        )
    recorded = find_runs(Path(folder))
    rows = [_row(run) for run in recorded]
    chosen = range(len(rows)) if where is None else _selected(rows, where)
    shown = [rows[number] for number in chosen]
    columns = (*_CHOICES, *_differing(shown), *_FIGURES, *_ENDS)
    return make_frame(shown, columns)


def _row(run: RecordedRun) -> Row:
    """All values of a run by column: the configuration by dotted key, then main choices, figures and the rest."""
    hardware, choices = run.config["hardware"], run.provenance.get("choices", {})
    return {
        **_flat(run.config),
        "system": run.value("system"),
        "dataset": run.value("dataset"),
        "model": run.value("model"),
        "paradigm": choices.get("paradigm"),
        "partitioner": run.label("partitioner"),
        "ranks": int(hardware.get("nodes", 1)) * int(hardware.get("workers", 1)),
        "seed": run.config.get("seed"),
        "metric": run.best("test")[0].partition("/")[0] or None,
        **main_figures_of(run),
        "status": run.status,
        "reason": run.reason or None,
        MACHINE: run.machine,
        "date": run.provenance.get("date"),
        "run_dir": str(run.path),
    }


def _flat(node: Mapping[str, object], prefix: str = "") -> dict[str, Value]:
    """The values of a configuration by dotted key. A list is its text in JSON."""
    values: dict[str, Value] = {}
    for key, value in node.items():
        if isinstance(value, Mapping):
            values |= _flat(value, f"{prefix}{key}.")
        elif value is None or isinstance(value, str | int | float):
            values[f"{prefix}{key}"] = value
        else:
            values[f"{prefix}{key}"] = json.dumps(value, default=str)
    return values


def _differing(rows: Sequence[Row]) -> list[str]:
    """Keys of the configuration in which rows with the same main choices differ, apart from the seed."""
    seen: dict[tuple[Value, ...], list[Row]] = defaultdict(list)
    for row in rows:
        seen[tuple(row[name] for name in _CHOICES if name != "seed")].append(row)
    known = {*_CHOICES, *_FIGURES, *_ENDS}
    return sorted(
        {
            key
            for group in seen.values()
            if len(group) > 1
            for key in set(chain(*group))
            if key not in known
            and key.partition(".")[0] not in _UNIMPORTANT
            and len({repr(row.get(key)) for row in group}) > 1
        }
    )


def _selected(rows: Sequence[Row], where: str) -> list[int]:
    """Numbers of the rows that satisfy a condition, in order.

    The condition can read one table in memory: DuckDB has no access to files and the network, its settings are locked,
    and only one SELECT is executed.

    Raises:
        ConfigError: DuckDB refuses the condition.
    """
    check_package("duckdb", f"where={where!r}")
    import duckdb

    names = [*{name.lower(): name for name in reversed([*_CHOICES, *_FIGURES, *_ENDS, *chain(*rows)])}.values()]
    with duckdb.connect() as connection:
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        _fill(connection, rows, names)
        text = _DOTTED.sub(lambda match: _quoted(match[0]) if match[0] in names else match[0], where)
        query = f"SELECT {_NUMBER} FROM runs WHERE (\n{text}\n) ORDER BY ALL"
        try:
            statements = connection.extract_statements(query)  # it names errors of syntax
            if not _is_one_select(connection, query):
                raise _refusal(where, "must be one condition", names)
            return [int(number) for number, *_ in connection.execute(statements[0]).fetchall()]
        except duckdb.Error as error:
            raise _refusal(where, str(error).partition("\n")[0], names) from None


def _fill(connection: DuckDBPyConnection, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Make the view `runs`. A column without any value has the type NULL, which can be compared with everything."""
    kinds = {name: kind for name in names if (kind := _kind(row.get(name) for row in rows))}
    columns = ", ".join([f"{_NUMBER} INT", *(f"{_quoted(name)} {kind}" for name, kind in kinds.items())])
    data = [
        {_NUMBER.strip('"'): number, **{name: _stored(row.get(name), kind) for name, kind in kinds.items()}}
        for number, row in enumerate(rows)
    ]
    connection.execute(
        f"CREATE TABLE stored AS SELECT unnest($1::JSON::STRUCT({columns})[], max_depth := 2)", [json.dumps(data)]
    )
    nothing = "".join(f", NULL AS {_quoted(name)}" for name in names if name not in kinds)
    connection.execute(f"CREATE VIEW runs AS SELECT *{nothing} FROM stored")


def _is_one_select(connection: DuckDBPyConnection, query: str) -> bool:
    """Whether a query is a plain SELECT: no other statement, and no union of several."""
    row = connection.execute("SELECT json_serialize_sql($1)", [query]).fetchone()
    parsed = json.loads(row[0]) if row else {}
    return not parsed.get("error") and [one["node"]["type"] for one in parsed["statements"]] == ["SELECT_NODE"]


def _kind(values: Iterable[Value]) -> str:
    """The SQL type of a column; empty if it has no value."""
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int} and all(abs(value) < _MOST for value in known if isinstance(value, int)):
        return "BIGINT"
    return "DOUBLE" if kinds and kinds <= {int, float} else "VARCHAR" * bool(kinds)


def _stored(value: Value, kind: str) -> Value:
    """The value in JSON, which has neither NaN nor infinity. A column with several types has texts."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return str(value) if kind == "VARCHAR" else value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refusal(where: str, why: str, names: Sequence[str]) -> ConfigError:
    unknown = re.search(r'column "([^"]+)"', why)
    close = nearest(unknown[1], names) if unknown else None
    return ConfigError(
        Problem(
            "where",
            where,
            why,
            f"did you mean {close}?" if close else "a condition in SQL, such as: system = 'gsplit' and epoch_s < 0.1",
        )
    )
