"""Base of full-graph paradigms: every step computes every vertex, for all training vertices at once.

If examples are links, an epoch may have several steps, each with `train.batch_size` links, as in OGB's scripts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from gnnexp.components.locate import target_of
from gnnexp.components.options import rule_problems
from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.sparse import Rows
from gnnexp.graph.subset import contains
from gnnexp.paradigms.checks import has_pairs, whole_row_problems
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.captured import CapturedStep, Counted
from gnnexp.paradigms.loops.computed import Computed
from gnnexp.paradigms.loops.global_batch import AutogradTrainer, GlobalBatchTrainer, Ready
from gnnexp.paradigms.loops.rank_batch import RankBatch, from_owners, owners
from gnnexp.paradigms.loops.targets import targets_of_rank
from gnnexp.paradigms.trainer import EpochCounts
from gnnexp.samplers.full import FullOptions


@dataclass(frozen=True, eq=False)
class RankGraph:
    """What a rank holds of the graph, and computes in every step.

    Attributes:
        own: `[n]` original ids of the vertices whose outputs the rank finishes, ascending.
        blocks: blocks that the rank computes. One for each layer, on the device, by default. Column paradigms have one
            for each chunk, which may be in host memory.
        computed: edges and vertices of a step.
        resident: blocks that stay on the device; None: all. Chunks that visit the device are counted elsewhere.
    """

    own: Tensor
    blocks: tuple[Block, ...]
    computed: Computed
    resident: tuple[Block, ...] | None = None

    @property
    def resident_bytes(self) -> int:
        """Bytes of the blocks that stay on the device."""
        return sum(block.nbytes() for block in set(self.blocks if self.resident is None else self.resident))


@dataclass(frozen=True, eq=False)
class Whole(Ready):
    """What one rank trains in one step: all blocks, the features, and the examples of its loss.

    Attributes:
        features: rows that `load` returned.
        held: what the rank holds of the graph.
    """

    features: Rows
    held: RankGraph

    @property
    def computed(self) -> Computed:
        """What this rank computes in every step."""
        return self.held.computed


class FullGraphTrainer(GlobalBatchTrainer[Whole]):
    """Full-graph training. A subclass says which vertices are its own, and what it holds of them.

    Blocks are built once. Features are read in the first epoch and stay, unless they are trained.

    Args:
        job: job of the rank.
        outputs_device: device of the own vertices' outputs, which losses of links read; None: that of the model.

    Attributes:
        held: what this rank holds of the graph; set by the constructor of a subclass.
    """

    held: RankGraph

    def __init__(self, job: Job, outputs_device: torch.device | None = None) -> None:
        super().__init__(job)
        self._outputs_device = outputs_device
        self._loaded: Rows | None = None

    # --- what a paradigm says --------------------------------------------------------------------------------------
    @abstractmethod
    def load(self) -> Rows:
        """Load the features that this rank holds, to the device. Ranks may communicate."""

    def _rank_batch(self, batch: Tensor, key: BatchKey) -> RankBatch:
        """Examples of the rank's loss: its own vertices in a global `batch`, or a share of the links."""
        task, comm, own = self.job.task, self.job.comm, self.held.own
        if task.options.pairs:
            examples = task.examples(targets_of_rank(batch, comm.rank, comm.size), batch, key)
            return from_owners(examples, batch.numel(), self._owners, self.job.batch_comm, own)
        examples = task.examples(batch[contains(own, batch)], batch, key)
        return RankBatch(examples, batch.numel(), own, torch.searchsorted(own, examples.vertices))

    @cached_property
    def _owners(self) -> Tensor:
        return owners(self.held.own, self.job.graph.num_nodes, self.job.batch_comm)

    @cached_property
    def _whole_batch(self) -> RankBatch:
        """The batch of all training vertices, which is the same in every epoch."""
        return self._on_device(self._rank_batch(self.schedule.targets, BatchKey(self.job.experiment.seed, 0, 0)))

    def _on_device(self, own: RankBatch) -> RankBatch:
        return own.to(self.job.device, outputs=self._outputs_device)

    # --- the iteration ---------------------------------------------------------------------------------------------
    def batches(self, epoch: int, first: int = 0) -> Generator[Whole, None, None]:
        """One batch, or several of links. Topology is the same in every epoch, randomness is not."""
        assert first == 0, "an epoch cannot be resumed in the middle"
        timer, pairs = self.job.timer, self.job.task.options.pairs
        with timer.phase("sample"):
            order = self.schedule.order(epoch)
        for step in range(self.schedule.num_steps):
            key = BatchKey(self.job.experiment.seed, epoch, step)
            with timer.phase("negatives" if pairs else "sample"):
                batch = self.schedule.global_batch(order, step)
                own = self._on_device(self._rank_batch(batch, key)) if pairs else self._whole_batch
            with timer.phase("load"):
                self.count_crossing(own.examples.nbytes)
                if self._loaded is None:
                    self.count_crossing(self.held.resident_bytes)
                if self._loaded is None or self.job.trained_rows is not None:
                    self._loaded = self.load()
            yield Whole(Batch(own.seeds, self.held.blocks, key, own.global_count), self._loaded, self.held, own=own)

    def end_epoch(self) -> EpochCounts:
        """The counts of the epoch, with the bytes that crossed into the device tier and back."""
        self.work.add(self.job.tier.take_counts())
        edges = self.held.computed.edges
        for layer, times in self.job.tier.take_again().items():
            self.count("edges_computed_again", times * edges[layer])
        return super().end_epoch()

    def memory(self) -> dict[str, int]:
        """Bytes by kind. Topology is that of the blocks, not of the graph."""
        held = super().memory()
        return {**held, "topology_bytes": sum(block.nbytes() for block in set(self.held.blocks))}


class WholeGraphTrainer(FullGraphTrainer, AutogradTrainer[Whole]):
    """Full-graph training that keeps results until the backward pass. A subclass says how its model runs.

    With `train.cuda_graph`, `forward_backward` launches a captured step, which also sums gradients over ranks.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._captured = CapturedStep(job) if job.experiment.train.cuda_graph else None

    def forward_backward(self, batch: Whole) -> tuple[Tensor, int]:
        """Compute gradients of this rank's part of the global mean loss."""
        if self._captured is None:
            return super().forward_backward(batch)
        return self._captured.run(batch.batch.key, lambda: self._forward_to_sum(batch), self._apart, self._count_again)

    def _forward_to_sum(self, batch: Whole) -> tuple[Tensor, int]:
        result = super().forward_backward(batch)
        super().synchronize()
        return result

    def synchronize(self) -> None:
        """Sum gradients over ranks, unless the captured step has done so."""
        if self._captured is None:
            super().synchronize()

    @contextmanager
    def _apart(self) -> Iterator[Counted]:
        """Collect what is counted inside."""
        self.work.add(self.job.tier.take_counts())
        earlier, self._batches = self._batches, {}
        try:
            with self.work.apart() as work:
                yield Counted(work, self._batches)
                self.work.add(self.job.tier.take_counts())
        finally:
            self._batches = earlier

    def _count_again(self, counted: Counted) -> None:
        self.work.add({**counted.work, "steps_replayed": 1})
        for name, layers in counted.batches.items():
            self._batches.setdefault(name, []).extend(layers)

    def end_epoch(self) -> EpochCounts:
        """The counts of the epoch, with the memory of a captured step."""
        found = super().end_epoch()
        return found if self._captured is None else replace(found, captured_bytes=self._captured.peak_bytes)


def full_graph_problems(experiment: Experiment, name: str) -> list[Problem]:
    """Conflicts: needs one batch, all neighbours, and the same draws for every number of ranks."""
    sampler, size = experiment.sampler, experiment.train.batch_size
    is_full = isinstance(sampler, FullOptions)
    return whole_row_problems(experiment, name) + rule_problems(
        (is_full, "sampler", target_of(sampler), f"{name} trains on the full graph", "choose sampler=full"),
        (
            not is_full or sampler.key == "global",
            "sampler.key",
            sampler.key,
            f"{name} trains one batch on all ranks",
            "set sampler.key=global",
        ),
        (
            size is None or has_pairs(experiment),
            "train.batch_size",
            size,
            f"{name} trains all targets in one batch",
            "set train.batch_size=null",
        ),
        (
            not experiment.task.exclude_targets,
            "task.exclude_targets",
            True,
            f"{name} has one graph for all batches, whose edges are the training links",
            "set task.exclude_targets=false",
        ),
    )


def layer_by_layer(whole: Whole, num_layers: int, layer: Callable[[int, Rows, BatchKey], Tensor]) -> Tensor:
    """`[n, C]` outputs of the own vertices, for layers that exchange rows between their stages.

    Args:
        whole: the batch.
        num_layers: L, number of layers.
        layer: function that returns the outputs `[n, d]` of a layer. It takes the index from 0, rows of the layer
            before, and the key.
    """
    h = whole.features
    for index in range(num_layers):
        h = layer(index, h, whole.batch.key)
    assert isinstance(h, Tensor)
    return h
