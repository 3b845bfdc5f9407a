"""Split parallelism: one mini-batch for all ranks, every vertex sampled, loaded and computed once (GSplit, section 3).

Sample: each rank samples its local frontier, and splits the mixed frontier (Algorithm 1, samplers/split.py).

Load: each rank loads features of its local input vertices.

Train: before every layer, ranks shuffle the rows of foreign sources (Algorithm 2, comm/shuffle.py).

It is exact: ranks shuffle rows, not sums. So a destination has all its in-edges and source rows in one place, and any
model runs unchanged. If `group_size` is smaller than the number of ranks, it is the paper's hybrid for several hosts
(section 6.4): data parallel across groups of consecutive ranks, split parallel within each group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from gnnexp.comm.shuffle import ShuffleIndex, shuffle
from gnnexp.components.facts import GraphFacts
from gnnexp.components.plan import Plan, Sizes
from gnnexp.errors import ConfigError, Problem, Refusal
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import BatchKey
from gnnexp.graph.sparse import Rows
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import (
    block_degree_problems,
    has_pairs,
    hidden_link_problems,
    hop_by_hop_problems,
    part_per_rank_problems,
    refuses_hidden_links,
    sampling_thread_problems,
    whole_row_problems,
)
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.computed import Computed
from gnnexp.paradigms.loops.global_batch import Ready
from gnnexp.paradigms.loops.mini_batch import MiniBatchTrainer, approximated, prepared_alone
from gnnexp.paradigms.loops.rank_batch import RankBatch
from gnnexp.paradigms.loops.shares import GroupShares
from gnnexp.paradigms.loops.targets import Assign
from gnnexp.paradigms.trainer import Trainer
from gnnexp.samplers.device_split import splitter
from gnnexp.samplers.layerwise import LayerSampler
from gnnexp.samplers.split import SplitBatch


@dataclass(frozen=True, eq=False)
class LoadedSplit(Ready):
    """A rank's split of a batch, with features of its local input vertices.

    Attributes:
        shuffles: for each block, which rows are exchanged; on the device.
        cross_edges: for each block, number of edges from foreign sources.
        features: `[n, D]` rows of the local input vertices.
    """

    shuffles: tuple[ShuffleIndex, ...]
    cross_edges: tuple[int, ...]
    features: Rows

    @property
    def computed(self) -> Computed:
        """What this rank computes. The split counted edges from foreign sources."""
        return Computed.of_sampled(self.batch, self.cross_edges)


@dataclass(frozen=True)
class SplitParallel(Paradigm):
    """Each group of ranks trains one mini-batch together.

    Attributes:
        group_size: ranks that share a mini-batch, a divisor of the number of ranks; None for all.
        assign: `owner`, or `stratified`: each rank shuffles the targets of its own part, as GSplit's artifact does.
    """

    group_size: int | None = None
    assign: Assign = "owner"
    always_partitioned: ClassVar[bool] = True
    reads_rows_on_gpu: ClassVar[bool] = True
    reads_narrow_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.group_size is not None and self.group_size < 1:
            raise ConfigError(
                Problem(
                    "paradigm.group_size",
                    self.group_size,
                    "must be at least 1, or null for all ranks",
                    "set paradigm.group_size=null",
                )
            )
        if self.assign == "even":
            raise ConfigError(
                Problem(
                    "paradigm.assign",
                    self.assign,
                    "a split has the targets that its rank owns",
                    "set paradigm.assign=owner",
                )
            )

    def ranks_together(self, experiment: Experiment) -> int:
        """Number of ranks in a group."""
        return self.group_size or experiment.num_ranks

    def refuses_rounded_rows(self, experiment: Experiment) -> Refusal | None:
        """None: ranks exchange whole rows of layers, or none."""
        return None

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts: needs equal groups, a part for each rank of a group, and a sampler that goes hop by hop."""
        ranks = experiment.num_ranks
        size = self.ranks_together(experiment)
        problems = [
            *hidden_link_problems(experiment),
            *sampling_thread_problems(experiment, together=size > 1),
            *hop_by_hop_problems(experiment, "split_parallel"),
            *whole_row_problems(experiment, "split_parallel"),
            *block_degree_problems(experiment, "split_parallel"),
        ]
        if not ranks or ranks % size:
            return [
                *problems,
                Problem(
                    "paradigm.group_size",
                    self.group_size,
                    f"must divide the {ranks} ranks",
                    "set paradigm.group_size=null",
                ),
            ]
        if self.assign == "stratified" and has_pairs(experiment):
            problems.append(
                Problem(
                    "paradigm.assign", self.assign, "ends of a link have several owners", "set paradigm.assign=owner"
                )
            )
        elif self.assign == "stratified" and size != ranks:
            problems.append(
                Problem(
                    "paradigm.assign",
                    self.assign,
                    "strata are parts of all ranks: needs one group",
                    "set paradigm.group_size=null, or paradigm.assign=owner",
                )
            )
        return [*problems, *part_per_rank_problems(experiment, size)]

    def refuses_gpu_sampling(self, experiment: Experiment) -> Refusal | None:
        """Splits may be made on GPUs. Ids of foreign vertices are exchanged through the hosts."""
        return refuses_hidden_links(experiment)

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan, with one part for each rank of a group."""
        return Plan(
            self.ranks_together(experiment),
            drawn_from_graph(experiment, facts),
            approximates=approximated(experiment, self.assign),
        )

    def trainer(self, job: Job) -> Trainer[Any]:
        """A trainer of splits."""
        return SplitTrainer(job, self.assign)


class SplitTrainer(MiniBatchTrainer[SplitBatch, LoadedSplit]):
    """Trains a rank's split of every mini-batch of its group."""

    def __init__(self, job: Job, assign: Assign) -> None:
        super().__init__(job, GroupShares(job, assign), prepared_alone(job, samples=job.batch_comm.size == 1))
        assert isinstance(job.sampler, LayerSampler)
        self.splitter = splitter(job.sampler, job.shard, job.batch_comm, job.model.num_layers)

    def sample(self, own: RankBatch, key: BatchKey) -> SplitBatch:
        """Algorithm 1: sample hop by hop, and split the mixed frontier by owner."""
        sampled = self.splitter.sample(own.seeds, key, own.global_count)
        if own.hidden is None:
            return sampled
        batch = own.seen(sampled.batch)
        crossing = tuple(
            int((block.sources >= index.num_local).sum())
            for block, index in zip(batch.blocks, sampled.shuffles, strict=True)
        )
        return replace(sampled, batch=batch, cross_edges=crossing)

    def load(self, sampled: SplitBatch) -> LoadedSplit:
        """Load the rows of the local input vertices."""
        features = self.job.store.read(sampled.device_input_ids if self.job.store.on_device else sampled.input_ids)
        shuffles = tuple(index.to(self.job.device) for index in sampled.shuffles)
        crosses = sampled.batch.host_ids is None
        batch = self.to_device(sampled.batch, features, crosses * sum(index.nbytes() for index in sampled.shuffles))
        return LoadedSplit(batch, shuffles, sampled.cross_edges, features)

    def forward(self, ready: LoadedSplit) -> Tensor:
        """Algorithm 2, `sp_forward`; autograd runs its reverse. Ranks without targets take part."""

        def exchange(layer: int, rows: Rows) -> Rows:
            return shuffle(rows, ready.shuffles[layer], self.job.group_comm, "activations" if layer else "features")

        return self.job.model(ready.batch, ready.features, exchange)  # type: ignore[no-any-return]
