"""Records of many runs in one Parquet file: a row is a run, a column a metric with the values of all epochs.

`benchmarks/columns.py` writes it. What is text in a record stays JSON. Numbers of epochs are 64-bit columns: they come
back bit for bit. Two things are left out where they follow from the rest: the summary that `summarize` makes
of the epochs, and of `time/x_s` the mean and the least over ranks where they equal the most.
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
    """What a file holds.

    Attributes:
        states: of sweeps by name, as `gnnexp.record.records.read_state` reads them, but for the report's layout.
        results: `result.json` of their runs, by the run directory that the states name.
    """

    states: Mapping[str, Mapping[str, Any]]
    results: Mapping[str, Mapping[str, Any]]


def read_records(file: Path, sweeps: Sequence[str] = ()) -> Records:
    """Those of the sweeps named, or all.

    Raises:
        DataError: the file cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.ParquetFile(file)
        told = json.loads(found.schema_arrow.metadata[META])
        wanted = [name for name in told if not sweeps or name in sweeps]
        known = found.read(["run", "cases"]).to_pylist()
        places = [place for place, row in enumerate(known) if any(one["sweep"] in wanted for one in row["cases"])]
        columns = found.read().take(pa.array(places, pa.int64())).to_pydict() if places else {}
    except (OSError, ValueError) as error:  # of which pyarrow's are kinds
        raise DataError(unreadable(file, error, "restore the file")) from None
    results = {run: _result({name: values[place] for name, values in columns.items()})
               for place, run in enumerate(columns.get("run", ()))}
    return Records({name: {"name": name, **told[name], "cases": list(_cases(known, name))} for name in wanted}, results)


def _cases(rows: Iterable[Mapping[str, Any]], sweep: str) -> Iterator[dict[str, Any]]:
    found = [{**case, "run_dir": row["run"]} for row in rows for case in row["cases"] if case["sweep"] == sweep]
    for case in sorted(found, key=lambda case: case["place"]):
        yield {"run_dir": case["run_dir"], **{key: case[key] for key in CASE}}


def _result(row: Mapping[str, Any]) -> dict[str, Any]:
    """What `_row` was made of."""
    named = {name: values for name, values in row.items() if "/" in name and values is not None}
    for name, values in named.items():
        if base := base_of(name):
            named[name] = [most if value is None else value for value, most in zip(values, named[base], strict=True)]
    more = map(json.loads, row["lines"] or ["{}"] * len(row["time"]))
    lines = [{"epoch": number, "time": time, "ranks": [], "losses": [], "batches": {}, **rest,
              "metrics": {name: values[number] for name, values in named.items() if values[number] is not None}}
             for number, (time, rest) in enumerate(zip(row["time"], more, strict=True))]
    summary = json.loads(row["summary"]) if row["summary"] else summarize(lines, row["primary"])
    return {**{name: json.loads(row[name]) for name in JSON_COLUMNS}, **json.loads(row["rest"]), "epochs": lines,
            "summary": summary}


def base_of(name: str) -> str:
    """The most over ranks that a metric is the mean or the least of; empty for others."""
    found = (name.removesuffix(end) for end in _TWINS if name.startswith("time/") and name.endswith(f"_s{end}"))
    return next(found, "")
