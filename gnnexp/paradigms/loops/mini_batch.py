"""What paradigms that train global mini-batches share: targets, draws, and preparation ahead.

One global batch per iteration, the same for any number of ranks. A paradigm says who has which of its targets
(`targets_of`), who computes the vertices that their loss reads (`rank_batch`), how these are sampled (`sample`), what
is loaded for them (`load`) and how its model runs (`forward`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Generic, TypeVar

from torch import Tensor

from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.paradigms.loops.global_batch import AutogradTrainer, Ready
from gnnexp.paradigms.loops.pipeline import prepared
from gnnexp.paradigms.loops.rank_batch import RankBatch
from gnnexp.paradigms.loops.targets import Assign, StratifiedSchedule, targets_of_rank
from gnnexp.placement.exclude import Excluded, excluded

S = TypeVar("S")
R = TypeVar("R", bound=Ready)


class MiniBatchTrainer(AutogradTrainer[R], Generic[S, R]):
    """Training by global mini-batches; `S` is what sampling gives, `R` what loading makes of it.

    Exact: what a rank has of a batch may be uneven or empty; with `sampler.key=global` the draws are those of a single
    worker.

    Args:
        job: of the rank.
        assign: who trains which targets of a global batch: `even` shares; the `owner` of each target; `stratified` (the
            published systems' habit: every owner draws from its own targets, so a batch is no uniform sample of all).
    """

    resumes_within_epoch = True  # batches are a pure function of (seed, epoch, step)

    def __init__(self, job: Job, assign: Assign) -> None:
        super().__init__(job)
        self.assign = assign
        self._crossed: tuple[Block, ...] | None = None

    # --- what a paradigm says --------------------------------------------------------------------------------------
    @abstractmethod
    def sample(self, own: RankBatch, key: BatchKey) -> S:
        """What this rank needs to compute its seeds of a global batch; may communicate."""

    @abstractmethod
    def load(self, sampled: S) -> R:
        """With its features, on the device; may communicate."""

    @property
    def drawing_unit(self) -> int:
        """Ranks of the same unit draw alike with `sampler.key=micro`; by default every rank for itself."""
        return self.job.comm.rank

    def targets_of(self, epoch: int) -> Callable[[int], tuple[Tensor, Tensor]]:
        """For a step: this rank's targets, and those of the global batch."""
        comm, shard = self.job.comm, self.job.shard
        if self.assign == "stratified":
            strata = StratifiedSchedule(self.schedule, shard.owner, shard.num_parts)
            orders = strata.orders(epoch)
            return lambda step: strata.batch(orders, step, shard.part)
        order = self.schedule.order(epoch)

        def of_step(step: int) -> tuple[Tensor, Tensor]:
            batch = self.schedule.global_batch(order, step)
            if self.assign == "owner":
                return batch[shard.owner[self.job.task.homes(batch)] == shard.part], batch
            return targets_of_rank(batch, comm.rank, comm.size), batch

        return of_step

    def rank_batch(self, targets: Tensor, batch: Tensor, key: BatchKey) -> RankBatch:
        """What the loss of this rank's `targets` of a global `batch` reads; by default it computes that itself."""
        examples = self.job.task.examples(targets, batch, key)
        return RankBatch(examples, batch.numel(), examples.vertices)

    def _hidden(self, batch: Tensor) -> Excluded | None:
        task = self.job.task
        links = task.hidden_links(batch)
        return None if links is None else excluded(links, task.num_relations, self.job.graph.num_relations)

    # --- the iteration ---------------------------------------------------------------------------------------------
    def batches(self, epoch: int, first: int = 0) -> Generator[R, None, None]:
        """This rank's part of every global batch, sampled and loaded."""
        timer, sampler, seed = self.job.timer, self.job.sampler, self.job.experiment.seed
        with timer.phase("sample"):
            targets_of = self.targets_of(epoch)
        micro = self.drawing_unit if sampler.key == "micro" else -1

        def prepare(step: int) -> R:
            key = BatchKey(seed, epoch, step, micro)
            with timer.phase("sample"):
                targets, batch = targets_of(step)
            with timer.phase("negatives" if self.job.task.pairs else "sample"):
                own = replace(self.rank_batch(targets, batch, replace(key, micro=-1)), hidden=self._hidden(batch))
            with timer.phase("sample"):
                sampled = self.sample(own, key)
            with timer.phase("load"):
                self.count("tier/h2d_bytes", own.examples.nbytes)
                ready = self.load(sampled)
                return replace(ready, own=own.to(self.job.device, ready.batch))

        return (yield from prepared(self.job, range(first, self.schedule.num_steps), prepare, self.work))

    def to_device(self, batch: Batch, features: Rows | None, beside: int = 0) -> Batch:
        """Blocks cross to the device tier (the store counts its rows); counted on CPU as an emulated crossing.

        Args:
            batch: on the host.
            features: None where nothing is trained: then nothing crosses.
            beside: bytes of what crosses with them.
        """
        if features is not None and self._crossed is not batch.blocks:
            if self.schedule.num_batches == 1:
                self._crossed = batch.blocks
            self.count("tier/h2d_bytes", beside + sum(block.nbytes() for block in batch.blocks))
        return batch.to(self.job.device)


def approximated(experiment: Experiment, assign: Assign) -> str:
    """What training by mini-batches approximates of serial training; empty if it is exact."""
    if experiment.num_ranks > 1 and experiment.model.options.degrees_of == "block":
        return "degrees are those of each rank's own block"
    return "batches are drawn part by part, not uniformly from all targets" if assign == "stratified" else ""
