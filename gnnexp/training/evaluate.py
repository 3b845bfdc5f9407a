"""Exact evaluation: layer-wise inference over all neighbours, in chunks, divided between ranks. It is not epoch time.

Layer l is computed before layer l + 1, for all vertices that later layers read. No vertex is computed twice (the
"layer-wise inference" of DGL and OGB). The vertices of layer l are the evaluated vertices and their in-neighbours
within the remaining hops. Each rank computes a range of these vertices.

Half of `train.eval_memory` is for the current chunk, and half is for activations. If activations need more, they are
in one mapped file per machine (`gnnexp.tiers.host_rows`). Between chunks, the resident pages of mapped files are
released.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor

from gnnexp.feature_stores.local import LocalOptions
from gnnexp.graph.block import BatchKey, Block, without_edges
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.graph.subset import contains, with_neighbours
from gnnexp.measure.available import available_memory
from gnnexp.measure.memory import MappedPages, give_back_heap, host_peak_bytes, reset_host_peak
from gnnexp.models.model import Model
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.targets import targets_of_rank
from gnnexp.paradigms.trainer import Trainer
from gnnexp.samplers.full import FullOptions
from gnnexp.tasks.base import Scores
from gnnexp.tasks.pairs import PairTask
from gnnexp.tasks.vertices import VertexTask
from gnnexp.tiers.host_rows import machines

# Upper bound of chunk-local values (gathered sources, projections, sums) per edge and column.
_CHUNK_COPIES = 8


@dataclass(frozen=True, eq=False)
class Reached:
    """The vertices for which a layer's outputs are computed.

    Attributes:
        ids: `[n]` ids of the vertices, ascending.
        everyone: whether these are all vertices, so that each id is its position.
    """

    ids: Tensor
    everyone: bool

    @staticmethod
    def of(ids: Tensor, num_nodes: int) -> Reached:
        """The vertices `ids`, which must be distinct and ascending."""
        return Reached(ids, ids.numel() == num_nodes)

    def places(self, num_nodes: int) -> Tensor | None:
        """`[V]` int32 position of each id in `ids`, -1 for other vertices; None if each id is its position."""
        if self.everyone:
            return None
        table = torch.full((num_nodes,), -1, dtype=torch.int32)
        table[self.ids] = torch.arange(self.ids.numel(), dtype=torch.int32)
        return table


@dataclass(frozen=True, eq=False)
class Held:
    """A layer's outputs.

    Attributes:
        rows: `[n, C]` outputs, in memory or mapped.
        places: `[V]` positions of vertices in `rows`, see `Reached.places`.
    """

    rows: Tensor
    places: Tensor | None = None

    def read(self, ids: Tensor) -> Tensor:
        """`[m, C]` outputs of vertices `ids` `[m]`."""
        return self.rows[ids.long() if self.places is None else self.places[ids.long()].long()]


class Evaluation:
    """Evaluates the validation and test splits, every `train.eval_every` epochs and after the last epoch, or never."""

    def __init__(self, job: Job, trainer: Trainer[Any]) -> None:
        self._job, self._trainer = job, trainer
        self._splits = {name: torch.sort(members).values for name, members in job.task.held_out(job.graph).items()}
        self._due = any(members.numel() for members in self._splits.values())
        self._wanted = torch.arange(job.graph.num_nodes)
        if not job.task.options.pairs:
            self._wanted = torch.unique(torch.cat(list(self._splits.values())))
        self._sampler = FullOptions().make()
        self._sampler.setup(Shard(job.graph, needs=job.model.options.needs), num_layers=1)
        # Inference always reads features from the mapped files. It is not measured, so the store may differ. Values are
        # those of training.
        sparse = isinstance(job.graph.features, SparseRows)
        self._store = LocalOptions(dtype=None if sparse else job.experiment.feature_store.dtype).make()
        if job.trained_rows is None:
            self._store.setup(job.shard, job.dtype, job.device, job.comm)
        self._machines = machines(job.comm, job.facts["host"], job.directory)
        self._blocks: dict[tuple[Reached, int], Block] = {}
        bounds = (job.experiment.train.eval_memory, job.plan.evaluation_memory)
        self._half = min(bound for bound in bounds if bound is not None) // 2

    def after(self, epoch: int) -> dict[str, float]:
        """Metrics by split (`acc/val`, …), the same on every rank. Empty if no evaluation is due."""
        every, last = self._job.experiment.train.eval_every, self._job.experiment.train.epochs - 1
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
        parts = self._scores_of_links() if job.task.options.pairs else self._scores_of_vertices()
        metrics: dict[str, float] = {}
        for split, own in parts.items():
            joined = [p for part in job.comm.gather_objects(own) for p in part]
            if self._splits[split].numel():
                metrics |= {f"{name}/{split}": value for name, value in job.task.metrics(joined).items()}
        return metrics

    def _scores_of_vertices(self) -> dict[str, list[Scores]]:
        task = self._job.task
        assert isinstance(task, VertexTask)
        parts: dict[str, list[Scores]] = {split: [] for split in self._splits}
        for ids, logits in self.logits():
            for split, members in self._splits.items():
                kept = contains(members, ids.long())
                parts[split].append(task.score(logits[kept], ids[kept]))
        return parts

    @torch.no_grad()
    def _scores_of_links(self) -> dict[str, list[Scores]]:
        """Outputs of all vertices are computed first, because they may be ends. Then each rank scores some links."""
        job, task = self._job, self._job.task
        assert isinstance(task, PairTask)
        model = self._trainer.evaluation_model().eval()
        held = self._inputs()
        for index in range(model.num_layers):
            held = self._hidden(model, index, held)
        assert held is not None and held.places is None
        own = {split: targets_of_rank(links, job.comm.rank, job.comm.size) for split, links in self._splits.items()}
        return {split: list(task.score_pairs(split, held.rows, links, self._half)) for split, links in own.items()}

    @cached_property
    def reached(self) -> tuple[Reached, ...]:
        """For each layer, the vertices to compute: the evaluated vertices, and all vertices that later layers read."""
        # A decoupled model is evaluated through its twin (docs/decoupled.md), which has twice as many layers.
        model, graph = self._trainer.evaluation_model(), self._job.graph
        levels = [Reached.of(self._wanted, graph.num_nodes)]
        for index in reversed(range(1, model.num_layers)):
            later = levels[0]
            if later.everyone or model.is_row_local(index):
                levels.insert(0, later)
            else:
                levels.insert(0, Reached.of(with_neighbours(graph, later.ids), graph.num_nodes))
        return tuple(levels)

    def _inputs(self) -> Held | None:
        """Trained rows of all vertices, or None: features are read chunk by chunk."""
        job, trained = self._job, self._job.trained_rows
        if trained is None:
            return None
        rows = self._allocate(job.graph.num_nodes, job.model.in_dim)
        trained.gather(rows, job.batch_comm)  # ranks that share the file write equal rows
        return Held(rows)

    def _make_room(self) -> None:
        """Release training's idle buffers if inference needs more memory than is free.

        Training must then allocate fresh pages, but that costs less than thrashing.
        """
        job, ranks = self._job, self._job.experiment.hardware.workers
        row = self._most_columns(job.model) * torch.empty(0, dtype=job.dtype).element_size()
        chunk = min(self._half, _CHUNK_COPIES * row * job.graph.num_edges // ranks)
        matrices = 2 * max(level.ids.numel() for level in self.reached) * row
        wanted = ranks * chunk + matrices * (1 if self._in_file(matrices // 2) else ranks)
        pool = job.model.backend.pool
        if available_memory() < wanted and pool is not None:
            pool.trim()
            give_back_heap()

    def _most_columns(self, model: Model) -> int:
        """Largest width of the dense rows of inference: inputs, projections (all heads or bases), and outputs."""
        sparse = isinstance(self._job.graph.features, SparseRows)
        return max(
            0 if sparse else model.in_dim,
            *(int(getattr(layer, name, 0)) for layer in model.layers for name in ("width", "out_dim")),
        )

    @torch.no_grad()
    def logits(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Logits of this rank's range of the evaluated vertices, chunk by chunk: `(ids [n], logits [n, C])`."""
        model = self._trainer.evaluation_model()
        model.eval()
        held = self._inputs()
        for index in range(model.num_layers - 1):
            held = self._hidden(model, index, held)
        yield from self._layer(model, model.num_layers - 1, held)

    # --- one layer -----------------------------------------------------------------------------------------------
    def _hidden(self, model: Model, index: int, held: Held | None) -> Held:
        """Outputs of a hidden layer for the ranges of all ranks."""
        comm, reached = self._job.comm, self.reached[index]
        ranges = split_by_edges(self._job.graph, reached.ids, comm.size)
        chunks = self._layer(model, index, held)
        first = next(chunks, None)
        widths: Any = comm.gather_objects(0 if first is None else first[1].shape[1])  # a rank may have no vertex
        rows = self._allocate(reached.ids.numel(), max(widths))
        pages, start = MappedPages(rows), ranges[comm.rank]
        for chunk, values in chain([] if first is None else [first], chunks):
            rows[start : start + chunk.numel()] = values.cpu()
            start += chunk.numel()
            pages.give_back()
        self._machines.exchange(rows, ranges, shared=self._in_file(rows.numel() * rows.element_size()))
        return Held(rows, reached.places(self._job.graph.num_nodes))

    def _layer(self, model: Model, index: int, held: Held | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs of a layer for this rank's range of vertices, chunk by chunk: `(ids [n], outputs [n, C])`."""
        job, reached = self._job, self.reached[index]
        bounds = split_by_edges(job.graph, reached.ids, job.comm.size)
        own = reached.ids[bounds[job.comm.rank] : bounds[job.comm.rank + 1]]
        itemsize = torch.empty(0, dtype=job.dtype).element_size()
        limit = max(1, self._half // (_CHUNK_COPIES * itemsize * self._most_columns(model)))
        cuts = chunks_by_edges(job.graph, own, limit)
        pages = MappedPages(*_mapped(job.graph), *([] if held is None else [held.rows]))
        for number, (first, last) in enumerate(pairwise(cuts)):
            chunk = own[first:last]
            if model.is_row_local(index):
                block = without_edges(chunk.to(job.graph.indices.dtype))
            else:
                block = self._block(reached, number, chunk, keep=len(cuts) == 2)
            sources: Rows = self._store.read(block.src_ids) if held is None else held.read(block.src_ids)
            if isinstance(sources, Tensor):
                sources = sources.to(job.device)
            yield chunk, model.run_layer(index, block.to(job.device), sources, None)
            if len(cuts) > 2:
                pages.give_back()

    def _block(self, reached: Reached, number: int, chunk: Tensor, keep: bool) -> Block:
        """The block of all in-edges of a chunk. With `keep`, it is kept for the next evaluation."""
        key = (reached, number)
        if key in self._blocks:
            return self._blocks[key]
        ids = chunk.to(self._job.graph.indices.dtype)
        block = self._sampler.sample(ids, BatchKey(0, 0, 0)).blocks[0]
        if keep:
            self._blocks[key] = block
        return block

    def _in_file(self, num_bytes: int) -> bool:
        """Whether two matrices of `num_bytes` exceed the budget for activations."""
        return 2 * num_bytes > self._half

    def _allocate(self, count: int, width: int) -> Tensor:
        """`[count, width]` rows of the run's dtype, in this rank's memory or the machine's file. All ranks call it."""
        dtype = self._job.dtype
        if self._in_file(count * width * torch.empty(0, dtype=dtype).element_size()):
            return self._machines.mapped(count, width, dtype)
        return torch.zeros(count, width, dtype=dtype)


def _mapped(graph: Graph) -> list[Tensor]:
    """Tensors that may be mapped from files of the artifact."""
    features = graph.features
    rows = [features.indptr, features.columns, features.values] if isinstance(features, SparseRows) else [features]
    return [tensor for tensor in (graph.indptr, graph.indices, graph.edge_types, *rows) if tensor is not None]


def split_by_edges(graph: Graph, ids: Tensor, parts: int) -> list[int]:
    """Bounds `[parts + 1]` of contiguous ranges of `ids`, balanced by the sum of in-edges and vertices."""
    cost = torch.cumsum(graph.in_degree[ids] + 1, 0)
    total = int(cost[-1]) if cost.numel() else 0
    marks = [math.ceil(total * part / parts) for part in range(1, parts)]
    inner = [int(torch.searchsorted(cost, mark, right=False)) for mark in marks]
    return [0, *inner, int(ids.numel())]


def chunks_by_edges(graph: Graph, ids: Tensor, limit: int) -> list[int]:
    """Bounds of chunks of `ids`: at most `limit` in-edges and vertices each, or a single vertex."""
    cost = torch.cumsum(graph.in_degree[ids] + 1, 0)
    bounds = [0]
    while bounds[-1] < ids.numel():
        done = int(cost[bounds[-1] - 1]) if bounds[-1] else 0
        bounds.append(max(bounds[-1] + 1, int(torch.searchsorted(cost, done + limit, right=True))))
    return bounds
