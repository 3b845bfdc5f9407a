"""Write records of many runs as one Parquet file, which `gnnexp.record.columnar` reads and describes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnexp.files.disk import write_bytes
from gnnexp.record.columnar import CASE, JSON_COLUMNS, META, STATE, Records, base_of
from gnnexp.record.records import summarize

_LINE = ("epoch", "time", "metrics")
_LEVEL = 19  # of zstd, of 22: slow to write, as fast to read


def write_records(records: Records, file: Path) -> None:
    """The same records make the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    cases: dict[str, list[dict[str, Any]]] = {run: [] for run in records.results}
    for name, state in records.states.items():
        for place, case in enumerate(state["cases"]):
            if case["run_dir"] in cases:
                cases[case["run_dir"]].append({"sweep": name, "place": place, **{key: case[key] for key in CASE}})
    rows = [{"run": run, "cases": cases[run], **_row(result)} for run, result in records.results.items()]
    names = dict.fromkeys(name for row in rows for name in row)
    told = {name: {key: state.get(key, "") for key in STATE} for name, state in records.states.items()}
    table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    floats = [field.name for field in table.schema if field.type == pa.list_(pa.float64())]
    written = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata({META: json.dumps(told)}),
        written,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=False,
        write_statistics=False,
        column_encoding={f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in floats},
    )
    write_bytes(file, written.getvalue().to_pybytes())


def _row(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as columns."""
    lines = result["epochs"]
    primary = next((name.partition("/")[0] for name in result["summary"] if name.endswith(("/val", "/test"))), "")
    follows = summarize(lines, primary) == result["summary"]
    rest = {key: value for key, value in result.items() if key not in (*JSON_COLUMNS, "epochs", "summary")}
    more = [{key: value for key, value in line.items() if key not in _LINE and value} for line in lines]
    names = dict.fromkeys(name for line in lines for name in line["metrics"])
    return {
        **{name: json.dumps(result.get(name)) for name in JSON_COLUMNS},
        "rest": json.dumps(rest),
        "primary": primary,
        "summary": None if follows else json.dumps(result["summary"]),
        "time": [line["time"] for line in lines],
        "lines": [json.dumps(one) for one in more] if any(more) else None,
        **{name: [_kept(line["metrics"], name) for line in lines] for name in names},
    }


def _kept(metrics: Mapping[str, float], name: str) -> float | None:
    base = base_of(name)
    return None if base and metrics.get(name) == metrics.get(base) else metrics.get(name)
