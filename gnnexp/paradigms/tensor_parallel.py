"""Tensor parallelism: every rank has all vertices and edges, and some of the columns (NeutronTP).

    coupled     gather and split around every aggregation: exact                              (section 3)
    decoupled   all dense updates, one split, all propagations, one gather: another model,    (section 4.1)
                exact with respect to its serial twin (models/decoupled.py)

Dense updates take whole rows, so each rank finishes an even share of the vertices; aggregations take columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from gnnexp.comm.background import Background
from gnnexp.comm.tensor_split import Shares, even_bounds, even_shares, gather, share_rows, split
from gnnexp.config.build import build
from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.block import Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.models.decoupled import Decoupled, contract_layer, dense_update, propagate, propagation_weight
from gnnexp.models.layer import BlockLayer
from gnnexp.models.model import Model
from gnnexp.paradigms.checks import attends, block_degrees, block_layers, num_ranks
from gnnexp.paradigms.chunking import Chunking, itemsize
from gnnexp.paradigms.coupled_layer import CoupledLayers
from gnnexp.paradigms.full_graph import FullGraph, Whole
from gnnexp.paradigms.in_chunks import in_chunks, static_weights
from gnnexp.paradigms.propagation import Pipeline, propagated, take_turns
from gnnexp.samplers.chunks import Chunk, ChunkCost
from gnnexp.samplers.expansion import Expansion

Mode = Literal["coupled", "decoupled"]


class TensorParallel(FullGraph):
    """Full-graph training by columns.

    Args:
        mode: see above.
        chunks: ranges of destinations that are worked on one after another; null for as many as `device_memory` wants.
        device_memory: bytes that a chunk may take of the device tier, or null.
        pipeline: of `decoupled`: exchange one chunk while another is worked on.
        attention: of `decoupled`: `trained`, or `frozen` at its initial value, as the artifact's is by mistake.
    """

    def __init__(
        self, mode: Mode = "coupled", chunks: int | None = 1, device_memory: int | None = None, pipeline: bool = False,
        attention: Literal["trained", "frozen"] = "trained",
    ) -> None:
        self.chunking = Chunking(chunks, device_memory)
        problems = self.chunking.problems()
        if mode not in ("coupled", "decoupled"):
            problems.append(Problem("mode", mode, "must be coupled or decoupled", "set paradigm.mode=decoupled"))
        if attention not in ("trained", "frozen"):
            problems.append(Problem("attention", attention, "must be trained or frozen",
                                    "set paradigm.attention=trained"))
        if mode == "coupled" and pipeline:
            problems.append(Problem("pipeline", pipeline, "coupled layers have nothing to overlap with: each gather "
                                    "is followed by dense updates that need all of it", "set paradigm.mode=decoupled"))
        if mode == "coupled" and attention == "frozen":
            problems.append(Problem("attention", attention, "only the decoupled artifact's is frozen",
                                    "set paradigm.attention=trained"))
        if problems:
            raise ConfigError(problems)
        self.mode, self.pipeline, self.attention = mode, pipeline, attention
        self.exact = mode == "coupled"
        self.approximates = "" if self.exact else "the model is decoupled (exact with respect to its serial twin)"
        if attention == "frozen":
            self.approximates += "; attention is not trained"

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Layers on the contract only, and a column for every rank."""
        problems = [*super().check(config), *block_degrees(config, "tensor_parallel")]
        if block_layers(config):
            problems.append(Problem("model", config["model"]["_target_"], "its layers need whole rows of all "
                                    "neighbours in one place",
                                    "choose model=gcn, sage, gin or gat, or paradigm=vertex_parallel"))
        hidden, ranks = config["model"].get("hidden"), num_ranks(config)
        hides = self.mode == "coupled" and config["model"].get("layers", 1) > 1 and isinstance(hidden, int)
        if hides and hidden < ranks:
            problems.append(_too_few("model.hidden", hidden, config))
        if self.attention == "frozen" and not attends(config):
            problems.append(Problem("paradigm.attention", "frozen", f"{config['model']['_target_']} has no attention",
                                    "choose model=gat, or set paradigm.attention=trained"))
        return problems

    def check_data(self, config: Mapping[str, Any], graph: Graph) -> list[Problem]:
        """A column for every rank, also of features and classes; a budget for the largest vertex."""
        ranks = num_ranks(config)
        split_widths = {"dataset features": graph.num_features} if self.mode == "coupled" else {}
        if self.mode == "decoupled":
            split_widths["dataset classes"] = graph.num_classes
        problems = [_too_few(what, width, config) for what, width in split_widths.items() if 0 < width < ranks]
        model = build(config["model"], Model)
        dims = [graph.num_features, *[model.hidden] * (model.num_layers - 1), graph.num_classes]
        layers = [model.make_layer(index, *pair) for index, pair in enumerate(pairwise(dims))]
        if any(isinstance(layer, BlockLayer) for layer in layers):
            return problems  # refused by `check`
        cost = self._cost(layers, ranks, getattr(torch, config["train"]["dtype"]))
        return [*problems, *self.chunking.check_data(graph, cost, model.needs.self_loops)]

    def _cost(self, layers: Sequence[Any], ranks: int, dtype: torch.dtype) -> ChunkCost:
        """What a chunk takes, by the widest columns that a rank has of any layer."""
        widths = [layers[-1].out_dim] if self.mode == "decoupled" else [
            max(layer.in_dim, layer.width) for layer in layers
        ]
        width = -(-max(widths) // ranks)
        return ChunkCost.of(width, width, max(layer.num_weights for layer in layers), itemsize(dtype))

    # --- setup -----------------------------------------------------------------------------------------------------
    def setup(self, job: Job) -> None:
        """Hold the whole graph, cut it into chunks, share out the vertices."""
        super().setup(job)
        graph, comm = job.graph, job.comm
        (whole,) = Expansion(graph, job.shard.needs, (-1,)).blocks(torch.arange(graph.num_nodes), (0,))
        model = job.model
        classes = contract_layer(model, model.num_layers - 1).out_dim
        self.chunks = self.chunking.chunks(whole, self._cost(list(model.layers), comm.size, job.dtype))
        if len(self.chunks) == 1:  # which never leaves the device; several cross into it one after another
            self.chunks = tuple(replace(chunk, block=chunk.block.to(job.device)) for chunk in self.chunks)
        self._blocks = tuple(chunk.block for chunk in self.chunks)
        self.counts_per_rank = even_shares(graph.num_nodes, comm.size)
        first = sum(self.counts_per_rank[: comm.rank])
        self._own = torch.arange(first, first + self.counts_per_rank[comm.rank])
        if self.mode == "decoupled":
            self.shares = Shares(self.counts_per_rank, even_bounds(classes, comm.size), comm.rank)
            self._decouple(job)
        else:
            self.layers = CoupledLayers(job, self.chunks, self._own.to(job.device), self.counts_per_rank)

    def _decouple(self, job: Job) -> None:
        self.twin = Decoupled(job.model)
        self.static = static_weights(contract_layer(job.model, job.model.num_layers - 1), self.chunks)
        self.background = None
        if self.pipeline and len(self.chunks) > 1 and job.comm.size > 1:
            owner, turns = take_turns(self.chunks, job.graph.num_nodes, self.shares.bounds, job.comm)
            self._own = torch.nonzero(owner == job.comm.rank).flatten()
            self._places = torch.argsort(torch.argsort(owner, stable=True))
            self.counts_per_rank = torch.bincount(owner, minlength=job.comm.size).tolist()
            self.background = Background(job.timer, job.device)
            self._pipe = Pipeline(self.chunks, turns, self._step, job.model.num_layers, job.comm.beside(job.device),
                                  self.background, job.tier)
        self._ids = self._own.to(job.device)

    @property
    def own(self) -> Tensor:
        """An even share of the vertices."""
        return self._own

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The chunks."""
        return self._blocks

    def evaluation_model(self) -> Model:
        """What was trained."""
        return self.twin if self.mode == "decoupled" else self.job.model

    def load(self) -> Rows:
        """Whole rows of the own vertices; coupled layers take columns of all vertices beside them."""
        if self.mode == "coupled":
            self.layers.load(self.job.store)
        return self.job.store.read(self._own.to(self.job.graph.indices.dtype))

    # --- the iteration ---------------------------------------------------------------------------------------------
    def outputs(self, whole: Whole) -> Tensor:
        """One forward pass."""
        if self.mode == "coupled":
            return self.layers.run(whole)
        model, key, h = self.job.model, whole.batch.key, whole.features
        keys = None
        for index in range(model.num_layers):
            h, keys = dense_update(model, index, self._ids, h, key)
        assert isinstance(h, Tensor)
        weights = self.static if keys is None else self._weights(keys, whole)
        if self.background is not None:
            return propagated(h, weights, self._pipe)
        x = split(h, self.shares, self.job.comm, "activations")
        for _ in range(model.num_layers):
            x = in_chunks(self._step, x, weights, self.chunks, self.job.tier, width=self.shares.width)
        return gather(x, self.shares, self.job.comm, "activations")

    def _step(self, chunk: Chunk, x: Tensor, weight: Tensor | None) -> Tensor:
        """One propagation of one chunk."""
        model = self.job.model
        return propagate(contract_layer(model, model.num_layers - 1), chunk.block, x, weight)

    def _weights(self, keys: tuple[Tensor, Tensor], whole: Whole) -> Tensor:
        """`[E, 1]` attention of all edges, the same on all ranks, from keys that are shared (2K columns a vertex)."""
        job = self.job
        both = torch.cat(keys, 1)
        if self.attention == "frozen":
            both = both.detach()
        everyone = share_rows(both, self.counts_per_rank, job.comm, "activations")
        if self.background is not None:
            everyone = everyone[self._places]
        heads = keys[0].shape[1]

        def weigh(chunk: Chunk, rows: Tensor, _: Tensor | None) -> Tensor:
            source, destination = rows[:, :heads].contiguous(), rows[: chunk.block.num_dst, heads:].contiguous()
            weight = propagation_weight(job.model, chunk.block, (source, destination), whole.batch.key)
            assert weight is not None, "a model with keys weighs by them"
            return weight

        return in_chunks(weigh, everyone, None, self.chunks, job.tier, width=1, per_edge=True)

    # --- counts ----------------------------------------------------------------------------------------------------
    def count_computed(self, ready: Whole) -> None:
        """A rank sums all edges for its columns: counted as its share of the edges, so that all ranks' add up."""
        model, comm, num_edges = self.job.model, self.job.comm, sum(block.num_edges for block in self._blocks)
        edges = []
        for index in range(model.num_layers):
            bounds = self.shares.bounds if self.mode == "decoupled" else self.layers.bounds(index)
            edges.append(share_of(num_edges, bounds, comm.rank))
            self.count("vertices_computed", self._own.numel())
        self.count("edges_computed", sum(edges))
        self.count("edges_redundant", 0)
        self._batches.setdefault("edges", []).append(edges)

    def end_epoch(self) -> dict[str, int]:
        """What crossed into the device tier and back, beside the rest."""
        return {**super().end_epoch(), **self.job.tier.take_counts()}


def share_of(count: int, bounds: Sequence[int], rank: int) -> int:
    """The part of `count` that goes with a rank's columns; all ranks' parts add up to it."""
    return count * bounds[rank + 1] // bounds[-1] - count * bounds[rank] // bounds[-1]


def _too_few(what: str, width: int, config: Mapping[str, Any]) -> Problem:
    fitting = max(1, width // config["hardware"]["nodes"])
    return Problem("hardware.workers", config["hardware"]["workers"], f"more ranks ({num_ranks(config)}) than columns "
                   f"to share out: {what} has {width}",
                   f"set hardware.workers={fitting} or fewer, or choose paradigm=vertex_parallel")
