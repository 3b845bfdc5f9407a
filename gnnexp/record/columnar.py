"""Records in one Parquet file: what `gnnexp export` writes, and what a paper's folder keeps.

A row is a file of JSON: the state of a sweep (`runs/sweeps/<name>.json`), or the `result.json` of a run. Metrics have
columns: `time/epoch_s` has the values of all epochs. There, the JSON (`record`) has null. A metric that equals another
one (`time/x_s_mean` and `time/x_s`) has the other's name. A summary that follows from the epochs is the name of the
metric that it follows from. So each record is restored with the same JSON, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from gnnexp.errors import DataError
from gnnexp.files.disk import write_bytes
from gnnexp.record.records import RESULT_FILE, summarize, unreadable

SUFFIX = ".parquet"
RUNS = PurePosixPath("runs")
STATES = RUNS / "sweeps"
_TWINS = ("_min", "_mean")
_OWN_COLUMNS = ("name", "record")
# Of zstd, of 22: slow to write, as fast to read.
_LEVEL = 19
# A column is packed page by page. Records repeat each other, so that one page of them is much smaller than several.
_PAGE_BYTES = 64 << 20
_INTEGERS = 1 << 63
_ROWS = 32  # that are restored together: numbers take much memory as objects of Python
_DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError)  # errors of pyarrow are subclasses of these


@dataclass(frozen=True)
class Records:
    """The contents of a file.

    Attributes:
        states: state of each sweep by name, in the form of `gnnexp.record.records.read_state`.
        results: `result.json` of their runs, by the run directory in the states.
    """

    states: Mapping[str, Mapping[str, Any]]
    results: Mapping[str, Mapping[str, Any]]


def read_records(file: Path, sweeps: Sequence[str] = ()) -> Records:
    """The records of the given sweeps, or of all.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with file.open("rb") as opened:
            kept = {str(STATES / f"{name}.json") for name in sweeps}
            states = dict(read_rows(opened, lambda name: _is_state(name) and (not sweeps or name in kept)))
            runs = {f"{case['run_dir']}/{RESULT_FILE}" for state in states.values() for case in state["cases"]}
            results = dict(read_rows(opened, runs.__contains__))
        return Records(
            {PurePosixPath(name).stem: state for name, state in states.items()},
            {name.removesuffix(f"/{RESULT_FILE}"): result for name, result in results.items()},
        )
    except _DAMAGED as error:
        known = error if isinstance(error, OSError | ValueError) else ValueError(f"{type(error).__name__}: {error}")
        raise DataError(unreadable(file, known, "restore the file")) from None


def read_rows(file: BinaryIO, is_wanted: Callable[[str], bool] = bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """The names of files and their JSON, of all or of some. A damaged file raises errors of many kinds."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file)
    names = parquet.read(["name"], use_threads=False)["name"].to_pylist()
    places = [place for place, name in enumerate(names) if is_wanted(name)]
    table = parquet.read(use_threads=False)
    for first in range(0, len(places), _ROWS):
        rows = table.take(pa.array(places[first : first + _ROWS], pa.int64())).to_pydict()
        for row, name in enumerate(rows["name"]):
            yield name, _restored({column: values[row] for column, values in rows.items()})


def _is_state(name: str) -> bool:
    return PurePosixPath(name).parent == STATES


def write_records(records: Records, file: Path) -> None:
    """Write one file, atomically. The same records make the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types: dict[str, type] = {}
    rows = [
        {"name": str(STATES / f"{name}.json"), "record": json.dumps(state)} for name, state in records.states.items()
    ]
    rows += [{"name": f"{run}/{RESULT_FILE}", **_row(result, types)} for run, result in records.results.items()]
    kinds = {float: pa.list_(pa.float64()), int: pa.list_(pa.int64())}
    schema = {**dict.fromkeys(_OWN_COLUMNS, pa.string()), **{name: kinds[kind] for name, kind in types.items()}}
    written = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_pylist(rows, pa.schema(schema)),
        written,
        compression="zstd",
        compression_level=_LEVEL,
        data_page_size=_PAGE_BYTES,
        use_dictionary=False,
        write_statistics=False,
        column_encoding={f"{name}.list.element": "BYTE_STREAM_SPLIT" for name, kind in types.items() if kind is float},
    )
    write_bytes(file, written.getvalue().to_pybytes())


def _row(result: Mapping[str, Any], types: dict[str, type]) -> dict[str, Any]:
    """A result as columns. `types` has the type of each metric's column, and gets those of new metrics."""
    columns: dict[str, list[float | None]] = {}
    lines = result["epochs"]

    def left(metrics: Mapping[str, float], number: int) -> dict[str, float | str | None]:
        """What stays in `record` of the metrics of an epoch."""
        stays: dict[str, float | str | None] = {}
        for name, value in metrics.items():
            if (base := _base_of(name)) and repr(metrics.get(base)) == repr(value):
                stays[name] = base
            elif name in _OWN_COLUMNS or not _fits(value, types.setdefault(name, type(value))):
                stays[name] = value
            else:
                columns.setdefault(name, [None] * len(lines))[number] = value
                stays[name] = None
        return stays

    epochs = [{**line, "metrics": left(line["metrics"], number)} for number, line in enumerate(lines)]
    summary = result["summary"]
    primary = next((name.partition("/")[0] for name in summary if name.endswith(("/val", "/test"))), "")
    follows = json.dumps(summarize(lines, primary)) == json.dumps(summary)
    return {"record": json.dumps({**result, "epochs": epochs, "summary": primary if follows else summary}), **columns}


def _fits(value: float, kind: type) -> bool:
    return type(value) is kind and (kind is float or -_INTEGERS <= value < _INTEGERS)


def _restored(row: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON that became the row."""
    record: dict[str, Any] = json.loads(row["record"])
    if "epochs" not in record:
        return record
    for number, line in enumerate(record["epochs"]):
        metrics = line["metrics"]
        metrics |= {name: row[name][number] for name, value in metrics.items() if value is None}
        metrics |= {name: metrics[value] for name, value in metrics.items() if isinstance(value, str)}
    if isinstance(primary := record["summary"], str):
        record["summary"] = summarize(record["epochs"], primary)
    return record


def _base_of(name: str) -> str:
    """The metric that this metric is the mean or the least over ranks of; empty for other metrics."""
    bases = (name.removesuffix(end) for end in _TWINS if name.startswith("time/") and name.endswith(f"_s{end}"))
    return next(bases, "")
