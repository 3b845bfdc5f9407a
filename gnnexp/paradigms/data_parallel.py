"""Data parallelism: every rank samples, loads and trains its share of each global batch; gradients are summed.

Exact: the loss is the global sum over the global count (never a mean of means), so shares may be uneven or empty; with
`sampler.key=global` the draws are those of a single worker. Where topology or features live is the sampler's and the
feature store's business: replicated (DGL), both partitioned (DistDGL, FastSample's "vanilla"), features only
(FastSample's hybrid, section 3.3).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gnnexp.errors import ConfigError, Problem
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.models.model import Model
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.checks import (
    hop_by_hop,
    one_part_per_rank,
    one_thread_where_batches_communicate,
    whole_rows,
)
from gnnexp.paradigms.gradients import FlatGradients, assert_same_parameters
from gnnexp.paradigms.pipeline import prepared
from gnnexp.paradigms.targets import Assign, StratifiedSchedule, TargetSchedule, check_assign, share
from gnnexp.samplers.layerwise import LayerSampler
from gnnexp.samplers.remote import RemoteExpansion


@dataclass(frozen=True, eq=False)
class Loaded:
    """A sampled batch with its features.

    Attributes:
        batch: blocks and targets.
        features: `[S, D]` rows of the input vertices; None where there are no targets.
    """

    batch: Batch
    features: Rows | None


class DataParallel(Paradigm[Loaded]):
    """Replicated model, one gradient all-reduce per global batch.

    Args:
        assign: who trains which targets of a global batch: `even` shares; the `owner` of each target (needs a
            partition; what a partitioned topology wants); `stratified` (the published systems' habit: every owner draws
            from its own targets, so a batch is no uniform sample of all).
    """

    def __init__(self, assign: Assign = "even") -> None:
        if problems := check_assign(assign):
            raise ConfigError(problems)
        self.assign = assign
        self.exact = assign != "stratified"
        self.approximates = "" if self.exact else "batches are drawn part by part, not uniformly from all targets"

    def wants_partition(self, config: Mapping[str, Any]) -> bool:
        """Wherever something is placed by owner."""
        return (self.assign != "even" or config["sampler"].get("topology") == "partitioned"
                or super().wants_partition(config))

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """A partitioned topology samples hop by hop, from targets that are at their owners."""
        problems = [*one_thread_where_batches_communicate(config), *whole_rows(config, "data_parallel")]
        if self.wants_partition(config):
            problems += one_part_per_rank(config)
        if config["sampler"].get("topology") == "partitioned":
            problems += hop_by_hop(config, "a partitioned topology")
        if config["sampler"].get("topology") == "partitioned" and self.assign == "even":
            problems.append(Problem("paradigm.assign", self.assign, "with sampler.topology=partitioned the first hop "
                                    "is sampled where the target's edges are", "set paradigm.assign=owner"))
        return problems

    def setup(self, job: Job) -> None:
        """Take the parts; all ranks start from the same parameters."""
        self.job = job
        self.schedule = TargetSchedule(
            job.task.targets(), job.run.train.batch_size, job.run.seed, job.run.train.shuffle
        )
        assert_same_parameters(job.model, job.comm)
        self.gradients = FlatGradients(job.model.parameters())
        self.work: Counter[str] = Counter()
        self._batches: dict[str, list[list[int]]] = {}
        self._lock = threading.Lock()
        self._kept: tuple[Tensor, Rows] | None = None
        self._crossed: tuple[Block, ...] | None = None
        self._sample: Callable[[Tensor, BatchKey, int], Batch] = job.sampler.sample
        if job.sampler.topology == "partitioned":
            assert isinstance(job.sampler, LayerSampler)
            self._sample = RemoteExpansion(job.sampler, job.shard, job.batch_comm, job.model.num_layers).sample

    @property
    def module(self) -> nn.Module:
        """The model."""
        return self.job.model

    def evaluation_model(self) -> Model:
        """The model: replicated, so already here."""
        return self.job.model

    def batches(self, epoch: int) -> Generator[Loaded, None, None]:
        """Sampled and loaded shares."""
        with self.job.timer.phase("sample"):
            seeds = self._shares(epoch)
        return (yield from prepared(self.job, self.schedule.num_steps, lambda step: self._prepare(seeds, epoch, step)))

    def forward_backward(self, batch: Loaded) -> tuple[Tensor, int]:
        """Gradients of this rank's part of the global mean loss."""
        job, sampled = self.job, batch.batch
        count = int(sampled.targets.numel())
        if batch.features is None:
            self._batches.setdefault("edges", []).append([0] * len(sampled.blocks))
            return torch.zeros((), dtype=job.dtype), 0
        with job.timer.phase("forward"):
            self.count_computed(sampled)
            logits = job.model(sampled, batch.features)
            loss = job.task.loss_sum(logits, sampled.targets)
        with job.timer.phase("backward"):
            (loss / sampled.global_count).backward()  # type: ignore[no-untyped-call]
        return loss.detach(), count

    def synchronize(self) -> None:
        """One all-reduce of all gradients."""
        with self.job.timer.phase("sync"):
            self.gradients.all_reduce(self.job.comm)

    def clear_gradients(self) -> None:
        """Zero the flat buffer."""
        self.gradients.clear()

    def end_epoch(self) -> dict[str, int]:
        """Counters of this rank."""
        counts = Counter(self.work)
        counts.update(self.job.store.take_counts())
        self.work.clear()
        return dict(counts)

    def batch_counts(self) -> dict[str, list[list[int]]]:
        """Edges of every batch by layer."""
        counts, self._batches = self._batches, {}
        return counts

    def memory(self) -> dict[str, int]:
        """Topology and features that this rank holds; gradients are the buffers."""
        flat, store = self.gradients.flat, self.job.store
        return {
            "topology_bytes": self.job.sampler.topology_of(self.job.shard).topology_bytes,
            "vertex_bytes": store.nbytes(),
            "cache_bytes": 0 if store.cache is None else store.cache.nbytes(),
            "buffers_bytes": 2 * flat.numel() * flat.element_size(),
        }

    def count_computed(self, sampled: Batch, cross_edges: Sequence[int] = ()) -> None:
        """Edges and vertices of a batch, and how many edges have a foreign source; by layer for every batch."""
        edges = [block.num_edges for block in sampled.blocks]
        self.count("edges_sampled", sum(edges))
        self.count("edges_computed", sum(edges))
        self.count("vertices_computed", sum(block.num_dst for block in sampled.blocks))
        self._batches.setdefault("edges", []).append(edges)
        if cross_edges:
            self.count("edges_cross", sum(cross_edges))
            self._batches.setdefault("cross_edges", []).append(list(cross_edges))

    def count(self, name: str, amount: int) -> None:
        """Add to a work counter (from any thread)."""
        with self._lock:
            self.work[name] += amount

    # --- one share of a global batch -----------------------------------------------------------------------------
    def _shares(self, epoch: int) -> Callable[[int], tuple[Tensor, int]]:
        """For a step: this rank's targets, and the number of targets of the global batch."""
        comm, shard = self.job.comm, self.job.shard
        if self.assign == "stratified":
            strata = StratifiedSchedule(self.schedule, shard.owner, shard.num_parts)
            orders = strata.orders(epoch)
            return lambda step: strata.batch(orders, step, shard.part)
        order = self.schedule.order(epoch)

        def of_step(step: int) -> tuple[Tensor, int]:
            targets = self.schedule.global_batch(order, step)
            own = shard.owned_of(targets) if self.assign == "owner" else share(targets, comm.rank, comm.size)
            return own, int(targets.numel())

        return of_step

    def _prepare(self, seeds: Callable[[int], tuple[Tensor, int]], epoch: int, step: int) -> Loaded:
        job = self.job
        with job.timer.phase("sample"):
            targets, global_count = seeds(step)
            micro = job.comm.rank if job.sampler.key == "micro" else -1
            batch = self._sample(targets, BatchKey(job.run.seed, epoch, step, micro), global_count)
        with job.timer.phase("load"):
            features = self._read(batch)
            return Loaded(self._to_device(batch, features), features)

    def _read(self, batch: Batch) -> Rows | None:
        """Features of the batch; a batch over the very same vertices (full-batch training) keeps those it has."""
        store = self.job.store
        if not batch.targets.numel() and not store.collective:
            return None
        kept = self._kept
        if kept is not None and kept[0] is batch.input_ids:
            return kept[1]
        features = store.read(batch.input_ids)
        if self.schedule.num_steps == 1 and not store.collective:
            self._kept = (batch.input_ids, features)
        return features if batch.targets.numel() else None

    def _to_device(self, batch: Batch, features: Rows | None) -> Batch:
        """Blocks cross to the device tier (the store counts its rows); counted on CPU as an emulated crossing."""
        if features is not None and self._crossed is not batch.blocks:
            if self.schedule.num_steps == 1:
                self._crossed = batch.blocks
            self.count("tier/h2d_bytes", sum(block.nbytes() for block in batch.blocks))
        return batch.to(self.job.device)
