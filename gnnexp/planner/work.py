"""What a rank does in an epoch, in counts that do not depend on the machine: from the record of a run.

Counts are the busiest rank's where the record tells how they are spread (`imbalance/*`), else the mean over ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from gnnexp.runs import Run

ITEMSIZE = 4
# A product costs as much again for each of its two gradients; one of them in layer 1, whose input has none.
_PRODUCTS, _PRODUCTS_FIRST = 3, 2
# Rows that are read per edge, both ways: once, and once for the gradients; attention reads them once more.
_GATHERS = {"gat": 3.0}
# Matrices on the neighbours' side and on a vertex's own side, by model; others are taken to have one of each.
_MATRICES = {"gcn": (1, 0), "gin": (1, 0), "gat": (1, 0), "mlp": (0, 1)}
# What grows with a batch; the others are once per step, however large it is.
_BY_STEP = ("gradients", "parameters", "sizes")


@dataclass(frozen=True)
class Work:
    """One rank's epoch.

    Attributes:
        ranks: how many share the epoch.
        sampled_edges: drawn.
        loaded_bytes: of feature rows by where they were: `host`, `peer`, `disk`; what other ranks send is sent.
        gathered_bytes: rows that aggregation reads, both ways.
        flops: of dense products, both ways.
        sent_bytes: to other ranks, by tag.
        rounds: payload exchanges, by tag.
        crossing_bytes: from the host tier to the device tier and back, beside features: blocks, chunks.
        device_bytes: the most that the device tier held at once.
    """

    ranks: int
    sampled_edges: float
    loaded_bytes: Mapping[str, float]
    gathered_bytes: float
    flops: float
    sent_bytes: Mapping[str, float]
    rounds: Mapping[str, float]
    crossing_bytes: float
    device_bytes: float

    def scaled(self, factor: float) -> Work:
        """The same on a graph `factor` times as large with batches `factor` times as large: as many steps.

        Linear in vertices and edges: a sample that saturates a small graph does not on a large one, so this is a bound
        from below for batches that reach most of it.
        """
        return replace(
            self, sampled_edges=self.sampled_edges * factor, gathered_bytes=self.gathered_bytes * factor,
            loaded_bytes={origin: count * factor for origin, count in self.loaded_bytes.items()},
            flops=self.flops * factor, crossing_bytes=self.crossing_bytes * factor,
            device_bytes=self.device_bytes * factor,
            sent_bytes={tag: count * (1 if tag in _BY_STEP else factor) for tag, count in self.sent_bytes.items()},
        )


def widths(run: Run) -> list[int]:
    """Columns of the features, of every hidden layer, and of the output.

    Trained rows are as wide as they are made; a model for links ends in `task.dim` columns.
    """
    sizes, config = run.provenance["graph"], run.config
    hidden, layers = int(config["model"]["hidden"]), int(config["model"]["layers"])
    first = config["feature_store"].get("dim") or sizes["num_features"]
    last = config["task"].get("dim") or hidden if run.value("task") == "link_prediction" else sizes["num_classes"]
    return [int(first), *[hidden] * (layers - 1), int(last)]


def work_of(run: Run) -> Work:
    """The median epoch of a finished run, whose record has the sizes of its data (`provenance.graph`)."""
    hardware = run.config["hardware"]
    ranks = int(hardware.get("nodes", 1)) * int(hardware["workers"])
    dims = widths(run)
    sliced = run.value("feature_store") in ("sliced", "embedding_sliced")  # every rank reads its columns of every row
    row_bytes = dims[0] * ITEMSIZE / (ranks if sliced else 1)
    tags = sorted({name.removeprefix("comm/rounds_") for epoch in run.epochs for name in epoch
                   if name.startswith("comm/rounds_")} - {"evaluation"})
    loaded = {origin: _busiest(run, f"features_loaded_{origin}", ranks) * row_bytes
              for origin in ("host", "peer", "disk")}
    crossing = (_known(run, "tier/h2d_bytes") + _known(run, "tier/d2h_bytes")) / ranks
    return Work(
        ranks=ranks, sampled_edges=_busiest(run, "edges_sampled", ranks), loaded_bytes=loaded,
        gathered_bytes=_gathered(run, dims, ranks), flops=_flops(run, dims, ranks),
        sent_bytes={tag: _known(run, f"comm/bytes_{tag}") / ranks for tag in tags},
        rounds={tag: _known(run, f"comm/rounds_{tag}") for tag in tags},
        crossing_bytes=max(0.0, crossing - loaded["host"]), device_bytes=_known(run, "memory/device_peak_bytes"),
    )


def _gathered(run: Run, dims: list[int], ranks: int) -> float:
    """Projection and aggregation commute where weights allow it: rows are read where they are narrower."""
    model, total = run.value("model"), 0.0
    for layer, (wide, narrow) in enumerate(pairwise(dims), 1):
        before = model != "gat" and wide <= narrow  # aggregated before it is projected
        passes = _GATHERS.get(model, 1.0 if before and layer == 1 else 2.0)
        total += passes * (wide if before else narrow) * ITEMSIZE * _busiest(run, f"edges_layer{layer}", ranks)
    return total


def _flops(run: Run, dims: list[int], ranks: int) -> float:
    model, total = run.value("model"), 0.0
    neighbours, own = _MATRICES.get(model, (1, 1))
    origins = ("host", "peer", "disk", "local", "remote")
    sources = sum(_known(run, f"work/features_loaded_{origin}") for origin in origins) / ranks
    for layer, (d_in, d_out) in enumerate(pairwise(dims), 1):
        rows = _known(run, f"work/vertices_layer{layer}") / ranks
        projected = rows if model != "gat" and d_in <= d_out else max(rows, sources)
        passes = _PRODUCTS_FIRST if layer == 1 else _PRODUCTS
        total += passes * 2 * d_in * d_out * (neighbours * projected + own * rows)
        sources = rows
    return total


def _busiest(run: Run, counter: str, ranks: int) -> float:
    """Of a `work/*` counter."""
    return _known(run, f"work/{counter}") / ranks * (_known(run, f"imbalance/{counter}") or 1.0)


def _known(run: Run, metric: str) -> float:
    """Median over the epochs after the first; 0 for what nobody counted."""
    value = run.median(metric)
    return 0.0 if math.isnan(value) else value
