"""Exact evaluation: layer-wise inference over all neighbours, in chunks, shared by the ranks, outside the epoch time.

Layer l is computed for all vertices before layer l + 1, so no vertex is computed twice (DGL's and OGB's "layer-wise
inference"). Each rank computes its range of the vertices; ranges are then exchanged (tag `evaluation`). Half of
`train.eval_memory` is for the chunk that is worked on, half for activations, which are streamed to a file in the run
directory where they take more. Between chunks the resident pages of mapped files are given back.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from gnnexp.disk import subfolder, writing
from gnnexp.feature_stores.local import LocalStore
from gnnexp.graph.block import BatchKey, Block, without_edges
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.graph.subset import contains
from gnnexp.job import Job
from gnnexp.measure.memory import MappedPages, give_back_heap, host_peak_bytes, reset_host_peak
from gnnexp.models.model import Model
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.loops.targets import share
from gnnexp.samplers.full import FullSampler
from gnnexp.tasks.base import Scores

_BROADCAST_BYTES = 64 << 20  # a piece of an exchange: gloo's throughput is flat from 16 MB on (measured)
# Bytes of chunk-local tensors (gathered sources, projections, sums) per edge and column: at most this many copies.
_CHUNK_COPIES = 8


class Evaluation:
    """Evaluates the validation and test splits every `train.eval_every` epochs and after the last one, or never."""

    def __init__(self, job: Job, paradigm: Paradigm[Any]) -> None:
        self._job, self._paradigm = job, paradigm
        self._splits = {name: torch.sort(members).values for name, members in job.task.held_out(job.graph).items()}
        self._due = any(members.numel() for members in self._splits.values())
        self._wanted = torch.arange(job.graph.num_nodes)
        if not job.task.pairs:
            self._wanted = torch.unique(torch.cat(list(self._splits.values())))
        self._sampler = FullSampler()
        self._sampler.setup(Shard(job.graph, needs=job.model.needs), num_layers=1)
        # Wherever training reads its features, inference reads the mapped files: it is outside what is measured.
        self._store = LocalStore()
        if job.trained_rows is None:
            self._store.setup(job.shard, job.dtype, job.device, job.comm)
        self._blocks: dict[tuple[int, int], Block] = {}
        bounds = (job.run.train.eval_memory, paradigm.evaluation_memory)
        self._half = min(bound for bound in bounds if bound is not None) // 2

    def after(self, epoch: int) -> dict[str, float]:
        """Metrics by split (`acc/val`, ...), the same on every rank; empty when no evaluation is due."""
        every, last = self._job.run.train.eval_every, self._job.run.train.epochs - 1
        due = every is not None and (epoch == last or (every > 0 and (epoch + 1) % every == 0))
        if not due or not self._due:
            return {}
        start = time.perf_counter()
        reset_host_peak()
        metrics = self._metrics()
        peaks: Any = self._job.comm.gather_objects(host_peak_bytes())
        traffic = self._job.comm.ledger.take().get("evaluation")
        metrics["eval/seconds"] = time.perf_counter() - start
        metrics["eval/sent_bytes"] = 0 if traffic is None else traffic.sent_bytes
        metrics["eval/host_peak_bytes"] = max(peaks)
        return metrics

    def _metrics(self) -> dict[str, float]:
        self._make_room()
        job = self._job
        parts = self._scores_of_links() if job.task.pairs else self._scores_of_vertices()
        metrics: dict[str, float] = {}
        for split, own in parts.items():
            joined = [p for part in job.comm.gather_objects(own) for p in part]  # type: ignore[attr-defined]
            if self._splits[split].numel():
                metrics |= {f"{name}/{split}": value for name, value in job.task.metrics(joined).items()}
        return metrics

    def _scores_of_vertices(self) -> dict[str, list[Scores]]:
        parts: dict[str, list[Scores]] = {split: [] for split in self._splits}
        for ids, logits in self.logits():
            for split, members in self._splits.items():
                kept = contains(members, ids.long())
                parts[split].append(self._job.task.score(logits[kept], ids[kept]))
        return parts

    @torch.no_grad()
    def _scores_of_links(self) -> dict[str, list[Scores]]:
        """Ends of links may be any vertices: outputs of all first, then every rank scores its share of the links."""
        job = self._job
        model = self._paradigm.evaluation_model().eval()
        with self._scratch() as folder:
            rows = self._inputs(folder)
            for index in range(model.num_layers):
                rows = self._hidden(model, index, rows, self._wanted, folder)
            assert rows is not None
            own = {split: share(links, job.comm.rank, job.comm.size) for split, links in self._splits.items()}
            return {split: list(job.task.score_pairs(split, rows, links, self._half)) for split, links in own.items()}

    def _inputs(self, folder: Path) -> Tensor | None:
        """Trained rows of all vertices; features are read chunk by chunk."""
        job, trained = self._job, self._job.trained_rows
        if trained is None:
            return None
        rows = self._allocate(job.graph.num_nodes, job.model.in_dim, folder / "inputs.rows")
        trained.gather(rows, job.batch_comm)
        return rows

    def _make_room(self) -> None:
        """Where what inference needs is not free, training's idle buffers go: fresh pages cost, thrashing more."""
        job, ranks = self._job, self._job.run.hardware.workers
        row = self._most_columns(job.model) * torch.empty(0, dtype=job.dtype).element_size()
        chunk = min(self._half, _CHUNK_COPIES * row * job.graph.num_edges // ranks)
        wanted = ranks * (2 * job.graph.num_nodes * row + chunk)
        if psutil.virtual_memory().available < wanted and job.model.backend is not None:
            job.model.backend.release()
            give_back_heap()

    def _most_columns(self, model: Model) -> int:
        """Of dense rows that inference has: read, projected (all heads or bases), and handed on."""
        sparse = isinstance(self._job.graph.features, SparseRows)
        return max(0 if sparse else model.in_dim, *(
            int(getattr(layer, name, 0)) for layer in model.layers for name in ("width", "out_dim")))

    @torch.no_grad()
    def logits(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's share of the evaluated vertices, chunk by chunk: `(ids [n], logits [n, C])`."""
        model = self._paradigm.evaluation_model()
        model.eval()
        everyone = torch.arange(self._job.graph.num_nodes)
        with self._scratch() as folder:
            rows = self._inputs(folder)
            for index in range(model.num_layers - 1):
                rows = self._hidden(model, index, rows, everyone, folder)
            yield from self._layer(model, model.num_layers - 1, rows, self._wanted)

    # --- one layer -----------------------------------------------------------------------------------------------
    def _hidden(self, model: Model, index: int, rows: Tensor | None, ids: Tensor, folder: Path) -> Tensor:
        """`[V, C]` outputs of a hidden layer, of all ranks' ranges."""
        out: Tensor | None = None
        start = 0
        ranges = split_by_edges(self._job.graph, ids, self._job.comm.size)
        begin = ranges[self._job.comm.rank]
        for chunk, values in self._layer(model, index, rows, ids):
            if out is None:
                out = self._allocate(ids.numel(), values.shape[1], folder / f"layer{index}.rows")
                pages = MappedPages(out)
            position = begin + start
            out[position : position + chunk.numel()] = values.cpu()
            start += chunk.numel()
            pages.give_back()
        if out is None:
            layer: Any = model.layers[index]
            out = self._allocate(ids.numel(), layer.out_dim, folder / f"layer{index}.rows")
        self._exchange(out, ranges)
        return out

    def _layer(self, model: Model, index: int, rows: Tensor | None, ids: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        job = self._job
        bounds = split_by_edges(job.graph, ids, job.comm.size)
        own = ids[bounds[job.comm.rank] : bounds[job.comm.rank + 1]]
        itemsize = torch.empty(0, dtype=job.dtype).element_size()
        limit = max(1, self._half // (_CHUNK_COPIES * itemsize * self._most_columns(model)))
        cuts = chunks_by_edges(job.graph, own, limit)
        pages = MappedPages(*_mapped(job.graph), *([] if rows is None else [rows]))
        for number, (first, last) in enumerate(pairwise(cuts)):
            chunk = own[first:last]
            if model.row_local(index):
                block = without_edges(chunk.to(job.graph.indices.dtype))
            else:
                block = self._block(index == model.num_layers - 1, number, chunk, keep=len(cuts) == 2)
            sources: Rows = self._store.read(block.src_ids) if rows is None else rows[block.src_ids.long()]
            if isinstance(sources, Tensor):
                sources = sources.to(job.device)
            yield chunk, model.run_layer(index, block.to(job.device), sources, None)
            if len(cuts) > 2:
                pages.give_back()

    def _block(self, last: bool, number: int, chunk: Tensor, keep: bool) -> Block:
        """All in-edges of a chunk; kept for the next evaluation when a rank's share is a single chunk."""
        key = (int(last), number)
        if key in self._blocks:
            return self._blocks[key]
        ids = chunk.to(self._job.graph.indices.dtype)
        block = self._sampler.sample(ids, BatchKey(0, 0, 0)).blocks[0]
        if keep:
            self._blocks[key] = block
        return block

    def _exchange(self, rows: Tensor, bounds: Sequence[int]) -> None:
        """Fill in the other ranks' ranges."""
        job = self._job
        if job.comm.size == 1:
            return
        pages = MappedPages(rows)
        piece = max(1, _BROADCAST_BYTES // (rows.shape[1] * rows.element_size()))
        for source in range(job.comm.size):
            for first in range(bounds[source], bounds[source + 1], piece):
                part = rows[first : min(first + piece, bounds[source + 1])]
                payload = part.to(job.device).contiguous()
                job.comm.broadcast(payload, source, "evaluation")
                if job.comm.rank != source:
                    part.copy_(payload)
                pages.give_back()

    def _allocate(self, count: int, width: int, path: Path) -> Tensor:
        """`[count, width]` rows, in a file where two such matrices would exceed the budget."""
        num_bytes = count * width * torch.empty(0, dtype=self._job.dtype).element_size()
        if 2 * num_bytes <= self._half:
            return torch.zeros(count, width, dtype=self._job.dtype)
        subfolder(self._job.directory, *self._scratch_names())
        with writing(path), path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, num_bytes)  # a full disk is an error here, not a signal later
        array = np.memmap(path, dtype=self._job.run.train.dtype, mode="r+", shape=(count, width))
        return torch.from_numpy(array)

    def _scratch_names(self) -> tuple[str, str]:
        return "scratch", f"rank_{self._job.comm.rank}"

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        folder = self._job.directory.joinpath(*self._scratch_names())
        try:
            yield folder
        finally:
            if folder.is_dir():
                for path in folder.iterdir():
                    path.unlink()
                folder.rmdir()


def _mapped(graph: Graph) -> list[Tensor]:
    """What may lie in files of the artifact."""
    features = graph.features
    rows = [features.indptr, features.columns, features.values] if isinstance(features, SparseRows) else [features]
    return [tensor for tensor in (graph.indptr, graph.indices, graph.edge_types, *rows) if tensor is not None]


def split_by_edges(graph: Graph, ids: Tensor, parts: int) -> list[int]:
    """Bounds `[parts + 1]` of contiguous ranges of `ids` with about equally many in-edges (and vertices)."""
    cost = torch.cumsum(graph.in_degree[ids] + 1, 0)
    total = int(cost[-1]) if cost.numel() else 0
    marks = [math.ceil(total * part / parts) for part in range(1, parts)]
    inner = [int(torch.searchsorted(cost, mark, right=False)) for mark in marks]
    return [0, *inner, int(ids.numel())]


def chunks_by_edges(graph: Graph, ids: Tensor, limit: int) -> list[int]:
    """Bounds of chunks of `ids` of at most `limit` in-edges each (a vertex with more is a chunk of its own)."""
    cost = torch.cumsum(graph.in_degree[ids] + 1, 0)
    bounds = [0]
    while bounds[-1] < ids.numel():
        done = int(cost[bounds[-1] - 1]) if bounds[-1] else 0
        bounds.append(max(bounds[-1] + 1, int(torch.searchsorted(cost, done + limit, right=True))))
    return bounds
