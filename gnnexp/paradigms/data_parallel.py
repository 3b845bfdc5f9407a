"""Data parallelism: every rank samples, loads and trains its share of each global batch; gradients are summed.

Where topology or features live is the sampler's and the feature store's business: replicated (DGL), both partitioned
(DistDGL, FastSample's "vanilla"), features only (FastSample's hybrid, section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gnnexp.errors import Problem
from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.paradigms.checks import (
    hidden_links,
    hop_by_hop,
    one_part_per_rank,
    one_thread_where_batches_communicate,
    pairs,
    whole_rows,
)
from gnnexp.paradigms.loops.global_batch import Ready
from gnnexp.paradigms.loops.mini_batch import MiniBatch
from gnnexp.paradigms.loops.share import Share
from gnnexp.paradigms.loops.targets import Assign
from gnnexp.samplers.layerwise import LayerSampler
from gnnexp.samplers.remote import RemoteExpansion


@dataclass(frozen=True, eq=False)
class Loaded(Ready):
    """A sampled batch with its features.

    Attributes:
        features: `[S, D]` rows of the input vertices; None where there are no targets.
    """

    features: Rows | None


class DataParallel(MiniBatch[Batch, Loaded]):
    """Replicated model, one gradient all-reduce per global batch.

    Args:
        assign: who trains which targets of a global batch: `even` shares; the `owner` of each target (needs a
            partition; what a partitioned topology wants); `stratified` (labelled inexact, see `MiniBatch`).
    """

    def __init__(self, assign: Assign = "even") -> None:
        super().__init__(assign)

    def wants_partition(self, config: Mapping[str, Any]) -> bool:
        """Wherever something is placed by owner."""
        return (self.assign != "even" or config["sampler"].get("topology") == "partitioned"
                or super().wants_partition(config))

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """A partitioned topology samples hop by hop, from targets that are at their owners."""
        problems = [*hidden_links(config), *one_thread_where_batches_communicate(config),
                    *whole_rows(config, "data_parallel")]
        if self.wants_partition(config):
            problems += one_part_per_rank(config)
        if config["sampler"].get("topology") == "partitioned":
            problems += hop_by_hop(config, "a partitioned topology")
        if pairs(config) and self.assign == "stratified":
            problems.append(Problem("paradigm.assign", self.assign, "ends of a link have several owners",
                                    "set paradigm.assign=owner (of the head), or even"))
        elif (config["sampler"].get("topology") == "partitioned" and self.assign == "even"
                and not pairs(config)):
            problems.append(Problem("paradigm.assign", self.assign, "with sampler.topology=partitioned the first hop "
                                    "is sampled where the target's edges are", "set paradigm.assign=owner"))
        return problems

    def setup(self, job: Job) -> None:
        """Take the parts; a partitioned topology is sampled with requests to the owners."""
        super().setup(job)
        self._kept: tuple[Tensor, Rows] | None = None
        self._sample: Callable[[Tensor, BatchKey, int], Batch] = job.sampler.sample
        if job.sampler.topology == "partitioned":
            assert isinstance(job.sampler, LayerSampler)
            self._sample = RemoteExpansion(job.sampler, job.shard, job.batch_comm, job.model.num_layers,
                                           foreign_seeds=job.task.pairs).sample

    def sample(self, own: Share, key: BatchKey) -> Batch:
        """A micro-batch of its own."""
        return own.seen(self._sample(own.seeds, key, own.global_count))

    def load(self, sampled: Batch) -> Loaded:
        """The rows of all its input vertices."""
        features = self._read(sampled)
        return Loaded(self.to_device(sampled, features), features)

    def forget_batches(self) -> None:
        """The features of a full batch are read again."""
        super().forget_batches()
        self._kept = None

    def forward(self, ready: Loaded) -> Tensor | None:
        """The replicated model on whole rows."""
        return None if ready.features is None else self.job.model(ready.batch, ready.features)

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
