"""What full-graph paradigms share: every vertex is computed in every step, for all training vertices at once.

Where examples are links, an epoch may have several steps (`train.batch_size` links each, as OGB's scripts have it).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.sparse import Rows
from gnnexp.graph.subset import contains
from gnnexp.job import Job
from gnnexp.paradigms.checks import pairs, whole_rows
from gnnexp.paradigms.loops.global_batch import AutogradTrainer, GlobalBatchTrainer, Ready
from gnnexp.paradigms.loops.rank_batch import RankBatch, from_owners, owners
from gnnexp.paradigms.loops.targets import targets_of_rank
from gnnexp.paradigms.trainer import EpochCounts
from gnnexp.samplers.full import FullSampler


@dataclass(frozen=True, eq=False)
class Whole(Ready):
    """The epoch's batch on one rank.

    Attributes:
        features: what `load` gave.
    """

    features: Rows


class FullGraphTrainer(GlobalBatchTrainer[Whole]):
    """Full-graph training: a paradigm says which vertices are its own and what it holds of them.

    What a rank works on is built once; features are read in the first epoch, and are there ever after, unless they are
    trained.

    Attributes:
        own: `[n]` original ids of the vertices whose outputs this rank finishes, ascending; set by the constructor.
        blocks: the graph of every layer here, on the device; likewise.
    """

    own: Tensor
    blocks: tuple[Block, ...]

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._loaded: Rows | None = None

    # --- what a paradigm says --------------------------------------------------------------------------------------
    @abstractmethod
    def load(self) -> Rows:
        """The features that this rank holds, on the device; may communicate."""

    def rank_batch(self, batch: Tensor, key: BatchKey) -> RankBatch:
        """What the rank's loss is over: its own among the vertices of a global `batch`, or a part of its links."""
        task, comm = self.job.task, self.job.comm
        if task.pairs:
            examples = task.examples(targets_of_rank(batch, comm.rank, comm.size), batch, key)
            return from_owners(examples, batch.numel(), self._owners, self.job.batch_comm, self.own)
        examples = task.examples(batch[contains(self.own, batch)], batch, key)
        return RankBatch(examples, batch.numel(), self.own, torch.searchsorted(self.own, examples.vertices))

    @cached_property
    def _owners(self) -> Tensor:
        return owners(self.own, self.job.graph.num_nodes, self.job.batch_comm)

    @cached_property
    def _whole_batch(self) -> RankBatch:
        """Of all training vertices: the same in every epoch."""
        return self._on_device(self.rank_batch(self.schedule.targets, BatchKey(self.job.experiment.seed, 0, 0)))

    def _on_device(self, own: RankBatch) -> RankBatch:
        return own.to(self.job.device, outputs=self.outputs_device)

    @property
    def outputs_device(self) -> torch.device:
        """Where the outputs of the own vertices are that losses of links read."""
        return self.job.device

    @property
    def resident(self) -> tuple[Block, ...]:
        """Topology that stays on the device; what visits it chunk by chunk is counted there."""
        return self.blocks

    # --- the iteration ---------------------------------------------------------------------------------------------
    def batches(self, epoch: int, first: int = 0) -> Generator[Whole, None, None]:
        """One batch, or one of links after the other; topology is that of every epoch, randomness is not."""
        assert first == 0, "an epoch is not gone on with"
        timer, pairs = self.job.timer, self.job.task.pairs
        with timer.phase("sample"):
            order = self.schedule.order(epoch)
        for step in range(self.schedule.num_steps):
            key = BatchKey(self.job.experiment.seed, epoch, step)
            with timer.phase("negatives" if pairs else "sample"):
                batch = self.schedule.global_batch(order, step)
                own = self._on_device(self.rank_batch(batch, key)) if pairs else self._whole_batch
            with timer.phase("load"):
                self.count("tier/h2d_bytes", own.examples.nbytes)
                if self._loaded is None:
                    self.count("tier/h2d_bytes", sum(block.nbytes() for block in set(self.resident)))
                if self._loaded is None or self.job.trained_rows is not None:
                    self._loaded = self.load()
            yield Whole(Batch(own.seeds, self.blocks, key, own.global_count), self._loaded, own=own)

    def count_computed(self, ready: Whole) -> None:
        """Nothing is sampled; a destination that is another rank's own is computed once more: redundantly."""
        blocks, cross_edges = ready.batch.blocks, self.cross_edges(ready)
        edges = [block.num_edges for block in blocks]
        self.count("edges_computed", sum(edges))
        self.count("edges_redundant", self.redundant_edges())
        self.count("vertices_computed", sum(block.num_dst for block in blocks))
        self._batches.setdefault("edges", []).append(edges)
        self._batches.setdefault("vertices", []).append([block.num_dst for block in blocks])
        if cross_edges:
            self.count("edges_cross", sum(cross_edges))
            self._batches.setdefault("cross_edges", []).append(list(cross_edges))

    def redundant_edges(self) -> int:
        """Edges of an epoch here into destinations that are other ranks' own."""
        return sum(block.num_edges - int(block.indptr[self.own.numel()]) for block in self.blocks)

    def end_epoch(self) -> EpochCounts:
        """What crossed into the device tier with chunks, and back, beside the rest."""
        found = super().end_epoch()
        counts = Counter(found.work)
        counts.update(self.job.tier.take_counts())
        return replace(found, work=dict(counts))

    def memory(self) -> dict[str, int]:
        """Topology is that of the blocks, not of the graph they were cut from."""
        held = super().memory()
        return {**held, "topology_bytes": sum(block.nbytes() for block in set(self.blocks))}


class WholeGraphTrainer(FullGraphTrainer, AutogradTrainer[Whole]):
    """Full-graph training that keeps what it computes until the backward pass: a paradigm says how its model runs."""


def check_full_graph(experiment: Experiment, name: str) -> list[Problem]:
    """Everything in one batch, with all neighbours, the same draws for every number of ranks."""
    sampler = experiment.sampler.options
    problems = [*whole_rows(experiment, name)]
    if not isinstance(sampler, FullSampler):
        problems.append(Problem("sampler", experiment.sampler.target, f"{name} trains on the full graph",
                                "choose sampler=full"))
    elif sampler.key != "global":
        problems.append(Problem("sampler.key", sampler.key, f"{name} trains one batch on all ranks",
                                "set sampler.key=global"))
    if experiment.train.batch_size is not None and not pairs(experiment):
        problems.append(Problem("train.batch_size", experiment.train.batch_size, f"{name} trains all targets in "
                                "one batch", "set train.batch_size=null"))
    if experiment.task.options.exclude_targets:
        problems.append(Problem("task.exclude_targets", True, f"{name} has one graph for all batches, whose "
                                "edges are the training links", "set task.exclude_targets=false"))
    return problems


def layer_by_layer(whole: Whole, num_layers: int, layer: Callable[[int, Rows, BatchKey], Tensor]) -> Tensor:
    """`[n, C]` outputs of the own vertices, where every layer exchanges rows in its middle.

    Args:
        whole: the batch.
        num_layers: L.
        layer: outputs `[n, d]` of a layer, of its index from 0, of the rows of the layer before, and of the key.
    """
    h = whole.features
    for index in range(num_layers):
        h = layer(index, h, whole.batch.key)
    assert isinstance(h, Tensor)
    return h
