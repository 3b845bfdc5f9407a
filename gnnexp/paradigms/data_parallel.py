"""Data parallelism: every rank samples, loads and trains its share of each global batch; gradients are summed.

The sampler and the feature store decide where topology and features are: replicated (DGL), both partitioned
(DistDGL, FastSample's "vanilla"), or only features partitioned (FastSample's hybrid, section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from gnnexp.components.facts import GraphFacts
from gnnexp.components.plan import Plan, Sizes
from gnnexp.errors import Problem, Refusal
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import Batch, BatchKey
from gnnexp.graph.sparse import InputRows
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import (
    has_pairs,
    hidden_link_problems,
    hop_by_hop_problems,
    part_per_rank_problems,
    refuses_hidden_links,
    sampling_thread_problems,
    whole_row_problems,
)
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.global_batch import Ready
from gnnexp.paradigms.loops.mini_batch import MiniBatchTrainer, approximated, prepared_alone
from gnnexp.paradigms.loops.rank_batch import RankBatch
from gnnexp.paradigms.loops.shares import Shares
from gnnexp.paradigms.loops.targets import Assign
from gnnexp.paradigms.trainer import Trainer
from gnnexp.samplers.device_remote import remote_expansion
from gnnexp.samplers.layerwise import LayerSampler


@dataclass(frozen=True, eq=False)
class Loaded(Ready):
    """A sampled batch with its features, on the device.

    Attributes:
        features: `[S, D]` rows of the input vertices; None if the rank has no targets.
    """

    features: InputRows | None


@dataclass(frozen=True)
class DataParallel(Paradigm):
    """The model is replicated, and each global batch has one all-reduce of gradients.

    Attributes:
        assign: which rank trains which targets of a global batch: `even` shares; the `owner` of each target, which a
            partitioned topology needs; `stratified` (labelled inexact, see `MiniBatchTrainer`).
    """

    assign: Assign = "even"
    reads_rows_on_gpu: ClassVar[bool] = True
    reads_stored_rows: ClassVar[bool] = True
    reads_narrow_rows: ClassVar[bool] = True

    def wants_partition(self, experiment: Experiment) -> bool:
        """Whether targets, topology or features are placed by owner."""
        return (
            self.assign != "even" or experiment.sampler.topology == "partitioned" or super().wants_partition(experiment)
        )

    def refuses_rounded_rows(self, experiment: Experiment) -> Refusal | None:
        """None: ranks exchange whole rows of layers, or none."""
        return None

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts. A partitioned topology samples hop by hop, and owners train their targets."""
        problems = [
            *hidden_link_problems(experiment),
            *sampling_thread_problems(
                experiment, together=experiment.num_ranks > 1 and experiment.sampler.topology == "partitioned"
            ),
            *whole_row_problems(experiment, "data_parallel"),
        ]
        if self.wants_partition(experiment):
            problems += part_per_rank_problems(experiment)
        if experiment.sampler.topology == "partitioned":
            problems += hop_by_hop_problems(experiment, "a partitioned topology")
        if has_pairs(experiment) and self.assign == "stratified":
            problems.append(
                Problem(
                    "paradigm.assign",
                    self.assign,
                    "ends of a link have several owners",
                    "set paradigm.assign=owner (of the head), or even",
                )
            )
        elif experiment.sampler.topology == "partitioned" and self.assign == "even" and not has_pairs(experiment):
            problems.append(
                Problem(
                    "paradigm.assign",
                    self.assign,
                    "with sampler.topology=partitioned the first hop is sampled where the target's edges are",
                    "set paradigm.assign=owner",
                )
            )
        return problems

    def refuses_gpu_sampling(self, experiment: Experiment) -> Refusal | None:
        """Batches may be made on GPUs. With a partitioned topology, requests and answers pass through the hosts."""
        return refuses_hidden_links(experiment)

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan, with one part for each rank if the run needs a partition."""
        num_parts = experiment.num_ranks if self.wants_partition(experiment) else None
        return Plan(num_parts, drawn_from_graph(experiment, facts), approximates=approximated(experiment, self.assign))

    def trainer(self, job: Job) -> Trainer[Any]:
        """A trainer of micro-batches."""
        return DataParallelTrainer(job, self.assign)


class DataParallelTrainer(MiniBatchTrainer[Batch, Loaded]):
    """Trains a rank's micro-batches. With a partitioned topology, ranks ask owners for the edges."""

    def __init__(self, job: Job, assign: Assign) -> None:
        has_topology = job.sampler.options.topology == "replicated"
        super().__init__(job, Shares(job, assign), prepared_alone(job, samples=has_topology))
        self._kept: tuple[Tensor, InputRows] | None = None
        self._reads_stored = bool(job.stored_rows)
        self._sample: Callable[[Tensor, BatchKey, int], Batch] = job.sampler.sample
        if job.sampler.options.topology == "partitioned":
            assert isinstance(job.sampler, LayerSampler)
            self._sample = remote_expansion(
                job.sampler, job.shard, job.batch_comm, job.model.num_layers, foreign_seeds=job.task.options.pairs
            ).sample

    def sample(self, own: RankBatch, key: BatchKey) -> Batch:
        """Sample the micro-batch of this rank."""
        return own.seen(self._sample(own.seeds, key, own.global_count))

    def load(self, sampled: Batch) -> Loaded:
        """Load the rows of all input vertices."""
        features = self._read(sampled)
        return Loaded(self.to_device(sampled, features), features)

    def forward(self, ready: Loaded) -> Tensor | None:
        """Run the replicated model. None if the rank has no targets."""
        return None if ready.features is None else self.job.model(ready.batch, ready.features)

    def _read(self, batch: Batch) -> InputRows | None:
        """Features of the batch. Full-batch training has the same vertices in every step, so it keeps them."""
        store = self.job.store
        if not batch.targets.numel() and not store.is_collective:
            return None
        kept = self._kept
        if kept is not None and kept[0] is batch.input_ids:
            return kept[1]
        is_on_device = store.on_device and batch.host_ids is not None
        ids = batch.blocks[0].src_ids if is_on_device else batch.input_ids
        features = store.read_stored(ids) if self._reads_stored else store.read(ids)
        if self.schedule.num_batches == 1 and not store.is_collective:
            self._kept = (batch.input_ids, features)
        return features if batch.targets.numel() else None
