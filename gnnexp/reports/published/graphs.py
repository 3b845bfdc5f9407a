"""Which published graph ours is, or is like, and what a run would be on it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gnnexp.config.folders import read_claims
from gnnexp.planning.full_size import full_size
from gnnexp.planning.work import Workload
from gnnexp.record.runs import Run

# Shapes whose names are not the graph's.
_LIKE = {"papers_like": "papers100m", "mag_lsc_like": "mag240m"}


def graph_like(shape: str) -> str:
    """The published graph of a `dataset.shape`; empty where it is like none."""
    return _LIKE.get(shape, shape.removesuffix("_like") if shape.endswith("_like") else "")


def published_graph(run: Run) -> str:
    """The graph as `Cell.dataset` names it, empty where nobody published anything on it: `ogbn-arxiv` is `arxiv`."""
    shape = run.value("dataset.shape")
    if shape != "null":
        return graph_like(shape)
    return run.value("dataset.name").lower().removeprefix("ogbn-").removeprefix("ogbl-").replace("-", "_")


def fraction_of_targets(paper: str, run: Run) -> float | None:
    """Of the vertices of the graph that `run`'s is like, those that the paper trains; None: as the shape has it."""
    share: float | None = read_claims(paper).get("targets", {}).get(run.value("dataset.shape"))
    return share


def work_as_published(paper: str, run: Run, edge_rows: Collection[str] = ()) -> Workload:
    """What `run` would do on the graph and the targets of the paper.

    Args:
        paper: whose; of one that is not known, and of none, the targets are the shape's.
        run: at any scale.
        edge_rows: systems whose published code keeps rows for the edges of a GAT: they count as memory of the device.
    """
    work = full_size(run, fraction_of_targets(paper, run))
    kept = work.edge_rows_bytes if run.value("system") in edge_rows else 0.0
    return replace(work, device_bytes=work.device_bytes + kept)
