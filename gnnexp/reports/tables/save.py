"""A table in files, by their endings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gnnexp.files.disk import write_bytes
from gnnexp.reports.tables.data import arrow_of, csv_of, document_of
from gnnexp.reports.tables.latex import latex_of
from gnnexp.reports.tables.markdown import markdown_of
from gnnexp.reports.tables.table import ReportTable


def save_table(table: ReportTable, folder: Path, name: str, formats: Sequence[str]) -> list[Path]:
    """Write `table` in each of the `FORMATS`, atomically, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for suffix in formats:
        file = folder / f"{name}.{suffix}"
        write_bytes(file, FORMATS[suffix](table, name))
        files.append(file)
    return files


def _parquet(table: ReportTable) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    buffer = pa.BufferOutputStream()
    parquet.write_table(arrow_of(table), buffer)
    return bytes(buffer.getvalue().to_pybytes())


# The bytes of a table and its name, by the ending of the file.
FORMATS: Mapping[str, Callable[[ReportTable, str], bytes]] = {
    "md": lambda table, _: markdown_of(table).encode(),
    "csv": lambda table, _: csv_of(table).encode(),
    "json": lambda table, _: (json.dumps(document_of(table), indent=1, ensure_ascii=False) + "\n").encode(),
    "tex": lambda table, name: latex_of(table, name).encode(),
    "parquet": lambda table, _: _parquet(table),
}
