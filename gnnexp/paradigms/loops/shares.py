"""Shares of a global batch: which targets a rank trains, and who computes what their loss reads."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from gnnexp.graph.block import BatchKey
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.rank_batch import RankBatch, from_owners
from gnnexp.paradigms.loops.targets import Assign, StratifiedSchedule, TargetSchedule, targets_of_rank

# Takes a step. Returns targets of this rank, and targets of the global batch.
TargetsOf = Callable[[int], tuple[Tensor, Tensor]]


def targets_schedule(job: Job) -> TargetSchedule:
    """The order of the run's targets in every epoch."""
    train = job.experiment.train
    return TargetSchedule(
        job.task.targets(), train.batch_size, job.experiment.seed, train.shuffle, train.steps_per_epoch
    )


class Shares:
    """Every rank trains its own share of the targets, and computes all that their loss reads.

    Args:
        job: job of the rank.
        assign: which rank trains which targets of a global batch: `even` shares, or the `owner` of each target. With
            `stratified`, as in the published systems, every owner draws from its own targets. Then a batch is not a
            uniform sample of all targets.
    """

    def __init__(self, job: Job, assign: Assign) -> None:
        self.job, self.assign = job, assign

    @property
    def drawing_unit(self) -> int:
        """Number of the unit of ranks that draw the same neighbours with `sampler.key=micro`: each rank."""
        return self.job.comm.rank

    def targets_of(self, schedule: TargetSchedule, epoch: int) -> TargetsOf:
        """A function of the step: targets of this rank, and targets of the global batch."""
        shard = self.job.shard
        if self.assign == "stratified":
            strata = StratifiedSchedule(schedule, shard.owner, shard.num_parts)
            orders = strata.orders(epoch)
            return lambda step: strata.batch(orders, step, shard.part)
        order = schedule.order(epoch)

        def of_step(step: int) -> tuple[Tensor, Tensor]:
            batch = schedule.global_batch(order, step)
            return self.own_targets(batch), batch

        return of_step

    def own_targets(self, batch: Tensor) -> Tensor:
        """Targets of this rank in a global batch."""
        comm, shard = self.job.comm, self.job.shard
        if self.assign == "owner":
            return batch[shard.owner[self.job.task.homes(batch)] == shard.part]
        return targets_of_rank(batch, comm.rank, comm.size)

    def rank_batch(self, targets: Tensor, batch: Tensor, key: BatchKey) -> RankBatch:
        """What the loss of this rank's `targets` of a global `batch` reads: this rank computes all of it."""
        examples = self.job.task.examples(targets, batch, key)
        return RankBatch(examples, batch.numel(), examples.vertices)


class GroupShares(Shares):
    """Each group of ranks trains a share together: a rank has the targets that it owns, or some of the links.

    Args:
        job: job of the rank. The group has as many ranks as the partition has parts.
        assign: `owner`, or `stratified` if all ranks are one group.
    """

    @property
    def drawing_unit(self) -> int:
        """Number of the group: its ranks draw the same neighbours."""
        return self.job.comm.rank // self.job.shard.num_parts

    def own_targets(self, batch: Tensor) -> Tensor:
        """Targets of this rank in its group's share of a global batch."""
        comm, shard = self.job.comm, self.job.shard
        size = shard.num_parts
        ours = targets_of_rank(batch, comm.rank // size, comm.size // size)
        return targets_of_rank(ours, comm.rank % size, size) if self.job.task.options.pairs else shard.owned_of(ours)

    def rank_batch(self, targets: Tensor, batch: Tensor, key: BatchKey) -> RankBatch:
        """What the loss reads. Owners compute the ends of links."""
        if not self.job.task.options.pairs:
            return super().rank_batch(targets, batch, key)
        examples = self.job.task.examples(targets, batch, key)
        return from_owners(examples, batch.numel(), self.job.shard.owner, self.job.batch_comm)
