"""What a rank does in an epoch, in counts that do not depend on the machine: from the record of a run.

Counts are the busiest rank's where the record tells how they are spread (`imbalance/*`), else the mean over ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from gnnexp.experiment.build import batch_size_of
from gnnexp.record.runs import Run

ITEMSIZE = 4
# A product costs as much again for each of its two gradients; one of them in layer 1, whose input has none.
_PRODUCTS, _PRODUCTS_FIRST = 3, 2
# Rows that are read per edge, both ways: once, and once for the gradients; attention reads them once more.
_GATHERS = {"gat": 3.0}
# Matrices on the neighbours' side and on a vertex's own side, by model; others are taken to have one of each.
_MATRICES = {"gcn": (1, 0), "gin": (1, 0), "gat": (1, 0), "mlp": (0, 1)}
# How often a value that a layer puts out is read or written beside products and sums over edges: adding both sides
# 3 times (two operands, a result), activation and dropout 2, and backwards 3 (gradient, result, gradient).
_TOUCHES = 8
# Adam reads parameter, gradient and two moments, and writes all but the gradient.
_UPDATES = 7
# What grows with a batch; the others are once per step, however large it is.
_BY_STEP = ("gradients", "parameters", "sizes")


_IN_ANY_CASE = ("sampled_edges", "gathered_bytes", "flops", "crossing_bytes", "pipelined_bytes")


@dataclass(frozen=True)
class Workload:
    """One rank's epoch.

    Attributes:
        ranks: how many share the epoch.
        sampled_edges: drawn.
        loaded_bytes: of feature rows by where they were: `host`, `disk`; what other ranks send, from their caches too,
            is sent.
        gathered_bytes: rows that aggregation reads, both ways.
        flops: of dense products, both ways.
        sent_bytes: to other ranks, by tag.
        rounds: payload exchanges, by tag.
        crossing_bytes: from the host tier to the device tier and back, beside features: blocks, chunks.
        device_bytes: the most that the device tier held at once.
        elementwise_bytes: read and written by activations, dropout, sums of two rows and the optimizer.
        update_bytes: of those, by the optimizer.
        fixed_bytes: of the device's, those of parameters and gradients, however large the graph is.
        steps: global batches.
        ahead: whether batches are prepared while others train.
        pipelined: chunks whose exchanges pass behind the work on others; 0 where none does.
        pipelined_bytes: of what is sent as `activations`, what passes so.
        edge_rows_bytes: what a GAT without fused kernels keeps beside that for its gradients: of every edge of every
            layer the projected rows of both ends, concatenated (HongTu's Equation 3, and "the O(|E|) intermediate data"
            of section 4.2); ours keeps none of it.
        chunked: whether the device holds one chunk at a time, so that more of them need less of it.
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
    elementwise_bytes: float = 0.0
    update_bytes: float = 0.0
    fixed_bytes: float = 0.0
    steps: float = 0.0
    ahead: bool = False
    pipelined: int = 0
    pipelined_bytes: float = 0.0
    edge_rows_bytes: float = 0.0
    chunked: bool = False

    def scaled(self, factor: float) -> Workload:
        """The same on a graph `factor` times as large with batches `factor` times as large: as many steps.

        Linear in vertices and edges: a sample that saturates a small graph does not on a large one, so this is a bound
        from below for batches that reach most of it.
        """
        return replace(
            self._times(factor), device_bytes=(self.device_bytes - self.fixed_bytes) * factor + self.fixed_bytes,
            edge_rows_bytes=self.edge_rows_bytes * factor,
            elementwise_bytes=(self.elementwise_bytes - self.update_bytes) * factor + self.update_bytes,
            sent_bytes={tag: count * (1 if tag in _BY_STEP else factor) for tag, count in self.sent_bytes.items()},
        )

    def repeated(self, times: float) -> Workload:
        """An epoch of so many times as many steps, each as before."""
        return replace(
            self._times(times), elementwise_bytes=self.elementwise_bytes * times,
            update_bytes=self.update_bytes * times, steps=self.steps * times,
            sent_bytes={tag: count * times for tag, count in self.sent_bytes.items()},
            rounds={tag: count * times for tag, count in self.rounds.items()},
        )

    def _times(self, factor: float) -> Workload:
        """What a larger graph and more steps have in common."""
        return replace(
            self, **{name: getattr(self, name) * factor for name in _IN_ANY_CASE},
            loaded_bytes={origin: count * factor for origin, count in self.loaded_bytes.items()})


def widths(run: Run) -> list[int]:
    """Columns of the features, of every hidden layer, and of the output.

    Trained rows are as wide as they are made; a model for links ends in `task.dim` columns.
    """
    sizes, config = run.provenance["graph"], run.config
    hidden, layers = int(config["model"]["hidden"]), int(config["model"]["layers"])
    first = config["feature_store"].get("dim") or sizes["num_features"]
    last = config["task"].get("dim") or hidden if run.value("task") == "link_prediction" else sizes["num_classes"]
    return [int(first), *[hidden] * (layers - 1), int(last)]


def work_of(run: Run) -> Workload:
    """The median epoch of a finished run, whose record has the sizes of its data (`provenance.graph`)."""
    hardware = run.config["hardware"]
    ranks = int(hardware.get("nodes", 1)) * int(hardware["workers"])
    dims = widths(run)
    row_bytes = dims[0] * ITEMSIZE / _slices(run, ranks)
    tags = sorted({name.removeprefix("comm/rounds_") for epoch in run.epochs for name in epoch
                   if name.startswith("comm/rounds_")} - {"evaluation"})
    loaded = {origin: _busiest(run, f"features_loaded_{origin}", ranks) * row_bytes
              for origin in ("host", "disk")}
    crossing = (_known(run, "tier/h2d_bytes") + _known(run, "tier/d2h_bytes")) / ranks
    steps, chunks, parameters = num_steps(run), num_chunks(run), _parameters(run, dims)
    held, update = _device_bytes(run), _UPDATES * ITEMSIZE * parameters * steps
    return Workload(
        ranks=ranks, sampled_edges=_busiest(run, "edges_sampled", ranks), loaded_bytes=loaded,
        gathered_bytes=_gathered(run, dims, ranks), flops=_flops(run, dims, ranks),
        sent_bytes={tag: _sent(run, tag, ranks) for tag in tags},
        rounds={tag: _known(run, f"comm/rounds_{tag}") for tag in tags},
        crossing_bytes=max(0.0, crossing - loaded["host"]), device_bytes=held,
        elementwise_bytes=_elementwise(run, dims, ranks) + update, update_bytes=update,
        # Parameters, their gradients and what gathers those.
        fixed_bytes=min(held, parameters * ITEMSIZE + _known(run, "memory/buffers_bytes")), steps=steps,
        ahead=bool(run.config.get("train", {}).get("overlap")) and steps > 1,
        edge_rows_bytes=_edge_rows(run, dims, ranks), chunked=_in_chunks(run), **_pipeline(run, dims, ranks, chunks),
    )


def _slices(run: Run, ranks: int) -> int:
    """Into how many slices of columns rows are cut; every rank then reads, and multiplies, its columns of every row."""
    return ranks if run.value("feature_store") in ("sliced", "embedding_sliced") else 1


def _pipeline(run: Run, dims: list[int], ranks: int, chunks: int) -> dict[str, Any]:
    """Of the four exchanges of outputs, the two that pass while chunks are worked on.

    A chunk's rows are gathered when it is done, and its gradients are split as it begins: one of each pass. The split
    before the propagation, and its mirror image backwards, hide nothing: a row goes with the chunk that first reads it,
    and the first chunk reads nearly all of them (95 to 100 % of the rows with 4 chunks of the stand-ins of Reddit,
    ogbn-products, ogbn-papers and Friendster; 63 % with 13 chunks of ogbn-papers: a bound from below there).
    """
    if not run.config.get("paradigm", {}).get("pipeline") or chunks == 1:
        return {}
    rows = _known(run, f"work/vertices_layer{len(dims) - 1}") / ranks
    return {"pipelined": chunks, "pipelined_bytes": 2 * rows * dims[-1] * ITEMSIZE * (ranks - 1) / ranks}


def num_steps(run: Run) -> int:
    """Global batches of an epoch; 1 where all examples are one."""
    sizes = run.provenance["graph"]
    examples = sizes.get("num_links") if run.value("task") == "link_prediction" else sizes.get("num_train")
    size = batch_size_of(run.config) if "train" in run.config else None
    steps = -(-int(examples) // size) if size and examples else 1
    return min(steps, run.config.get("train", {}).get("steps_per_epoch") or steps)


def num_chunks(run: Run) -> int:
    """Ranges that a rank works on one after another, 1 where it works on everything at once."""
    told = (run.facts.get("chunks"), run.config.get("paradigm", {}).get("chunks"))
    return next((count for count in told if isinstance(count, int)), 1)


def _in_chunks(run: Run) -> bool:
    """Whether more of them need less memory: where there are several, or as many as memory wants (`chunks=null`)."""
    wanted = run.config.get("paradigm", {}).get("chunks", 1)
    return num_chunks(run) > 1 or not isinstance(wanted, int)


def _device_bytes(run: Run) -> float:
    """Beside what computing takes: a cache, and the graph where all of it is worked on at once."""
    whole = _known(run, "work/edges_sampled") == 0 and num_chunks(run) == 1
    names = ("device_peak_bytes", "cache_bytes", *(("topology_bytes",) if whole else ()))
    return sum(_known(run, f"memory/{name}") for name in names)


def _parameters(run: Run, dims: list[int]) -> int:
    neighbours, own = _MATRICES.get(run.value("model"), (1, 1))
    return sum((neighbours + own) * d_in * d_out + d_out for d_in, d_out in pairwise(dims))


def _elementwise(run: Run, dims: list[int], ranks: int) -> float:
    return sum(_TOUCHES * ITEMSIZE * width * _known(run, f"work/vertices_layer{layer}") / ranks
               for layer, width in enumerate(dims[1:], 1))


def _decoupled(run: Run) -> bool:
    """Whether all products come before all sums, which then are of outputs (NeutronTP, section 4.1)."""
    return bool(run.config.get("paradigm", {}).get("mode") == "decoupled")


def _gathered(run: Run, dims: list[int], ranks: int) -> float:
    """Projection and aggregation commute where weights allow it: rows are read where they are narrower."""
    model, total = run.value("model"), 0.0
    if _decoupled(run):
        dims = [dims[-1]] * len(dims)
    for layer, (wide, narrow) in enumerate(pairwise(dims), 1):
        before = model != "gat" and wide <= narrow  # aggregated before it is projected
        raw = before and layer == 1 and not _decoupled(run)
        passes = _GATHERS.get(model, 1.0 if raw else 2.0)
        total += passes * (wide if before else narrow) * ITEMSIZE * _busiest(run, f"edges_layer{layer}", ranks)
    return total


def _edge_rows(run: Run, dims: list[int], ranks: int) -> float:
    if run.value("model") != "gat":
        return 0.0
    return sum(2 * width * ITEMSIZE * _busiest(run, f"edges_layer{layer}", ranks)
               for layer, width in enumerate(dims[1:], 1))


def _flops(run: Run, dims: list[int], ranks: int) -> float:
    model, total = run.value("model"), 0.0
    neighbours, own = _MATRICES.get(model, (1, 1))
    origins = ("host", "peer", "disk", "local", "remote")
    sources = sum(_known(run, f"work/features_loaded_{origin}") for origin in origins) / ranks / _slices(run, ranks)
    # On the full graph: rows of other ranks' vertices, of a layer in the mean.
    halo = (_known(run, "work/halo_fetched") + _known(run, "work/halo_cached")) / ranks / (len(dims) - 1)
    for layer, (d_in, d_out) in enumerate(pairwise(dims), 1):
        rows = _known(run, f"work/vertices_layer{layer}") / ranks
        sources = max(sources, rows + halo)
        projected = rows if model != "gat" and d_in <= d_out else sources
        passes = _PRODUCTS_FIRST if layer == 1 else _PRODUCTS
        total += passes * 2 * d_in * d_out * (neighbours * projected + own * rows)
        sources = rows
    return total


def _busiest(run: Run, counter: str, ranks: int) -> float:
    """Of a `work/*` counter."""
    return _known(run, f"work/{counter}") / ranks * (_known(run, f"imbalance/{counter}") or 1.0)


def _sent(run: Run, tag: str, ranks: int) -> float:
    """By the rank that sends most."""
    return _known(run, f"comm/bytes_{tag}") / ranks * (_known(run, f"imbalance/bytes_{tag}") or 1.0)


def _known(run: Run, metric: str) -> float:
    """Median over the epochs after the first; 0 for what nobody counted."""
    value = run.median(metric)
    return 0.0 if math.isnan(value) else value
