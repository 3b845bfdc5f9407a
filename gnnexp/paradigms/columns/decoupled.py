"""Decoupled tensor parallelism (NeutronTP, sections 4.1 and 4.2): a changed model, whose propagations come last.

1. Dense updates of the own vertices, on the device or on the host.
2. Weights of all edges: constant, or from keys that ranks share.
3. Propagation: one split to columns, L sums over all edges, one gather. Exchanges of a chunk may run while another
   chunk is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.background import Background
from gnnexp.comm.tensor_split import ColumnLayout, even_bounds, filled, gather, split, unfilled
from gnnexp.graph.block import BatchKey
from gnnexp.graph.sparse import Rows
from gnnexp.models.decoupled import (
    DecoupledModel,
    Keys,
    contract_layer,
    has_parameters,
    propagate,
    propagate_back,
    propagation_weight,
)
from gnnexp.models.layer import Layer
from gnnexp.models.model import Model
from gnnexp.paradigms.columns.dense_blocks import RowBlock, dense_columns, row_blocks, rows_between
from gnnexp.paradigms.columns.edge_attention import AttentionWork, EdgeAttention
from gnnexp.paradigms.columns.host_updates import HostUpdates, dense_updates
from gnnexp.paradigms.columns.idle_ranks import own_columns
from gnnexp.paradigms.columns.orders import ColumnShares
from gnnexp.paradigms.columns.propagation import Pipeline, plan_exchanges, propagated
from gnnexp.paradigms.columns.trainer import ColumnTrainer
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.chunking import Chunking
from gnnexp.paradigms.loops.full_graph import Whole
from gnnexp.paradigms.loops.in_chunks import in_chunks, static_weights
from gnnexp.placement.chunks import Chunk, ChunkCost


class DecoupledTrainer(ColumnTrainer):
    """Trains the decoupled twin of the model.

    Args:
        job, chunking, cost: see `ColumnTrainer`.
        pipeline: whether exchanges of a chunk run while another chunk is computed.
        dense_blocks: number of blocks of own rows whose dense updates run one after another, see `dense_blocks.py`.
        frozen: whether attention keeps its initial value.
        attention_work: who weighs edges, see `EdgeAttention`.
        on_host: whether dense updates run on the host.
        shares: how ranks share columns.
    """

    def __init__(
        self,
        job: Job,
        chunking: Chunking,
        cost: ChunkCost,
        *,
        pipeline: bool,
        dense_blocks: int,
        frozen: bool,
        attention_work: AttentionWork,
        on_host: bool,
        shares: ColumnShares,
    ) -> None:
        super().__init__(job, chunking, cost)
        self.twin = DecoupledModel(job.model)
        self._last = contract_layer(job.model, job.model.num_layers - 1)
        bounds = even_bounds(shares.filled(self._last.out_dim), job.comm.size)
        self.layout = ColumnLayout(self.counts_per_rank, bounds, job.comm.rank)
        self._host = HostUpdates(job) if on_host else None
        # Not methods: objects that trainers share (`job.once`) must not keep a trainer in memory.
        self._step = partial(_step, self._last)
        self._static = static_weights(self._last, self.chunks, job.device)
        constant = not has_parameters(self._last, self.chunks[0].block.to(job.device))
        self._back = partial(_step_back, self._last) if constant else None
        self._pipe: Pipeline | None = None
        self._blocks: tuple[RowBlock, ...] = ()
        places: Tensor | None = None
        if pipeline and self.is_cut and job.comm.size > 1:
            owner, self._pipe = job.once.of("pipeline", self._pipelined)
            if dense_blocks > 1:
                self._blocks = row_blocks(owner, dense_blocks, self.layout.bounds, job.comm.rank, job.device)
            self.own = torch.nonzero(owner == job.comm.rank).flatten()
            self.counts_per_rank = torch.bincount(owner, minlength=job.comm.size).tolist()
            places = torch.argsort(torch.argsort(owner, stable=True))
        self._attention = (
            EdgeAttention(job, self.whole, self.chunks, self.counts_per_rank, places, attention_work, frozen)
            if self._last.traits.kind == "projected"
            else None
        )
        self._own_here = self.own.to(job.device)
        self.held = self.rank_graph(self.own, [self.layout.bounds] * job.model.num_layers)
        if chunking.resident is not None:
            weighed = () if self._attention is None else self._attention.chunks
            self.keep_chunks((*(self.chunks if self.layout.width else ()), *weighed), [self._static])

    def _pipelined(self) -> tuple[Tensor, Pipeline]:
        """`(rank that finishes each vertex [V], pipeline)`. Vertices are assigned to ranks chunk by chunk."""
        job = self.job
        owner, exchanges = plan_exchanges(self.chunks, job.graph.num_nodes, self.layout.bounds, job.comm, job.device)
        pipe = Pipeline(
            self.chunks,
            exchanges,
            self._step,
            job.model.num_layers,
            job.comm.clone_for_thread(job.device),
            Background(job.timer, job.device),
            job.tier,
            self._back,
        )
        return owner, pipe

    def facts(self) -> Mapping[str, Any]:
        """The number of chunks, how the work of attention is done, and which rows each chunk is the first to read."""
        attention = {} if self._attention is None else {"attention_work": self._attention.way}
        read = {} if self._pipe is None else {"rows_first_read": [it.new.numel() for it in self._pipe.exchanges]}
        return {**super().facts(), **attention, **read}

    def evaluation_model(self) -> Model:
        """The twin, which was trained."""
        return self.twin

    def load(self) -> Rows:
        """Load whole rows of the own vertices."""
        return self.job.store.read(self.own.to(self.job.graph.indices.dtype))

    # --- the iteration ---------------------------------------------------------------------------------------------
    def forward(self, ready: Whole) -> Tensor:
        """`[n, classes]` of the own vertices."""
        if self._pipe is not None and self._blocks:
            x, keys = dense_columns(partial(self._dense, ready), self._blocks, self._pipe)
            out = propagated(x, self._weights(keys, ready.batch.key), self._pipe, is_split=True)
            return unfilled(out, self._last.out_dim)
        h, keys = self._dense(ready)
        weights = self._weights(keys, ready.batch.key)
        if self._pipe is not None:
            return unfilled(propagated(h, weights, self._pipe), self._last.out_dim)
        x = split(h, self.layout, self.job.comm, "activations")
        x = own_columns(partial(self._propagated, x, weights), self.layout, x, weights)
        return unfilled(gather(x, self.layout, self.job.comm, "activations"), self._last.out_dim)

    def _propagated(self, x: Tensor, weights: Tensor | None) -> Tensor:
        """Columns `x` `[V, d]` after all propagations."""
        for step in range(self.job.model.num_layers):
            x = in_chunks(
                self._step,
                x,
                weights,
                self.chunks,
                self.job.tier,
                width=self.layout.width,
                transposed=self._back,
                layer=step,
            )
        return x

    def _dense(self, whole: Whole, part: slice | None = None) -> tuple[Tensor, Keys | None]:
        """Run dense updates of own vertices, or of a range of them, and fill up their columns.

        On the host, only results and gradients cross.
        """
        features, ids = whole.features, self.own if self._host is not None else self._own_here
        if part is not None:
            ids, features = ids[part], rows_between(features, part)
        if self._host is None:
            h, keys = dense_updates(self.job.model, ids, features, whole.batch.key)
            return filled(h, self.layout), keys
        h, keys = self._host.run(ids, features, whole.batch.key)
        if not self.is_cut:  # chunks copy what they need, and count it
            crossing = sum(rows.numel() * rows.element_size() for rows in (h, *(keys or ())))
            self.job.tier.cross_unseen("h2d", crossing)
            self.job.tier.cross_unseen("d2h", crossing)
        device = self.job.device
        here = filled(h.to(device), self.layout)
        return here, None if keys is None else (keys[0].to(device), keys[1].to(device))

    def _weights(self, keys: Keys | None, key: BatchKey) -> Tensor | None:
        """`[E, 1]` edge weights of all propagations; None for ones."""
        if self._attention is not None:
            assert keys is not None, "a layer with projected weights has keys"
            return self._attention.weights(keys, key)
        if self._last.traits.kind == "static":
            return self._static

        def weigh(chunk: Chunk, _: Tensor, __: Tensor | None) -> Tensor:
            weight = propagation_weight(self.job.model, chunk.block, None, key)
            assert weight is not None, "learned weights are never ones"
            return weight

        no_rows = torch.empty(self.job.graph.num_nodes, 0, dtype=self.job.dtype, device=self.job.device)
        return in_chunks(weigh, no_rows, None, self.chunks, self.job.tier, width=1, per_edge=True)


def _step(layer: Layer, chunk: Chunk, x: Tensor, weight: Tensor | None) -> Tensor:
    """One propagation of one chunk."""
    return propagate(layer, chunk.block, x, weight)


def _step_back(layer: Layer, chunk: Chunk, gradient: Tensor, weight: Tensor | None) -> Tensor:
    """The transpose of `_step`."""
    return propagate_back(layer, chunk.block, gradient, weight)
