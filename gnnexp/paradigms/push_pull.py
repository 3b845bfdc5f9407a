"""Push-pull parallelism (P3, Gandhi & Iyer, OSDI 2021; "P3*" of GSplit, section 6): features are sliced by dimension.

    sample   each rank its micro-batch, then the first layer's block is pushed to all ranks
    load     each rank its dimensions of the input rows of every block
    train    first layer: each rank its slice for every block; partial sums are pulled by the block's owner (the push of
             the paper is the block, the pull the sums); the layer's end, and all other layers, data parallel

Exact for every layer on the contract: what is summed over slices is linear in the input. Bias, normalisation and
activation come after the sum, once. Attention needs whole keys before it can weigh, so they are summed first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from gnnexp.comm.owners import spread_from_owners, sum_at_owners
from gnnexp.config.build import build
from gnnexp.errors import ConfigError, Problem
from gnnexp.feature_stores.sliced import SlicedStore, slice_bounds
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.packing import pack_block, unpack_block
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.job import Job
from gnnexp.kernels.counter import Purpose
from gnnexp.models.layer import Destinations, Layer
from gnnexp.models.local import destination_rows, edge_weights, mixed_from_projected
from gnnexp.models.model import Model
from gnnexp.paradigms.checks import block_layers, one_thread_where_batches_communicate
from gnnexp.paradigms.data_parallel import DataParallel
from gnnexp.paradigms.gradients import FlatGradients
from gnnexp.paradigms.pipeline import prepared

Pull = Literal["auto", "projections", "aggregates"]


@dataclass(frozen=True, eq=False)
class Pushed:
    """What a rank trains in one step.

    Attributes:
        batch: its own micro-batch.
        blocks: the first layer's block of every rank's micro-batch.
        features: this rank's dimensions of their input rows.
    """

    batch: Batch
    blocks: tuple[Block, ...]
    features: tuple[Rows, ...]


class PushPull(DataParallel):
    """Model parallel in the first layer, data parallel above.

    Args:
        pull: what is summed at the owner: `projections` of all sources, `aggregates` of the destinations (the layer
            contract's second formula), or `auto`, whichever is fewer elements.
    """

    def __init__(self, pull: Pull = "auto") -> None:
        super().__init__("even")
        if pull not in get_args(Pull):
            raise ConfigError(Problem("paradigm.pull", pull, f"must be one of: {', '.join(get_args(Pull))}",
                                      "paradigm.pull=auto"))
        self.pull = pull

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """Sliced features, whole blocks, a first layer on the contract."""
        problems = one_thread_where_batches_communicate(config, always=True)
        target = config["feature_store"]["_target_"]
        if target != f"{SlicedStore.__module__}.{SlicedStore.__qualname__}":
            problems.append(Problem("feature_store", target, "push_pull reads slices of rows",
                                    "choose feature_store=sliced"))
        if config["sampler"].get("topology") == "partitioned":
            problems.append(Problem("sampler.topology", "partitioned", "push_pull samples micro-batches on every rank",
                                    "set sampler.topology=replicated"))
        if block_layers(config):
            problems.append(Problem("model", config["model"]["_target_"], "its layers need whole rows, which no rank "
                                    "has: push_pull runs layers on the contract", "choose model=sage, gcn, gat or gin"))
        return problems

    def setup(self, job: Job) -> None:
        """Take the parts; of the first layer's input weights keep this rank's columns."""
        super().setup(job)
        assert isinstance(job.store, SlicedStore)
        self.dims = job.store.dims
        first = job.model.layers[0]
        assert isinstance(first, Layer), "checked before"
        self.first: Layer = first
        sliced = self.first.keep_columns(self.dims)
        # Their gradients are complete here: every rank's batch went through this slice. No all-reduce.
        self.sliced = FlatGradients(sliced)
        own = {id(p) for p in sliced}
        self.gradients = FlatGradients(p for p in job.model.parameters() if id(p) not in own)

    def clear_gradients(self) -> None:
        """Both kinds."""
        super().clear_gradients()
        self.sliced.clear()

    def batches(self, epoch: int) -> Generator[Pushed, None, None]:  # type: ignore[override]
        """Sampled shares whose first blocks are everywhere."""
        with self.job.timer.phase("sample"):
            seeds = self._shares(epoch)
        return (yield from prepared(self.job, self.schedule.num_steps, lambda step: self._push(seeds, epoch, step)))

    def forward_backward(self, batch: Pushed) -> tuple[Tensor, int]:  # type: ignore[override]
        """Gradients of this rank's part of the global mean loss; every rank takes part, with or without targets."""
        job, sampled = self.job, batch.batch
        with job.timer.phase("forward"):
            self.count_computed(sampled)
            hidden = self._first_layer(batch)
            logits = job.model(sampled, hidden, first=1)
            loss = job.task.loss_sum(logits, sampled.targets)
        with job.timer.phase("backward"):
            (loss / sampled.global_count).backward()  # type: ignore[no-untyped-call]
        return loss.detach(), int(sampled.targets.numel())

    def evaluation_model(self) -> Model:
        """A model with whole weights, gathered from all ranks."""
        job, graph = self.job, self.job.graph
        whole = build(job.config["model"], Model)
        degrees = self.first.degrees
        assert degrees is not None
        whole.setup(graph.num_features, graph.num_classes, degrees, seed=job.run.seed, dtype=job.dtype,
                    device=job.device)
        bounds = slice_bounds(graph.num_features, job.comm.size)
        widths = [stop - start for start, stop in pairwise(bounds)]
        with torch.no_grad():
            for (name, target), source in zip(whole.named_parameters(), job.model.parameters(), strict=True):
                index, _, parameter = name.removeprefix("layers.").partition(".")
                if index == "0" and parameter in self.first.input_weights:
                    parts = job.comm.all_gather(source.detach().movedim(-1, 0), widths, "evaluation")
                    target.copy_(torch.cat(parts).movedim(0, -1))
                else:
                    target.copy_(source)
        return whole

    # --- sample and load -----------------------------------------------------------------------------------------
    def _push(self, seeds: Callable[[int], tuple[Tensor, int]], epoch: int, step: int) -> Pushed:
        job = self.job
        with job.timer.phase("sample"):
            targets, global_count = seeds(step)
            micro = job.comm.rank if job.sampler.key == "micro" else -1
            batch = job.sampler.sample(targets, BatchKey(job.run.seed, epoch, step, micro), global_count)
            sizes, packet = pack_block(batch.blocks[0])
            everyone = job.batch_comm.swap(sizes.repeat(job.comm.size, 1))
            packets = job.batch_comm.all_gather(packet, [int(n) for n in everyone.sum(1)], "topology")
            blocks = [batch.blocks[0] if rank == job.comm.rank else unpack_block(packets[rank], row, batch.blocks[0])
                      for rank, row in enumerate(everyone)]
        with job.timer.phase("load"):
            features = tuple(job.store.read(block.src_ids) for block in blocks)
            moved = self._to_device(batch, features[job.comm.rank])
            return Pushed(moved, tuple(block.to(job.device) for block in blocks), features)

    # --- the first layer -----------------------------------------------------------------------------------------
    def _first_layer(self, batch: Pushed) -> Tensor:
        """`[D, out]` of this rank's block, as `Model.run_layer` would return it."""
        job, layer, model, dims = self.job, self.first, self.job.model, self.dims
        keys = [batch.batch.key if batch.batch.key.micro < 0 else replace(batch.batch.key, micro=rank)
                for rank in range(job.comm.size)]
        rows = [model.drop_features(block.src_ids, features, dims, key)
                for block, features, key in zip(batch.blocks, batch.features, keys, strict=True)]
        drops = [model.drop(Purpose.ATTENTION_DROPOUT, 0, layer.weight_dropout, key) for key in keys]
        raw = [destination_rows(block, features) for block, features in zip(batch.blocks, batch.features, strict=True)]
        residuals = [[part for part in [layer.residual_part(own, dims)] if part is not None] for own in raw]
        own_block, own_drop = batch.blocks[job.comm.rank], drops[job.comm.rank]
        if self.pulls_projections(batch.blocks, batch.features):
            parts = [[layer.neighbour(h, dims), *self._unprojectable_keys(block, h),
                      *self._self_part(block, h, among_sources=True)]
                     for block, h in zip(batch.blocks, rows, strict=True)]
            (projected, *summed), residual = self._pull(parts, residuals)
            own_keys = (summed.pop(0), summed.pop(0)) if self.ships_keys else None
            own = summed[0] if summed else None
            mixed = mixed_from_projected(layer, own_block, projected, own, own_drop, own_keys)
        else:
            weights, mass = self._weights(batch.blocks, rows, drops)
            parts = []
            for block, h, weight in zip(batch.blocks, rows, weights, strict=True):
                assert isinstance(h, Tensor)
                aggregated = layer.project_aggregated(layer.aggregate(block, h, weight, None), dims)
                parts.append([aggregated, *self._self_part(block, h, among_sources=False)])
            summed, residual = self._pull(parts, residuals)
            own = summed[1] if len(summed) > 1 else None
            mixed = layer.mix(Destinations(own_block.dst_ids, own_block.degree, mass), summed[0], own)
        return model.finish_layer(0, layer.preactivation(mixed), residual)

    def pulls_projections(self, blocks: Sequence[Block], features: Sequence[Rows]) -> bool:
        """Whether sources' projections are summed, not aggregates; the same on all ranks."""
        layer = self.first
        if self.pull != "auto" or isinstance(features[0], SparseRows):
            return self.pull != "aggregates" or isinstance(features[0], SparseRows)
        sources, destinations = sum(block.num_src for block in blocks), sum(block.num_dst for block in blocks)
        keys = layer.num_weights if layer.kind == "projected" else 0
        own = layer.width if layer.self_is_neighbour else 0
        shipped = (sources + destinations) * keys if self.ships_keys else 0
        aggregates = destinations * (layer.width + own) + 2 * (sources + destinations) * keys
        return sources * layer.width + shipped < aggregates

    @property
    def ships_keys(self) -> bool:
        """Whether the owner cannot compute keys from summed projections."""
        return self.first.kind == "projected" and type(self.first).keys_of_projected is Layer.keys_of_projected

    def _unprojectable_keys(self, block: Block, h: Rows) -> list[Tensor]:
        """Partial keys of sources and destinations, where they travel beside the projections."""
        return self._partial_keys(block, h) if self.ships_keys else []

    def _partial_keys(self, block: Block, h: Rows) -> list[Tensor]:
        both = self.first.keys(h, self.dims)
        assert both is not None, "a layer with projected weights has keys"
        own = destination_rows(block, both[1])
        assert isinstance(own, Tensor)
        return [both[0].contiguous(), own]

    def _self_part(self, block: Block, h: Rows, *, among_sources: bool) -> list[Tensor]:
        """The destinations' own partial, unless it is among the sources' projections anyway."""
        layer = self.first
        own = destination_rows(block, h)
        if layer.self_is_neighbour:
            return [] if among_sources else [layer.neighbour(own, self.dims)]
        part = layer.self_(own, self.dims)
        return [] if part is None else [part]

    def _pull(self, parts: list[list[Tensor]], residuals: list[list[Tensor]]) -> tuple[list[Tensor], Tensor | None]:
        """Sums of this rank's parts, and of its residual, in one round."""
        together = [[*of_rank, *residual] for of_rank, residual in zip(parts, residuals, strict=True)]
        summed = sum_at_owners(together, self.job.comm, "activations")
        return (summed[:-1], summed[-1]) if residuals[0] else (summed, None)

    def _weights(
        self, blocks: Sequence[Block], rows: Sequence[Rows], drops: Sequence[Any]
    ) -> tuple[list[Tensor | None], Tensor | None]:
        """Edge weights of every block on every rank, and the mass of our own destinations; keys are summed first."""
        layer, comm = self.first, self.job.comm
        keys: list[Any] = [None] * len(blocks)
        if layer.kind == "projected":
            partial = [self._partial_keys(block, h) for block, h in zip(blocks, rows, strict=True)]
            whole = sum_at_owners(partial, comm, "activations")
            shapes = [[tuple(part.shape) for part in of_rank] for of_rank in partial]
            keys = [tuple(of_rank) for of_rank in spread_from_owners(whole, shapes, comm, "activations")]
        found = [edge_weights(layer, block, key) for block, key in zip(blocks, keys, strict=True)]
        weights = [layer.drop_weights(block, weight, drop)
                   for block, (weight, _), drop in zip(blocks, found, drops, strict=True)]
        return weights, found[comm.rank][1]
