"""The work of a rank in an epoch, from the record of a run, in counts that do not depend on the machine or are scaled.

Counts are the busiest rank's if the record has their spread (`imbalance/*`), else the mean over ranks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from gnnexp.datasets.generated.shapes import sizes_of
from gnnexp.experiment.build import global_batch_size
from gnnexp.record.runs import RecordedRun

ITEMSIZE = 4
# Passes of a product: forward, and one for each of its two gradients. The input of layer 1 has no gradient.
_PRODUCTS, _PRODUCTS_FIRST = 3, 2
# Rows read per edge, forward and backward: once for the output and once for gradients. Attention reads them once more.
_GATHERS = {"gat": 3.0}
# Weight matrices for neighbours and for a vertex itself, by model; other models are assumed to have one of each.
_MATRICES = {"gcn": (1, 0), "gin": (1, 0), "gat": (1, 0), "mlp": (0, 1)}
# How often an output value of a layer is read or written, except by products and sums over edges. The sum of both
# sides takes 3 (two operands, one result), activation and dropout 2, and backward 3 (gradient, result, gradient).
_TOUCHES = 8
# Adam reads parameter, gradient and two moments, and writes all of them except the gradient.
_UPDATES = 7
# Tags whose bytes do not grow with the batch: they are sent once per step.
_BY_STEP = ("gradients", "parameters", "sizes")


# Counts that grow with a larger graph and also with more steps.
_IN_ANY_CASE = ("sampled_edges", "gathered_bytes", "flops", "crossing_bytes", "pipelined_bytes")


@dataclass(frozen=True)
class Workload:
    """The work of one rank in one epoch.

    Attributes:
        ranks: number of ranks that share the epoch.
        sampled_edges: number of edges drawn.
        loaded_bytes: bytes of feature rows by origin: `host` or `disk`. Rows that other ranks send, also from their
            caches, count as sent.
        gathered_bytes: bytes of rows that aggregation reads, forward and backward.
        flops: operations of dense products, forward and backward.
        sent_bytes: bytes sent to other ranks, by tag. Rows that kernels read from other GPUs count as sent features.
        rounds: number of payload exchanges, by tag.
        crossing_bytes: bytes copied between the host tier and the device tier, without features: blocks, chunks.
        device_bytes: the most bytes that the device tier held at once.
        elementwise_bytes: bytes read and written by activations, dropout, sums of two rows and the optimizer.
        update_bytes: the optimizer's share of `elementwise_bytes`.
        fixed_bytes: the share of `device_bytes` for parameters and gradients, which does not grow with the graph.
        steps: number of global batches.
        ahead: whether batches are prepared while others train.
        pipelined: number of chunks whose exchanges overlap with the work on other chunks; 0 if none do.
        pipelined_bytes: bytes of `activations` whose exchange overlaps in this way.
        edge_rows_bytes: additional bytes that a GAT without fused kernels keeps for its gradients. These are the
            concatenated projected rows of both ends, for every edge of every layer (HongTu's Equation 3, and "the
            O(|E|) intermediate data" of section 4.2). Our GAT keeps none of them.
        chunked: whether the device holds one chunk at a time, so that more chunks need less of it.
        matmul: how dense products round their factors (`train.matmul`).
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
    matmul: str = "float32"

    def scaled(self, factor: float) -> Workload:
        """The work on a graph `factor` times larger, with batches `factor` times larger and the same number of steps.

        Counts grow linearly with vertices and edges. A sample that reaches most of a small graph reaches a smaller
        share of a large one. For such samples the result is a lower bound.
        """
        return replace(
            self._times(factor),
            device_bytes=(self.device_bytes - self.fixed_bytes) * factor + self.fixed_bytes,
            edge_rows_bytes=self.edge_rows_bytes * factor,
            elementwise_bytes=(self.elementwise_bytes - self.update_bytes) * factor + self.update_bytes,
            sent_bytes={tag: count * (1 if tag in _BY_STEP else factor) for tag, count in self.sent_bytes.items()},
        )

    def repeated(self, times: float) -> Workload:
        """The work of an epoch with `times` times more steps of the same size."""
        return replace(
            self._times(times),
            elementwise_bytes=self.elementwise_bytes * times,
            update_bytes=self.update_bytes * times,
            steps=self.steps * times,
            sent_bytes={tag: count * times for tag, count in self.sent_bytes.items()},
            rounds={tag: count * times for tag, count in self.rounds.items()},
        )

    def _times(self, factor: float) -> Workload:
        """Scale the counts that grow both with a larger graph and with more steps."""
        return replace(
            self,
            **{name: getattr(self, name) * factor for name in _IN_ANY_CASE},
            loaded_bytes={origin: count * factor for origin, count in self.loaded_bytes.items()},
        )


def widths(run: RecordedRun) -> list[int]:
    """Number of columns of the features, of every hidden layer, and of the output.

    Trained feature rows have `feature_store.dim` columns; a model for links has `task.dim` output columns, and
    one for real numbers has one.
    """
    sizes, config = run.provenance["graph"], run.config
    hidden, layers = int(config["model"]["hidden"]), int(config["model"]["layers"])
    first = config["feature_store"].get("dim") or sizes["num_features"]
    last = config["task"].get("dim") or hidden if run.value("task") == "link_prediction" else sizes["num_classes"] or 1
    return [int(first), *[hidden] * (layers - 1), int(last)]


def work_of(run: RecordedRun) -> Workload:
    """The work of the median epoch of a finished run; its record must have the sizes of its data."""
    hardware = run.config["hardware"]
    ranks = int(hardware.get("nodes", 1)) * int(hardware["workers"])
    dims = widths(run)
    row_bytes = dims[0] * (2 if run.config["feature_store"].get("dtype") else ITEMSIZE) / _slices(run, ranks)
    tags = sorted(
        {name.removeprefix("comm/rounds_") for epoch in run.epochs for name in epoch if name.startswith("comm/rounds_")}
        - {"evaluation"}
    )
    loaded = {origin: _busiest(run, f"features_loaded_{origin}", ranks) * row_bytes for origin in ("host", "disk")}
    crossing = (_known(run, "tier/h2d_bytes") + _known(run, "tier/d2h_bytes")) / ranks
    sent = {tag: _sent(run, tag, ranks) for tag in tags}
    if read := _known(run, "tier/peer_bytes") / ranks:  # by kernels: no rounds
        sent["features"] = sent.get("features", 0.0) + read
    steps, chunks, parameters = num_steps(run), num_chunks(run), _parameters(run, dims)
    held, update = _device_bytes(run), _UPDATES * ITEMSIZE * parameters * steps
    return Workload(
        ranks=ranks,
        sampled_edges=_busiest(run, "edges_sampled", ranks),
        loaded_bytes=loaded,
        gathered_bytes=_gathered(run, dims, ranks),
        flops=_flops(run, dims, ranks),
        sent_bytes=sent,
        rounds={tag: _known(run, f"comm/rounds_{tag}") for tag in tags},
        crossing_bytes=max(0.0, crossing - loaded["host"]),
        device_bytes=held,
        elementwise_bytes=_elementwise(run, dims, ranks) + update,
        update_bytes=update,
        # Parameters, their gradients, and the buffers that collect the gradients.
        fixed_bytes=min(held, parameters * ITEMSIZE + _known(run, "memory/buffers_bytes")),
        steps=steps,
        ahead=bool(run.config.get("train", {}).get("overlap")) and steps > 1,
        edge_rows_bytes=_edge_rows(run, dims, ranks),
        chunked=_has_chunks(run),
        matmul=matmul_of(run),
        **_pipeline(run, dims, ranks, chunks),
    )


def matmul_of(run: RecordedRun) -> str:
    """How dense products of the run rounded their factors; runs of earlier versions did not round."""
    return str(run.config.get("train", {}).get("matmul") or "float32")


def _slices(run: RecordedRun, ranks: int) -> int:
    """Number of column slices of feature rows; each rank reads and multiplies its columns of all rows."""
    return ranks if run.value("feature_store") in ("sliced", "embedding_sliced") else 1


def _pipeline(run: RecordedRun, dims: list[int], ranks: int, chunks: int) -> dict[str, Any]:
    """The two of four exchanges of outputs that overlap with the work on chunks.

    A chunk's rows are gathered when it is done, and its gradients are split when it begins: one exchange of each pass.
    The split before the propagation, and its mirror image backward, overlap with nothing. A row is sent with the chunk
    that first reads it, and the first chunk reads nearly all rows. We counted 95 to 100 % of the rows with 4 chunks of
    the stand-ins of Reddit, ogbn-products, ogbn-papers and Friendster. With 13 chunks of ogbn-papers it is 63 %, so the
    overlap is a lower bound there. With `dense_blocks`, the split of a block and its mirror image overlap with dense
    updates of another block, so all four exchanges count.
    """
    options = run.config.get("paradigm", {})
    if not options.get("pipeline") or chunks == 1:
        return {}
    rows = _known(run, f"work/vertices_layer{len(dims) - 1}") / ranks
    exchanged = rows * dims[-1] * ITEMSIZE * (ranks - 1) / ranks
    blocks = int(options.get("dense_blocks") or 1)
    if blocks == 1:
        return {"pipelined": chunks, "pipelined_bytes": 2 * exchanged}
    return {"pipelined": min(chunks, blocks), "pipelined_bytes": 4 * exchanged}


def num_steps(run: RecordedRun) -> int:
    """Number of global batches of an epoch; 1 if all examples are one batch."""
    sizes = run.provenance["graph"]
    examples = sizes.get("num_links") if run.value("task") == "link_prediction" else sizes.get("num_train")
    size = global_batch_size(run.config) if "train" in run.config else None
    steps = -(-int(examples) // size) if size and examples else 1
    return min(steps, run.config.get("train", {}).get("steps_per_epoch") or steps)


def num_chunks(run: RecordedRun) -> int:
    """Number of chunks that a rank works on one after another; 1 if it works on everything at once."""
    recorded = (run.facts.get("chunks"), run.config.get("paradigm", {}).get("chunks"))
    return next((count for count in recorded if isinstance(count, int)), 1)


def _has_chunks(run: RecordedRun) -> bool:
    """Whether more chunks would need less memory: there are several, or `chunks=null` chooses them by memory."""
    wanted = run.config.get("paradigm", {}).get("chunks", 1)
    return num_chunks(run) > 1 or not isinstance(wanted, int)


def _device_bytes(run: RecordedRun) -> float:
    """Peak bytes of the device, with its cache, and with the graph if all of it is worked on at once."""
    whole = _known(run, "work/edges_sampled") == 0 and num_chunks(run) == 1
    names = ("device_peak_bytes", "cache_bytes", *(("topology_bytes",) if whole else ()))
    return sum(_known(run, f"memory/{name}") for name in names)


def _parameters(run: RecordedRun, dims: list[int]) -> int:
    neighbours, own = _MATRICES.get(run.value("model"), (1, 1))
    return sum((neighbours + own) * d_in * d_out + d_out for d_in, d_out in pairwise(dims))


def _elementwise(run: RecordedRun, dims: list[int], ranks: int) -> float:
    return sum(
        _TOUCHES * ITEMSIZE * width * _known(run, f"work/vertices_layer{layer}") / ranks
        for layer, width in enumerate(dims[1:], 1)
    )


def _is_decoupled(run: RecordedRun) -> bool:
    """Whether all products come before all sums, so that sums are over outputs (NeutronTP, section 4.1)."""
    return bool(run.config.get("paradigm", {}).get("mode") == "decoupled")


def _fetches_projected(run: RecordedRun) -> bool:
    """Whether owners project rows that get fewer columns, before they send them."""
    return run.config.get("paradigm", {}).get("rows") in ("projected", "cheapest")


def _gathered(run: RecordedRun, dims: list[int], ranks: int) -> float:
    """Bytes of rows read over edges. Where projection and aggregation commute, rows are read at the smaller width."""
    model, total = run.value("model"), 0.0
    if _is_decoupled(run):
        dims = [dims[-1]] * len(dims)
    for layer, (wide, narrow) in enumerate(pairwise(dims), 1):
        before = model != "gat" and wide <= narrow  # aggregated before it is projected
        raw = before and layer == 1 and not _is_decoupled(run)
        passes = _GATHERS.get(model, 1.0 if raw else 2.0)
        total += passes * (wide if before else narrow) * ITEMSIZE * _busiest(run, f"edges_layer{layer}", ranks)
    return total


def _edge_rows(run: RecordedRun, dims: list[int], ranks: int) -> float:
    if run.value("model") != "gat":
        return 0.0
    return sum(
        2 * width * ITEMSIZE * _busiest(run, f"edges_layer{layer}", ranks) for layer, width in enumerate(dims[1:], 1)
    )


def _flops(run: RecordedRun, dims: list[int], ranks: int) -> float:
    model, total = run.value("model"), 0.0
    neighbours, own = _MATRICES.get(model, (1, 1))
    origins = ("host", "peer", "disk", "local", "remote")
    sources = sum(_known(run, f"work/features_loaded_{origin}") for origin in origins) / ranks / _slices(run, ranks)
    # Full-graph training: rows of vertices that other ranks own, mean over the layers.
    fetched = 0.0 if _fetches_projected(run) else _known(run, "work/halo_fetched")
    halo = (fetched + _known(run, "work/halo_cached")) / ranks / (len(dims) - 1)
    for layer, (d_in, d_out) in enumerate(pairwise(dims), 1):
        rows = _known(run, f"work/vertices_layer{layer}") / ranks
        sources = max(sources, rows + halo)
        projected = rows if model != "gat" and d_in <= d_out else sources
        passes = _PRODUCTS_FIRST if layer == 1 else _PRODUCTS
        total += passes * 2 * d_in * d_out * (neighbours * projected + own * rows)
        sources = rows
    return total


def _busiest(run: RecordedRun, counter: str, ranks: int) -> float:
    """A `work/*` counter of the busiest rank."""
    return _known(run, f"work/{counter}") / ranks * (_known(run, f"imbalance/{counter}") or 1.0)


def _sent(run: RecordedRun, tag: str, ranks: int) -> float:
    """Bytes of a tag, of the rank that sends most."""
    return _known(run, f"comm/bytes_{tag}") / ranks * (_known(run, f"imbalance/bytes_{tag}") or 1.0)


def _known(run: RecordedRun, metric: str) -> float:
    """Median over the epochs after the first; 0 if the metric was not recorded."""
    value = run.median(metric)
    return 0.0 if math.isnan(value) else value


def full_factor(run: RecordedRun) -> float:
    """How many times larger the full graph of the run's shape is; 1 for graphs without a shape."""
    return 1 / float(run.config["dataset"].get("scale") or 1)


def full_steps(run: RecordedRun, share: float | None = None) -> float:
    """How many times more steps an epoch has on the full graph, if fewer targets (`dataset.train`) made fewer batches.

    It is 1 for full-graph training, whose epoch is one step on all vertices. It is also 1 if a sweep trains more than
    the shape's share: that is another paper's split of the same graph.

    Args:
        run: a finished run.
        share: share of vertices that are trained on the full graph, if it differs from the shape's.
    """
    dataset = run.config["dataset"]
    if not dataset.get("shape") or not dataset.get("train") or run.config["train"].get("batch_size") is None:
        return 1.0
    return max(1.0, (share or sizes_of(dataset["shape"]).train) / float(dataset["train"]))


def full_size(run: RecordedRun, share: float | None = None) -> Workload:
    """Counts of a finished run, scaled to the graph of its shape and to an epoch of all its targets."""
    return work_of(run).scaled(full_factor(run)).repeated(full_steps(run, share))
