"""Data parallelism: every rank samples, loads and trains its share of each global batch; gradients are summed.

Where topology or features live is the sampler's and the feature store's business: replicated (DGL), both partitioned
(DistDGL, FastSample's "vanilla"), features only (FastSample's hybrid, section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.plan import GraphFacts, Plan, Sizes
from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import (
    hidden_links,
    hop_by_hop,
    one_part_per_rank,
    one_thread_where_batches_communicate,
    pairs,
    whole_rows,
)
from gnnexp.paradigms.loops.global_batch import Ready
from gnnexp.paradigms.loops.mini_batch import MiniBatchTrainer, approximated
from gnnexp.paradigms.loops.rank_batch import RankBatch
from gnnexp.paradigms.loops.targets import Assign
from gnnexp.paradigms.trainer import Trainer
from gnnexp.samplers.layerwise import LayerSampler
from gnnexp.samplers.remote import RemoteExpansion


@dataclass(frozen=True, eq=False)
class Loaded(Ready):
    """A sampled batch with its features.

    Attributes:
        features: `[S, D]` rows of the input vertices; None where there are no targets.
    """

    features: Rows | None


@dataclass(frozen=True)
class DataParallel(Paradigm):
    """Replicated model, one gradient all-reduce per global batch.

    Attributes:
        assign: who trains which targets of a global batch: `even` shares; the `owner` of each target (needs a
            partition; what a partitioned topology wants); `stratified` (labelled inexact, see `MiniBatchTrainer`).
    """

    assign: Assign = "even"

    def wants_partition(self, experiment: Experiment) -> bool:
        """Wherever something is placed by owner."""
        return (self.assign != "even" or experiment.sampler.options.topology == "partitioned"
                or super().wants_partition(experiment))

    def check(self, experiment: Experiment) -> list[Problem]:
        """A partitioned topology samples hop by hop, from targets that are at their owners."""
        problems = [*hidden_links(experiment), *one_thread_where_batches_communicate(experiment),
                    *whole_rows(experiment, "data_parallel")]
        if self.wants_partition(experiment):
            problems += one_part_per_rank(experiment)
        if experiment.sampler.options.topology == "partitioned":
            problems += hop_by_hop(experiment, "a partitioned topology")
        if pairs(experiment) and self.assign == "stratified":
            problems.append(Problem("paradigm.assign", self.assign, "ends of a link have several owners",
                                    "set paradigm.assign=owner (of the head), or even"))
        elif (experiment.sampler.options.topology == "partitioned" and self.assign == "even"
                and not pairs(experiment)):
            problems.append(Problem("paradigm.assign", self.assign, "with sampler.topology=partitioned the first hop "
                                    "is sampled where the target's edges are", "set paradigm.assign=owner"))
        return problems

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """A part for every rank, where something is placed by owner."""
        num_parts = experiment.num_ranks if self.wants_partition(experiment) else None
        return Plan(num_parts, drawn_from_graph(experiment, facts), approximates=approximated(experiment, self.assign))

    def trainer(self, job: Job) -> Trainer[Any]:
        """By mini-batches."""
        return DataParallelTrainer(job, self.assign)


class DataParallelTrainer(MiniBatchTrainer[Batch, Loaded]):
    """A rank's micro-batches; a partitioned topology is sampled with requests to the owners."""

    def __init__(self, job: Job, assign: Assign) -> None:
        super().__init__(job, assign)
        self._kept: tuple[Tensor, Rows] | None = None
        self._sample: Callable[[Tensor, BatchKey, int], Batch] = job.sampler.sample
        if job.sampler.topology == "partitioned":
            assert isinstance(job.sampler, LayerSampler)
            self._sample = RemoteExpansion(job.sampler, job.shard, job.batch_comm, job.model.num_layers,
                                           foreign_seeds=job.task.pairs).sample

    def sample(self, own: RankBatch, key: BatchKey) -> Batch:
        """A micro-batch of its own."""
        return own.seen(self._sample(own.seeds, key, own.global_count))

    def load(self, sampled: Batch) -> Loaded:
        """The rows of all its input vertices."""
        features = self._read(sampled)
        return Loaded(self.to_device(sampled, features), features)

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
        if self.schedule.num_batches == 1 and not store.collective:
            self._kept = (batch.input_ids, features)
        return features if batch.targets.numel() else None
