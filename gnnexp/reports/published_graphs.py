"""The published graph that a dataset is or is like, and the work of a run on that graph."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache

from gnnexp.config.folders import papers_with
from gnnexp.planning.work import Workload, full_size
from gnnexp.record.runs import RecordedRun

# Shapes whose names do not contain the published graph's name.
_LIKE = {"papers_like": "papers100m", "mag_lsc_like": "mag240m"}


def graph_like(shape: str) -> str:
    """The published graph that a `dataset.shape` is like; empty if there is none."""
    return _LIKE.get(shape, shape.removesuffix("_like") if shape.endswith("_like") else "")


def published_graph(run: RecordedRun) -> str:
    """The dataset's graph, named as in `Cell.dataset`: `ogbn-arxiv` is `arxiv`. Empty for a shape like no graph."""
    shape = run.value("dataset.shape")
    if shape != "null":
        return graph_like(shape)
    return run.value("dataset.name").lower().removeprefix("ogbn-").removeprefix("ogbl-").replace("-", "_")


def fraction_of_targets(paper: str, run: RecordedRun) -> float | None:
    """The share of vertices that the paper trains on the graph that `run`'s shape is like; None: the shape's share."""
    return _targets(paper).get(run.value("dataset.shape"))


@cache
def _targets(paper: str) -> Mapping[str, float]:
    """Shares of the vertices that a paper trains, by `dataset.shape`, if they differ from the shape's."""
    file = papers_with("targets.csv").get(paper)
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines()) if file else ()
    return {row["shape"]: float(row["share"]) for row in rows}


def work_as_published(paper: str, run: RecordedRun, edge_rows: Collection[str] = ()) -> Workload:
    """The work of `run` on the paper's graph with the paper's targets.

    Args:
        paper: the paper; for an unknown paper or an empty name, the targets are the shape's.
        run: a run at any scale.
        edge_rows: systems whose published code keeps rows for the edges of a GAT; the rows count as device memory.
    """
    work = full_size(run, fraction_of_targets(paper, run))
    kept = work.edge_rows_bytes if run.value("system") in edge_rows else 0.0
    return replace(work, device_bytes=work.device_bytes + kept)
