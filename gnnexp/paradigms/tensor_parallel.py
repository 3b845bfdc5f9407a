"""Tensor parallelism: every rank has all vertices and edges, and some of the columns (NeutronTP).

    coupled     gather and split around every aggregation: exact                              (section 3)
    decoupled   all dense updates, one split, all propagations, one gather: another model,    (section 4.1)
                exact with respect to its serial twin (models/decoupled.py)

Dense updates take whole rows, so each rank finishes an even share of the vertices; aggregations take columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gnnexp.comm.background import Background
from gnnexp.comm.tensor_split import Shares, even_bounds, even_shares, gather, split
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.needs import Resident
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.models.decoupled import (
    Decoupled,
    Keys,
    contract_layer,
    has_parameters,
    propagate,
    propagate_back,
    propagation_weight,
)
from gnnexp.models.model import Model
from gnnexp.paradigms.checks import block_degrees, num_ranks
from gnnexp.paradigms.chunks.chunking import Chunking
from gnnexp.paradigms.chunks.in_chunks import in_chunks, static_weights
from gnnexp.paradigms.columns.coupled_layer import CoupledLayers
from gnnexp.paradigms.columns.edge_attention import EdgeAttention, Work
from gnnexp.paradigms.columns.host_updates import HostUpdates, dense_updates
from gnnexp.paradigms.columns.options import Attention, Mode, NNDevice, TensorOptions
from gnnexp.paradigms.columns.propagation import Pipeline, propagated, take_turns
from gnnexp.paradigms.loops.full_graph import Whole, WholeInMemory
from gnnexp.placement.chunks import Chunk
from gnnexp.samplers.expansion import Expansion


class TensorParallel(WholeInMemory):
    """Full-graph training by columns.

    Args:
        mode: see above.
        chunks: ranges of destinations that are worked on one after another; null for as many as `device_memory` wants.
        device_memory: bytes that a chunk may take of the device tier, or null.
        pipeline: of `decoupled`: exchange one chunk while another is worked on.
        attention: of `decoupled`: `trained`, or `frozen` at its initial value, as the artifact's is by mistake.
        attention_work: of `decoupled`: `shared`, each rank weighs some edges and shares their weights (section 4.1.1),
            or `replicated`, every rank weighs all edges from keys that are shared anyway.
        nn_device: of `decoupled`: where dense updates run: on the `device`, or on the `host`, which features then
            never leave (section 4.2.1).
    """

    def __init__(
        self, mode: Mode = "coupled", chunks: int | None = 1, device_memory: int | None = None, pipeline: bool = False,
        attention: Attention = "trained", attention_work: Work = "shared", nn_device: NNDevice = "device",
    ) -> None:
        self.options = TensorOptions(
            mode, Chunking(chunks, device_memory), pipeline, attention, attention_work, nn_device
        )
        if problems := self.options.problems():
            raise ConfigError(problems)
        self.approximates = self.options.approximates
        self.exact = not self.approximates

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Options that fit the other groups."""
        return [*super().check(config), *block_degrees(config, "tensor_parallel"), *self.options.check(config)]

    def check_data(self, config: Mapping[str, Any], graph: Graph) -> list[Problem]:
        """A column for every rank, a budget for the largest vertex."""
        return self.options.check_data(config, graph)

    def resident_share(self, config: Mapping[str, Any], graph: Graph) -> Resident:
        """All edges; whole rows of a share of the vertices, and as many values again as columns of all of them."""
        own = -(-graph.num_nodes // num_ranks(config))
        return Resident(graph.num_edges, own if self.options.decoupled else 2 * own, 2 * own)

    # --- setup -----------------------------------------------------------------------------------------------------
    def setup(self, job: Job) -> None:
        """Hold the whole graph, cut it into chunks, share out the vertices."""
        super().setup(job)
        graph, comm = job.graph, job.comm
        (whole,) = Expansion(graph, job.shard.needs, (-1,)).blocks(torch.arange(graph.num_nodes), (0,))
        model = job.model
        classes = contract_layer(model, model.num_layers - 1).out_dim
        self.chunks = self.options.chunking.chunks(
            whole, self.options.cost(list(model.layers), comm.size, job.dtype)
        )
        if not self.in_chunks:
            self.chunks = (replace(self.chunks[0], block=whole.to(job.device)),)
        self._blocks = tuple(chunk.block for chunk in self.chunks)
        self.counts_per_rank = even_shares(graph.num_nodes, comm.size)
        first = sum(self.counts_per_rank[: comm.rank])
        self._own = torch.arange(first, first + self.counts_per_rank[comm.rank])
        if self.options.decoupled:
            self.shares = Shares(self.counts_per_rank, even_bounds(classes, comm.size), comm.rank)
            self._decouple(job, whole)
        else:
            self.layers = CoupledLayers(job, self.chunks, self._own.to(job.device), self.counts_per_rank)

    def _decouple(self, job: Job, whole: Block) -> None:
        self.twin = Decoupled(job.model)
        self._host = HostUpdates(job) if self.updates_on_host else None
        self.static = static_weights(contract_layer(job.model, job.model.num_layers - 1), self.chunks, job.device)
        self.background, places = None, None
        layer = contract_layer(job.model, job.model.num_layers - 1)
        self._back = None if has_parameters(layer, self.chunks[0].block.to(job.device)) else self._step_back
        if self.options.pipeline and len(self.chunks) > 1 and job.comm.size > 1:
            owner, turns = take_turns(self.chunks, job.graph.num_nodes, self.shares.bounds, job.comm, job.device)
            self._own = torch.nonzero(owner == job.comm.rank).flatten()
            places = torch.argsort(torch.argsort(owner, stable=True))
            self.counts_per_rank = torch.bincount(owner, minlength=job.comm.size).tolist()
            self.background = Background(job.timer, job.device)
            self._pipe = Pipeline(self.chunks, turns, self._step, job.model.num_layers, job.comm.beside(job.device),
                                  self.background, job.tier, self._back)
        self._attention = EdgeAttention(
            job, whole, self.chunks, self.counts_per_rank, places, self.options.attention_work,
            self.options.attention == "frozen"
        )
        self._own_here = self._own.to(job.device)

    @property
    def own(self) -> Tensor:
        """An even share of the vertices."""
        return self._own

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The chunks."""
        return self._blocks

    @property
    def updates_on_host(self) -> bool:
        """By option."""
        return self.options.nn_device == "host"

    @property
    def in_chunks(self) -> bool:
        """Whether there is more than one."""
        return len(self.chunks) > 1

    @property
    def resident(self) -> tuple[Block, ...]:
        """A single chunk."""
        return () if self.in_chunks else self._blocks

    def facts(self) -> Mapping[str, Any]:
        """Into how many chunks the graph was cut."""
        return {"chunks": len(self.chunks)}

    def evaluation_model(self) -> Model:
        """What was trained."""
        return self.twin if self.options.decoupled else self.job.model

    def load(self) -> Rows:
        """Whole rows of the own vertices; coupled layers take columns of all vertices beside them."""
        if not self.options.decoupled:
            self.layers.load(self.job.store)
        return self.job.store.read(self._own.to(self.job.graph.indices.dtype))

    # --- the iteration ---------------------------------------------------------------------------------------------
    def outputs(self, whole: Whole) -> Tensor:
        """One forward pass."""
        if not self.options.decoupled:
            return self.layers.run(whole)
        h, keys = self._dense(whole)
        weights = self._weights(keys, whole.batch.key)
        if self.background is not None:
            return propagated(h, weights, self._pipe)
        x = split(h, self.shares, self.job.comm, "activations")
        for _ in range(self.job.model.num_layers):
            x = in_chunks(self._step, x, weights, self.chunks, self.job.tier, width=self.shares.width,
                          transposed=self._back)
        return gather(x, self.shares, self.job.comm, "activations")

    def _weights(self, keys: Keys | None, key: BatchKey) -> Tensor | None:
        """`[E, 1]` of all propagations; None for ones."""
        if keys is not None:
            return self._attention.weights(keys, key)
        model = self.job.model
        if contract_layer(model, model.num_layers - 1).kind == "static":
            return self.static

        def weigh(chunk: Chunk, _: Tensor, __: Tensor | None) -> Tensor:
            weight = propagation_weight(model, chunk.block, None, key)
            assert weight is not None, "learned weights are never ones"
            return weight

        no_rows = torch.empty(self.job.graph.num_nodes, 0, dtype=self.job.dtype, device=self.job.device)
        return in_chunks(weigh, no_rows, None, self.chunks, self.job.tier, width=1, per_edge=True)

    def _dense(self, whole: Whole) -> tuple[Tensor, Keys | None]:
        """Dense updates of the own vertices; from the host only their results cross, and their gradients back."""
        if self._host is None:
            return dense_updates(self.job.model, self._own_here, whole.features, whole.batch.key)
        h, keys = self._host.run(self._own, whole.features, whole.batch.key)
        if not self.in_chunks:  # chunks take what they need of it, and count that
            crossing = sum(rows.numel() * rows.element_size() for rows in (h, *(keys or ())))
            self.job.tier.counts.update({"tier/h2d_bytes": crossing, "tier/d2h_bytes": crossing})
        device = self.job.device
        return h.to(device), None if keys is None else (keys[0].to(device), keys[1].to(device))

    def _step(self, chunk: Chunk, x: Tensor, weight: Tensor | None) -> Tensor:
        """One propagation of one chunk."""
        model = self.job.model
        return propagate(contract_layer(model, model.num_layers - 1), chunk.block, x, weight)

    def _step_back(self, chunk: Chunk, gradient: Tensor, weight: Tensor | None) -> Tensor:
        """The transpose of `_step`."""
        model = self.job.model
        return propagate_back(contract_layer(model, model.num_layers - 1), chunk.block, gradient, weight)

    # --- counts ----------------------------------------------------------------------------------------------------
    def count_computed(self, ready: Whole) -> None:
        """A rank sums all edges for its columns: counted as its share of the edges, so that all ranks' add up."""
        model, comm, num_edges = self.job.model, self.job.comm, sum(block.num_edges for block in self._blocks)
        edges = []
        for index in range(model.num_layers):
            bounds = self.shares.bounds if self.options.decoupled else self.layers.bounds(index)
            edges.append(share_of(num_edges, bounds, comm.rank))
            self.count("vertices_computed", self._own.numel())
        self.count("edges_computed", sum(edges))
        self.count("edges_redundant", 0)
        self._batches.setdefault("edges", []).append(edges)
        self._batches.setdefault("vertices", []).append([self._own.numel()] * model.num_layers)


def share_of(count: int, bounds: Sequence[int], rank: int) -> int:
    """The part of `count` that goes with a rank's columns; all ranks' parts add up to it."""
    return count * bounds[rank + 1] // bounds[-1] - count * bounds[rank] // bounds[-1]
