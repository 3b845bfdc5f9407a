"""Records of many runs in one Parquet file: a row is a run, and a column is a metric with the values of all epochs.

`benchmarks/columns.py` writes this file. Text in a record stays JSON. Numbers of epochs are 64-bit columns, so they are
restored bit for bit. Two things are left out if they follow from the rest. One is the summary that `summarize` makes of
the epochs. The other is the mean and the least over ranks of `time/x_s`, if they equal the most.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnexp.errors import DataError
from gnnexp.record.records import summarize, unreadable

JSON_COLUMNS = ("config", "provenance", "quality", "paradigm")
STATE, CASE = ("description", "command"), ("label", "status", "reason")
META = b"gnnexp.sweeps"
_TWINS = ("_min", "_mean")


@dataclass(frozen=True)
class Records:
    """The contents of a file.

    Attributes:
        states: state of each sweep by name, in the form of `gnnexp.record.records.read_state`, without the layout.
        results: `result.json` of their runs, by the run directory in the states.
    """

    states: Mapping[str, Mapping[str, Any]]
    results: Mapping[str, Mapping[str, Any]]


def read_records(file: Path, sweeps: Sequence[str] = ()) -> Records:
    """The records of the given sweeps, or of all.

    Raises:
        DataError: the file cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.ParquetFile(file)
        swept = json.loads(found.schema_arrow.metadata[META])
        wanted = [name for name in swept if not sweeps or name in sweeps]
        known = found.read(["run", "cases"]).to_pylist()
        places = [place for place, row in enumerate(known) if any(one["sweep"] in wanted for one in row["cases"])]
        columns = found.read().take(pa.array(places, pa.int64())).to_pydict() if places else {}
    except (OSError, ValueError) as error:  # errors of pyarrow are subclasses of these
        raise DataError(unreadable(file, error, "restore the file")) from None
    results = {
        run: _result({name: values[place] for name, values in columns.items()})
        for place, run in enumerate(columns.get("run", ()))
    }
    states = {name: {"name": name, **swept[name], "cases": list(_cases(known, name))} for name in wanted}
    return Records(states, results)


def _cases(rows: Iterable[Mapping[str, Any]], sweep: str) -> Iterator[dict[str, Any]]:
    found = [{**case, "run_dir": row["run"]} for row in rows for case in row["cases"] if case["sweep"] == sweep]
    for case in sorted(found, key=lambda case: case["place"]):
        yield {"run_dir": case["run_dir"], **{key: case[key] for key in CASE}}


def _result(row: Mapping[str, Any]) -> dict[str, Any]:
    """The result that `benchmarks/columns.py` made the row of."""
    named = {name: values for name, values in row.items() if "/" in name and values is not None}
    for name, values in named.items():
        if base := base_of(name):
            named[name] = [most if value is None else value for value, most in zip(values, named[base], strict=True)]
    more = map(json.loads, row["lines"] or ["{}"] * len(row["time"]))
    lines = [
        {
            "epoch": number,
            "time": time,
            "ranks": [],
            "losses": [],
            "batches": {},
            **rest,
            "metrics": {name: values[number] for name, values in named.items() if values[number] is not None},
        }
        for number, (time, rest) in enumerate(zip(row["time"], more, strict=True))
    ]
    summary = json.loads(row["summary"]) if row["summary"] else summarize(lines, row["primary"])
    return {
        **{name: json.loads(row[name]) for name in JSON_COLUMNS},
        **json.loads(row["rest"]),
        "epochs": lines,
        "summary": summary,
    }


def base_of(name: str) -> str:
    """The metric that this metric is the mean or the least over ranks of; empty for other metrics."""
    found = (name.removesuffix(end) for end in _TWINS if name.startswith("time/") and name.endswith(f"_s{end}"))
    return next(found, "")
