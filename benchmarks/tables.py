"""Tables to a graph on disk, against a bare pyarrow read of the same files, and against pandas with DGL.

Every measurement is a process of its own, which first compiles and imports what it needs. A round measures all sides in
turn on the same files, which are in the page cache. A ratio is the median over rounds of the ratio within a round.

- `gnnexp`: edges as the table has them (no reverses, parallel edges kept): the work of `dgl.graph` and its CSC.
- `gnnexp_default`: with the defaults, which add the reverse of each edge, sort, and merge parallel edges.
- `gnnexp_duckdb`: as `gnnexp`, where DuckDB numbers texts in any case: without the own hash table (not measured unless
  `--sides` names it).
- `pyarrow`: `csv.read_csv` or `parquet.read_table`, and nothing else.
- `pandas_dgl`: `read_csv` or `read_parquet`, `dgl.graph`, and the CSC of that graph in memory. It writes no file.
- `older`: as `gnnexp`, by an older tree of this repository (`--older TREE`). Its ratios are those of CPU seconds.

    python benchmarks/tables.py --folder /tmp/tables                     10^8 edges, as in the issue: 7 GB of disk
    python benchmarks/tables.py --folder /tmp/tables --edges 10000000
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import keep

from gnnexp.measure.memory import host_peak_bytes

FILES = ("integers.csv", "integers.parquet", "texts.csv")
SIDES = ("gnnexp", "gnnexp_default", "pyarrow", "pandas_dgl")
BY_DUCKDB, OLDER = "gnnexp_duckdb", "older"
# What the issue asks for: sides, file, and the largest ratio.
TARGETS = (
    ("csv_over_pyarrow", ("gnnexp", "integers.csv"), ("pyarrow", "integers.csv"), 4.0),
    ("csv_over_pandas_dgl", ("gnnexp", "integers.csv"), ("pandas_dgl", "integers.csv"), 1.0),
    ("parquet_over_pyarrow", ("gnnexp", "integers.parquet"), ("pyarrow", "integers.parquet"), 4.0),
    ("texts_over_integers", ("gnnexp", "texts.csv"), ("gnnexp", "integers.csv"), 3.0),
    ("texts_by_duckdb", (BY_DUCKDB, "texts.csv"), ("gnnexp", "texts.csv"), 1.5),
    ("default_csv_over_pyarrow", ("gnnexp_default", "integers.csv"), ("pyarrow", "integers.csv"), None),
    ("default_parquet_over_pyarrow", ("gnnexp_default", "integers.parquet"), ("pyarrow", "integers.parquet"), None),
    ("parquet_over_pandas_dgl", ("gnnexp", "integers.parquet"), ("pandas_dgl", "integers.parquet"), None),
)
# Largest ratio of CPU seconds to an older tree's, by file.
OF_OLDER = {"integers.csv": 1.5, "integers.parquet": 1.5, "texts.csv": 1.1}
_MEMORY_FACTOR, _MEMORY_MORE = 1.2, 1 << 30
_PIECE = 1 << 23
_SMALL_EDGES = 1000  # of the table that compiles kernels


def main() -> None:
    """Make the files, measure all sides in turn, and write the JSON."""
    chosen = _arguments()
    if chosen.only:
        side, file = chosen.only.split(":")
        print(json.dumps(measure(side, file, chosen.folder)))
        return
    chosen.folder.mkdir(parents=True, exist_ok=True)
    sizes = make_files(chosen.folder, chosen.edges, chosen.vertices or chosen.edges // 10)
    rounds = []
    for number in range(chosen.pairs):
        rounds.append(measure_all(chosen.folder, chosen.sides, chosen.files, chosen.older))
        print(
            f"round {number + 1}: {json.dumps({name: round(one['seconds'], 2) for name, one in rounds[-1].items()})}",
            flush=True,
        )
        path = keep(
            chosen.name,
            {
                "edges": chosen.edges,
                "vertices": chosen.vertices or chosen.edges // 10,
                "file_bytes": sizes,
                **summary(rounds),
                "rounds": rounds,
            },
        )
    print(json.dumps(summary(rounds), indent=1))
    print(path)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Tables to a graph on disk")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the files; they stay there")
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--vertices", type=int, default=0, help="0: a tenth of the edges")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--sides", nargs="+", default=list(SIDES), choices=[*SIDES, BY_DUCKDB])
    parser.add_argument("--older", type=Path, help="an older tree, measured as one more side")
    parser.add_argument("--files", nargs="+", default=list(FILES), choices=FILES)
    parser.add_argument("--name", default="tables", help="of the file in benchmarks/results")
    parser.add_argument("--only", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def make_files(folder: Path, edges: int, vertices: int) -> dict[str, int]:
    """Write the same edges three times, if they are not there: ends are uniform, so no cache helps any side."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    (folder / "small").mkdir(exist_ok=True)
    tiny = {"src": np.arange(_SMALL_EDGES), "dst": np.arange(_SMALL_EDGES)[::-1]}
    texts = {name: [f"user{value}" for value in values] for name, values in tiny.items()}
    csv.write_csv(pa.table(tiny), folder / "small" / "integers.csv")
    csv.write_csv(pa.table(texts), folder / "small" / "texts.csv")
    parquet.write_table(pa.table(tiny), folder / "small" / "integers.parquet")
    mark = folder / f"complete-{edges}-{vertices}"
    if not mark.exists():
        for old in folder.glob("complete-*"):
            old.unlink()
        integers = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
        words = pa.schema([("src", pa.string()), ("dst", pa.string())])
        draw = np.random.default_rng(0)
        with (
            csv.CSVWriter(folder / FILES[0], integers) as first,
            csv.CSVWriter(folder / FILES[2], words) as last,
            parquet.ParquetWriter(folder / FILES[1], integers) as second,
        ):
            for start in range(0, edges, _PIECE):
                rows = min(_PIECE, edges - start)
                table = pa.table({name: draw.integers(0, vertices, rows) for name in ("src", "dst")}, schema=integers)
                first.write(table)
                second.write(table)
                last.write(pa.table([_named(column) for column in table.columns], schema=words))
        mark.touch()
    return {name: (folder / name).stat().st_size for name in FILES}


def _named(column: Any) -> Any:  # noqa: ANN401  arrays of pyarrow
    from pyarrow import compute

    return compute.binary_join_element_wise("user", column.cast("string"), "")


def measure_all(
    folder: Path, sides: Sequence[str], files: Sequence[str], older: Path | None
) -> dict[str, dict[str, Any]]:
    """One round: every side on every file, each in a process of its own."""
    found = {}
    for file in files:
        _into_cache(folder / file)
        for side in [*sides, *([OLDER] if older else [])]:
            if file == "texts.csv" and side == "pandas_dgl":
                continue  # pandas would first need a mapping of its own
            command = [sys.executable, __file__, "--folder", str(folder), "--only", f"{side}:{file}"]
            tree = {"PYTHONPATH": str(older)} if side == OLDER else {}
            done = subprocess.run(
                command,
                env={**os.environ, "DGLBACKEND": "pytorch", **tree},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found[f"{side}:{file}"] = json.loads(done.stdout.splitlines()[-1])
    return found


def _into_cache(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(_PIECE):
            pass


def summary(rounds: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Medians of seconds, ratios within rounds, and memory compared with the finished graph."""
    names = list(rounds[0])
    ratios = {}
    for name, above, below, most in TARGETS:
        pair = [":".join(one) for one in (above, below)]
        if all(one in names for one in pair):
            values = [row[pair[0]]["seconds"] / row[pair[1]]["seconds"] for row in rounds]
            cpu = [row[pair[0]]["cpu_s"] / row[pair[1]]["cpu_s"] for row in rounds]
            ratios[name] = {"median": statistics.median(values), "all": values, "cpu": cpu, "wanted": most}
    of_older = {}
    for file, most in OF_OLDER.items():
        if f"{OLDER}:{file}" in names:
            values = [row[f"gnnexp:{file}"]["cpu_s"] / row[f"{OLDER}:{file}"]["cpu_s"] for row in rounds]
            of_older[file] = {"median": statistics.median(values), "all": values, "wanted": most}
    memory = {}
    for name in names:
        row = max((one[name] for one in rounds), key=lambda one: one["peak_bytes"])
        if "graph_bytes" in row:
            memory[name] = {
                **{key: row[key] for key in ("peak_bytes", "start_bytes", "graph_bytes")},
                "wanted": _MEMORY_FACTOR * row["graph_bytes"] + _MEMORY_MORE,
            }
    return {
        "median_s": {name: statistics.median(row[name]["seconds"] for row in rounds) for name in names},
        "cpu_s": {name: statistics.median(row[name]["cpu_s"] for row in rounds) for name in names},
        "ratios": ratios,
        "cpu_of_older": of_older,
        "memory": memory,
    }


# --- in the process of one measurement ------------------------------------------------------------------------------
def measure(side: str, file: str, folder: Path) -> dict[str, Any]:
    """Seconds of one side on one file, after the same on a small file of the same form."""
    run = _ours if side.startswith(("gnnexp", OLDER)) else _pyarrow if side == "pyarrow" else _pandas_dgl
    run(side, folder / "small" / file)
    start_bytes = host_peak_bytes()
    cpu, start = time.process_time(), time.perf_counter()
    graph = run(side, folder / file)
    return {
        "seconds": time.perf_counter() - start,
        "cpu_s": time.process_time() - cpu,
        "start_bytes": start_bytes,
        "peak_bytes": host_peak_bytes(),
        "load_average": os.getloadavg()[0],
        **graph,
    }


def _ours(side: str, path: Path) -> dict[str, Any]:
    from gnnexp.datasets.tables import raw_edges
    from gnnexp.datasets.tables.dataset import Tables

    if side == BY_DUCKDB:
        raw_edges._in_memory = lambda *_: None
    as_it_is: dict[str, Any] = {"symmetrize": False, "duplicates": "keep", "self_loops": "keep"}
    target = path.parent / "made" / f"{side}-{path.name}"
    dataset = Tables(path=str(path.parent), edges=path.name, **({} if side == "gnnexp_default" else as_it_is))
    graph = dataset.generate(target)
    size = sum(one.stat().st_size for one in target.iterdir())
    facts = {"graph_bytes": size, "vertices": graph.num_nodes, "edges": graph.num_edges}
    shutil.rmtree(target)
    return facts


def _pyarrow(side: str, path: Path) -> dict[str, Any]:
    from pyarrow import csv, parquet

    read: Callable[[str], Any] = parquet.read_table if path.suffix == ".parquet" else csv.read_csv
    return {"rows": read(str(path)).num_rows}


def _pandas_dgl(side: str, path: Path) -> dict[str, Any]:
    import dgl
    import pandas
    import torch

    table = pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
    ends = [torch.from_numpy(table[name].to_numpy(np.int64)) for name in ("src", "dst")]
    graph = dgl.graph((ends[0], ends[1]))
    indptr, _, _ = graph.adj_tensors("csc")
    return {"rows": int(indptr[-1])}


if __name__ == "__main__":
    main()
