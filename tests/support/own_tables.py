"""Tables of a test, and the graphs that `dataset=tables` makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from gnnexp.datasets.tables.dataset import Tables
from gnnexp.graph.graph import Graph


def load(folder: Path, **options: Any) -> Graph:
    """The graph in memory."""
    return Tables(path=str(folder), **options).load()


def made(folder: Path, **options: Any) -> tuple[Graph, Path]:
    """The graph, and the folder in which it and the ids of its vertices are."""
    target = folder / "made" / "graph"
    return Tables(path=str(folder), **options).generate(target), target


def ids_of(folder: Path, kind: str = "vertex") -> list[Any]:
    """The id of each vertex."""
    found: list[Any] = pq.read_table(folder / f"ids_{kind}.parquet").column("id").to_pylist()
    return found


def named_edges(graph: Graph, ids: Sequence[Any]) -> set[tuple[Any, Any]]:
    """All edges, as pairs of ids."""
    ends = zip(graph.indices.tolist(), graph.destinations().tolist(), strict=True)
    return {(ids[source], ids[destination]) for source, destination in ends}


def text(path: Path, *lines: str) -> Path:
    """Write a text."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
