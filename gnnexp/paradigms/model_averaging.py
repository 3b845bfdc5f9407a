"""Model averaging over streamed parts (SDT-GNN, sections III-C and III-D).

In every epoch, a rank trains its parts one after another. Each part has its own model, optimizer and batches. Every
`sync_every` epochs, all models become their average, weighted by the number of training vertices of each part. There
may be more parts than ranks, or fewer.

A rank holds one part at a time, and loads the next one while it trains.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gnnexp.components.facts import GraphFacts
from gnnexp.components.options import rule_problems
from gnnexp.components.plan import Plan, Sizes
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.parts import PartSizes
from gnnexp.graph.sparse import Rows
from gnnexp.kernels.pool import Pool
from gnnexp.models.model import Model
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.checks import (
    link_problems,
    plain_feature_problems,
    sampling_thread_problems,
    whole_topology_problems,
)
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.global_batch import AutogradTrainer, Ready
from gnnexp.paradigms.loops.pipeline import prepared, sampling_threads
from gnnexp.paradigms.loops.rank_batch import of_vertices
from gnnexp.paradigms.parts.active_part import ActivePart, load_part
from gnnexp.paradigms.parts.allocation import num_parts, parts_of
from gnnexp.paradigms.parts.local_models import LocalModels
from gnnexp.paradigms.parts.needs import drawn_from_parts, feature_bytes, least_sizes, part_needs, topology_bytes
from gnnexp.paradigms.trainer import EpochCounts, Trainer

# Targets of the empty batch that a rank yields while other ranks still have steps to run.
_NO_TARGETS = torch.empty(0, dtype=torch.int64)
# At most this many times the parts of section III-C: with more parts, halos hardly shrink.
_MOST_TIMES = 8


@dataclass(frozen=True, eq=False)
class Local(Ready):
    """A batch of a part, on the device.

    Attributes:
        features: `[S, D]` rows of the input vertices; None for a step in which only other ranks train.
    """

    features: Rows | None


@dataclass(frozen=True)
class ModelAveraging(Paradigm):
    """Every part trains a model of its own; all models are averaged.

    Attributes:
        sync_every: epochs between two averages. There is always an average after the last epoch.
        full_neighbors: whether a part holds all neighbours of its own vertices (section III-B), or only the edges that
            the partition gave it (Figure 2).
        local_batch_size: targets of a part's batch; null: train.batch_size / p for p parts.
        memory: bytes of a rank for data and computing; they decide p if partitioner.num_parts=auto. null:
            hardware.device_memory. If both are null, there are as many parts as ranks. If topology and features of a
            part with its halo need more, the number of parts is doubled. A number that the user chose is refused then.
        reserve: bytes of `memory` for computing; null: two thirds.
    """

    sync_every: int = 1
    full_neighbors: bool = True
    local_batch_size: int | None = None
    memory: int | None = None
    reserve: int | None = None
    takes_vertex_cut: ClassVar[bool] = True
    reads_narrow_rows: ClassVar[bool] = True
    always_partitioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        every, size, memory = self.sync_every, self.local_batch_size, self.memory
        rules = rule_problems(
            (every >= 1, "paradigm.sync_every", every, "must be 1 or more epochs", "set paradigm.sync_every=1"),
            (
                size is None or size >= 1,
                "paradigm.local_batch_size",
                size,
                "must be 1 or more, or null",
                "set paradigm.local_batch_size=null",
            ),
            (
                memory is None or memory >= 1,
                "paradigm.memory",
                memory,
                "must be bytes, or null",
                "set paradigm.memory=null",
            ),
        )
        ConfigError.raise_all(rules)

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts: epochs between averages, and samplers and stores that a part cannot have."""
        name, every, eval_every = "model_averaging", self.sync_every, experiment.train.eval_every
        memory, reserve, schedule = self._memory_of(experiment), self.reserve, experiment.schedule
        return [
            *plain_feature_problems(experiment, name),
            *whole_topology_problems(experiment, name),
            *link_problems(experiment, name, "the ends of a link are in different parts"),
            *sampling_thread_problems(experiment),
            *rule_problems(
                (
                    (eval_every or 0) % every == 0,
                    "train.eval_every",
                    eval_every,
                    f"must be a multiple of {every} (paradigm.sync_every): between averages there is no model to "
                    "evaluate",
                    f"set train.eval_every={every}",
                ),
                (
                    schedule is None or schedule.interval != "step",
                    "scheduler.interval",
                    "step",
                    "parts take turns, so that their steps are not those of the run",
                    "set scheduler.interval=epoch",
                ),
                (
                    reserve is None or (memory is not None and 0 <= reserve < memory),
                    "paradigm.reserve",
                    reserve,
                    f"must be 0 or more and below the memory of a rank ({memory})",
                    "set paradigm.reserve=null, or paradigm.memory",
                ),
            ),
        ]

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan, with the number of parts of section III-C, or more if halos need it. Uncut parts are even."""
        memory = self._memory_of(experiment)
        count = min(
            facts.num_nodes,
            num_parts(
                facts.topology_bytes + facts.num_nodes * facts.row_bytes(4), experiment.num_ranks, memory, self.reserve
            ),
        )
        chosen = experiment.partitioner.num_parts
        parts = least_sizes(facts, count if chosen == "auto" else chosen) if sizes is None else sizes
        batch_size = self.part_batch_size(experiment.train.batch_size, len(parts))
        alone = sizes is not None and len(sizes) == 1
        wanted = count if sizes is None else self._fitting_parts(experiment, facts, sizes, count)
        return Plan(
            len(parts) if isinstance(wanted, Problem) else wanted,
            drawn_from_parts(parts, experiment.num_ranks, batch_size),
            works_on_parts=True,
            full_neighbors=self.full_neighbors,
            approximates="" if alone else self._approximates,
            needs=tuple(part_needs(facts, parts, experiment.num_ranks)),
            evaluation_memory=memory,
            problems=(wanted,) if isinstance(wanted, Problem) else (),
        )

    def _fitting_parts(
        self, experiment: Experiment, facts: GraphFacts, sizes: Sequence[PartSizes], least: int
    ) -> int | Problem:
        """The number of parts that fits the memory of a rank. Section III-C counts `least` parts without their halos.

        If each cut part fits, their number. Else twice as many, if partitioner.num_parts=auto.
        """
        memory, count = self._memory_of(experiment), len(sizes)
        largest = max(topology_bytes(facts, size) + feature_bytes(facts, size) for size in sizes)
        if memory is None or largest <= memory:
            return count
        if experiment.partitioner.num_parts == "auto" and 2 * count <= min(_MOST_TIMES * least, facts.num_nodes):
            return 2 * count
        key = "hardware.device_memory" if self.memory is None else "paradigm.memory"
        return Problem(
            key,
            memory,
            f"the largest of {count} parts has {largest} bytes of topology and features, its halo included",
            f"set partitioner.num_parts={2 * count}, or {key}={largest} or more",
        )

    @property
    def _approximates(self) -> str:
        halo = "" if self.full_neighbors else "; neighbours in other parts are missing"
        return (
            f"every part trains a model of its own, averaged every {self.sync_every} epochs; beyond the first hop "
            f"a halo vertex aggregates what its part holds{halo}"
        )

    def _memory_of(self, experiment: Experiment) -> int | None:
        """M, bytes of a rank; None if no option says it."""
        return experiment.hardware.device_memory if self.memory is None else self.memory

    def part_batch_size(self, whole: int | None, parts: int) -> int | None:
        """Targets of a part's batch, for `whole` targets in a global batch (`train.batch_size`); None: all targets."""
        if self.local_batch_size is not None or whole is None:
            return self.local_batch_size
        return -(-whole // parts)

    def trainer(self, job: Job) -> Trainer[Any]:
        """A trainer that trains part by part."""
        return AveragingTrainer(job, self)


class AveragingTrainer(AutogradTrainer[Local]):
    """Trains a rank's parts, with one model for each."""

    def __init__(self, job: Job, options: ModelAveraging) -> None:
        super().__init__(job)
        assert job.parts is not None
        self.options, self._sizes = options, job.parts.sizes
        self._mine = parts_of(job.comm.rank, job.comm.size, len(self._sizes))
        self._models = LocalModels(job.model, self._mine)
        self._held: ActivePart | None = None
        self._pool = Pool()
        self._renamed: tuple[tuple[Block, ...], tuple[Block, ...]] | None = None

    # --- the iteration ---------------------------------------------------------------------------------------------
    def batches(self, epoch: int, first: int = 0) -> Generator[Local, None, None]:
        """The batches of this rank's parts, then empty batches while other ranks still train, then the average."""
        assert first == 0
        steps = 0
        try:
            with closing(self._active_parts(epoch)) as parts:
                for active in parts:
                    self._models.begin(active.number)
                    steps += active.schedule.num_steps
                    of_part = range(active.schedule.num_steps)
                    active.sampler.inside = sampling_threads(self.job, len(of_part))[1]
                    yield from prepared(self.job, of_part, self._preparing(active, epoch), self.work)
            self._models.end()
            idle = Local(Batch(_NO_TARGETS, (), BatchKey(self.job.experiment.seed, epoch, 0)), None)
            for _ in range(self._longest() - steps):
                yield idle
        finally:
            self._models.end()
        if (epoch + 1) % self.options.sync_every == 0 or epoch + 1 == self.job.experiment.train.epochs:
            with self.job.timer.phase("sync"):
                total = sum(size.train for size in self._sizes)
                weights = {part: self._sizes[part].train / total for part in self._mine}
                self._models.average(weights, self.job.comm)

    def forward_backward(self, batch: Local) -> tuple[Tensor, int]:
        """Compute gradients of the part's mean loss. None while only other ranks train, and no optimizer step."""
        if batch.features is None:
            self.gradients.detach()
            return torch.zeros((), dtype=self.job.dtype), 0
        self.gradients.attach()
        return super().forward_backward(batch)

    def forward(self, ready: Local) -> Tensor | None:
        """Run the part's model."""
        assert ready.features is not None
        model: Model = self.job.model
        logits: Tensor = model(ready.batch, ready.features)
        return logits

    def synchronize(self) -> None:
        """Do nothing: models are averaged between epochs only."""

    def clip_gradients(self, max_norm: float) -> None:
        """Clip the gradients of the part's own model."""
        nn.utils.clip_grad_norm_(self.module.parameters(), max_norm)

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Make a step with the part's own optimizer state."""
        self._models.use(optimizer)
        super().update(optimizer)

    # --- parts -----------------------------------------------------------------------------------------------------
    def _active_parts(self, epoch: int) -> Generator[ActivePart, None, None]:
        """This rank's parts with training vertices. Every other epoch goes backwards and reuses the last part."""
        numbers = [part for part in self._mine if self._sizes[part].train]
        order = numbers if epoch % 2 == 0 else numbers[::-1]
        if self._held is not None and order[:1] != [self._held.number]:
            self._held = None

        def load(place: int) -> ActivePart:
            held, self._held = self._held, None
            if held is not None:
                return held
            with self.job.timer.phase("load"):
                return self._load(order[place])

        ahead = prepared(self.job, range(len(order)), load, self.work, waits_in="load", threads=1, depth=1)
        with closing(ahead) as parts:
            for active in parts:
                yield active
                if active.number == order[-1]:
                    self._held = active

    def _load(self, number: int) -> ActivePart:
        """Load a part: its topology to memory; its features are mapped."""
        active = load_part(self.job, number, self._batch_size(), self._pool)
        self.count("parts_loaded", 1)
        self.count("part_bytes_loaded", active.nbytes)
        return active

    def _batch_size(self) -> int | None:
        return self.options.part_batch_size(self.job.experiment.train.batch_size, len(self._sizes))

    def _longest(self) -> int:
        """Steps per epoch of the rank with the most steps."""
        size, most = self._batch_size(), self.job.experiment.train.steps_per_epoch

        def steps(rank: int) -> int:
            trained = (self._sizes[part].train for part in parts_of(rank, self.job.comm.size, len(self._sizes)))
            return sum(min(-(-count // (size or count)), most or count) for count in trained if count)

        return max(steps(rank) for rank in range(self.job.comm.size))

    def _preparing(self, active: ActivePart, epoch: int) -> Callable[[int], Local]:
        """A function that makes batch `step` of a part. Sampling takes local ids; the batch has original ids."""
        timer, names = self.job.timer, active.part.names
        with timer.phase("sample"):
            order = active.schedule.order(epoch)

        def prepare(step: int) -> Local:
            with timer.phase("sample"):
                sampled = active.sample(order, BatchKey(self.job.experiment.seed, epoch, step))
            with timer.phase("load"):
                features = active.read(sampled)
                blocks = self._renamed_of(active, sampled)
                batch = replace(sampled, targets=names[sampled.targets].long(), blocks=blocks)
                self.count_crossing(sum(block.nbytes() for block in batch.blocks))
                self.work.add(active.store.take_counts())
                own = of_vertices(batch.targets, batch.global_count)
                on_device = batch.to(self.job.device)
                return Local(on_device, features, own=own.to(self.job.device, on_device))

        return prepare

    def _renamed_of(self, active: ActivePart, sampled: Batch) -> tuple[Block, ...]:
        """Blocks with original ids. Full batches repeat their blocks, so the last blocks are kept."""
        kept = self._renamed
        if kept is None or kept[0] is not sampled.blocks:
            kept = self._renamed = (sampled.blocks, active.renamed(sampled.blocks))
        return kept[1]

    # --- what is recorded ------------------------------------------------------------------------------------------
    def end_epoch(self) -> EpochCounts:
        """The counts of this rank, with edges and vertices of every layer. Counts of the stores are already added.

        There are no counts of single batches: ranks train different numbers of batches.
        """
        counts = self.work.take()
        for name, steps in self._batches.items():
            for layer, amounts in enumerate(zip(*steps, strict=True), 1):
                counts[f"{name}_layer{layer}"] = sum(amounts)
        self._batches.clear()
        return EpochCounts(counts)

    def memory(self) -> dict[str, int]:
        """Bytes of the largest part of this rank. While the next part is prefetched, the rank holds that part too."""
        flat = self.gradients.flat
        sizes = [self._sizes[part] for part in self._mine]
        assert self.job.parts is not None
        features = (self.job.parts.open(part).graph.features for part in self._mine)
        graph = self.job.graph
        edge = 4 * (1 + (graph.edge_types is not None) + (graph.edge_weights is not None))
        return {
            "topology_bytes": max((edge * size.edges + 12 * size.vertices for size in sizes), default=0),
            "vertex_bytes": max((0 if rows is None else rows.nbytes for rows in features), default=0),
            "cache_bytes": 0,
            "buffers_bytes": 2 * flat.numel() * flat.element_size(),
        }

    def facts(self) -> Mapping[str, Any]:
        """Sizes of the parts, and how many each rank trains."""
        sizes = self._sizes
        return {
            "parts": len(sizes),
            "parts_per_rank": [
                len(parts_of(rank, self.job.comm.size, len(sizes))) for rank in range(self.job.comm.size)
            ],
            "vertices": [size.vertices for size in sizes],
            "owned": [size.owned for size in sizes],
            "edges": [size.edges for size in sizes],
            "train": [size.train for size in sizes],
            "replication": sum(size.vertices for size in sizes) / max(1, sum(size.owned for size in sizes)),
            "local_batch_size": self._batch_size(),
        }

    @property
    def own_state(self) -> LocalModels:
        """Model and optimizer state of every part of this rank."""
        return self._models
