"""What a run on a small graph would have counted on the graph of its shape: `dataset.scale=1`, all its targets."""

from __future__ import annotations

from gnnexp.datasets.generated.shapes import sizes_of
from gnnexp.planning.work import Workload, work_of
from gnnexp.record.runs import Run


def full_factor(run: Run) -> float:
    """How many times as large the graph of its shape is; 1 for graphs without."""
    return 1 / float(run.config["dataset"].get("scale") or 1)


def full_steps(run: Run, share: float | None = None) -> float:
    """How many times as many steps an epoch has there: fewer targets (`dataset.train`) make fewer batches here.

    1 for full-graph training, whose epoch is one step on all vertices whoever is trained, and where a sweep trains
    more than the shape's share: that is then another paper's split of the same graph.

    Args:
        run: a finished one.
        share: of the vertices that are trained on the full graph, where it is not the shape's.
    """
    dataset = run.config["dataset"]
    if not dataset.get("shape") or not dataset.get("train") or run.config["train"].get("batch_size") is None:
        return 1.0
    return max(1.0, (share or sizes_of(dataset["shape"]).train) / float(dataset["train"]))


def full_size(run: Run, share: float | None = None) -> Workload:
    """Counts of a finished run, scaled to the graph of its shape and to an epoch of all its targets."""
    return work_of(run).scaled(full_factor(run)).repeated(full_steps(run, share))
