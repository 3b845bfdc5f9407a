"""A part during its training: topology in memory, mapped features, and its own sampler, store and targets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from gnnexp.feature_stores.base import FeatureStore
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.parts import Part, in_memory
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows
from gnnexp.kernels.pool import Pool
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.targets import TargetSchedule
from gnnexp.samplers.base import Sampler


@dataclass(frozen=True, eq=False)
class ActivePart:
    """A part that is being trained.

    Attributes:
        number: number of the part.
        part: the part, with its topology in memory.
        sampler: sampler of its topology.
        store: store of its features.
        schedule: schedule of its training vertices, by local ids.
    """

    number: int
    part: Part
    sampler: Sampler
    store: FeatureStore
    schedule: TargetSchedule

    @property
    def nbytes(self) -> int:
        """Bytes of the topology and of the original ids, which `load_part` reads into memory."""
        names = self.part.names
        return self.part.graph.topology_bytes + names.numel() * names.element_size()

    def sample(self, order: Tensor, key: BatchKey) -> Batch:
        """Batch number `key.step`. `order` is the epoch's order of targets, as local ids."""
        targets = self.schedule.global_batch(order, key.step)
        micro = self.number if self.sampler.options.key == "micro" else -1
        return self.sampler.sample(targets, replace(key, micro=micro), int(targets.numel()))

    def read(self, batch: Batch) -> Rows:
        """Features of the batch's input vertices."""
        return self.store.read(batch.input_ids)

    def renamed(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        """The blocks with original ids in place of local ids. Original ids decide dropout masks, degrees and labels."""
        names = self.part.names
        return tuple(replace(block, src_ids=names[block.src_ids.long()]) for block in blocks)


def load_part(job: Job, number: int, batch_size: int | None, pool: Pool) -> ActivePart:
    """Load part `number`.

    Args:
        job: job of the rank.
        number: number of the part.
        batch_size: number of targets of a batch; None: all in one.
        pool: memory of batches. All parts use it, because fresh pages are costly.
    """
    assert job.parts is not None
    part = in_memory(job.parts.open(number))
    shard = Shard(part.graph, needs=job.model.options.needs, names=part.names)
    sampler, store = job.experiment.sampler.make(), job.experiment.feature_store.make()
    sampler.pool = pool
    sampler.setup(shard, job.model.num_layers)
    store.setup(shard, job.dtype, job.device, job.batch_comm, pool=pool, link=job.tier.link)
    train = job.experiment.train
    schedule = TargetSchedule(
        part.graph.splits.train, batch_size, job.experiment.seed, train.shuffle, train.steps_per_epoch
    )
    return ActivePart(number, part, sampler, store, schedule)
