"""Which published graph ours is, or is like, and what a run would be on it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gnnexp.planning.full_size import full_size
from gnnexp.planning.work import Work
from gnnexp.record.runs import Run

# Synthetic graphs by `dataset.shape`; others go by their name.
_LIKE = {
    "arxiv_like": "arxiv", "reddit_like": "reddit", "products_like": "products", "orkut_like": "orkut",
    "flickr_like": "flickr", "yelp_like": "yelp", "amazon_like": "amazon",
    "papers_like": "papers100m", "friendster_like": "friendster", "mag_like": "mag", "mag_lsc_like": "mag240m",
    "it2004_like": "it2004",
}

# Shares of vertices that a paper trains, where they are not the shape's: "randomly generated [...] training (65%)"
# (NeutronTP, section 5.1); a random tenth in GSplit's artifact, whose paper does not say.
_TARGETS = {("neutrontp", "friendster_like"): 0.65, ("gsplit", "orkut_like"): 0.1, ("gsplit", "friendster_like"): 0.1}


def graph_like(shape: str) -> str:
    """The published graph of a `dataset.shape`; empty where it is like none."""
    return _LIKE.get(shape, "")


def published_graph(run: Run) -> str:
    """The graph as `Cell.dataset` names it, empty where nobody published anything on it: `ogbn-arxiv` is `arxiv`."""
    shape = run.value("dataset.shape")
    if shape != "null":
        return graph_like(shape)
    return run.value("dataset.name").lower().removeprefix("ogbn-").removeprefix("ogbl-").replace("-", "_")


def share_of_targets(paper: str, run: Run) -> float | None:
    """Of the vertices of the graph that `run`'s is like, those that the paper trains; None: as the shape has it."""
    return _TARGETS.get((paper, run.value("dataset.shape")))


def work_as_published(paper: str, run: Run, edge_rows: Collection[str] = ()) -> Work:
    """What `run` would do on the graph and the targets of the paper.

    Args:
        paper: whose; of one that is not known, and of none, the targets are the shape's.
        run: at any scale.
        edge_rows: systems whose published code keeps rows for the edges of a GAT: they count as memory of the device.
    """
    work = full_size(run, share_of_targets(paper, run))
    kept = work.edge_rows_bytes if run.value("system") in edge_rows else 0.0
    return replace(work, device_bytes=work.device_bytes + kept)
