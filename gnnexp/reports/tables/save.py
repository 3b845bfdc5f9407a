"""A table in files, by their endings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gnnexp.files.disk import write_bytes
from gnnexp.reports.tables.data import arrow_of, csv_of
from gnnexp.reports.tables.latex import latex_of
from gnnexp.reports.tables.markdown import markdown_of
from gnnexp.reports.tables.table import ReportTable

# The table whose LaTeX commands are named by the report alone.
_MAIN = "table"


def save_table(table: ReportTable, folder: Path, name: str, formats: Sequence[str]) -> list[Path]:
    """Write `table` in each of the `FORMATS`, atomically, and return the files.

    In LaTeX, names begin with that of the folder, so that a paper may have several reports.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = " ".join((folder.resolve().name, name if name != _MAIN else ""))
    files = []
    for suffix in formats:
        file = folder / f"{name}.{suffix}"
        write_bytes(file, FORMATS[suffix](table, command))
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
    "tex": lambda table, name: latex_of(table, name).encode(),
    "parquet": lambda table, _: _parquet(table),
}
