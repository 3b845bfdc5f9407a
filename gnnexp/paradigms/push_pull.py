"""Push-pull parallelism (P3, Gandhi & Iyer, OSDI 2021; "P3*" of GSplit, section 6): features are sliced by dimension.

Sample: each rank samples its micro-batch, and pushes the first layer's block to all ranks.

Load: each rank loads its dimensions of the input rows of every block.

Train: each rank runs its slice of the first layer for every block. The block's owner pulls the partial sums
(`columns/sliced_layer.py`). The end of the first layer and all other layers are data parallel.

It is exact for every contract layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from gnnexp.components.facts import GraphFacts
from gnnexp.components.locate import target_of
from gnnexp.components.options import rule_problems
from gnnexp.components.plan import Plan, Sizes
from gnnexp.errors import Problem, Refusal
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.optimization import is_elementwise
from gnnexp.feature_stores.embedding import SlicedEmbeddingStore
from gnnexp.feature_stores.sliced import SlicedStore, slice_bounds
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.packing import pack_block, unpack_block
from gnnexp.graph.sparse import Rows
from gnnexp.kernels.crossing import back
from gnnexp.models.model import Model
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import (
    has_block_layers,
    hidden_link_problems,
    refuses_hidden_links,
    sampling_thread_problems,
)
from gnnexp.paradigms.columns.sliced_layer import Pull, SlicedLayer
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.global_batch import Ready
from gnnexp.paradigms.loops.mini_batch import MiniBatchTrainer, approximated
from gnnexp.paradigms.loops.rank_batch import RankBatch
from gnnexp.paradigms.loops.shares import Shares
from gnnexp.paradigms.trainer import Trainer


@dataclass(frozen=True, eq=False)
class Pushed(Ready):
    """What a rank trains in one step: its own micro-batch, and the first layer of every other.

    Attributes:
        blocks: the first layer's block of every rank's micro-batch, on the device.
        features: `[S, d]` for each block: this rank's dimensions of its input rows.
    """

    blocks: tuple[Block, ...]
    features: tuple[Rows, ...]


@dataclass(frozen=True)
class PushPull(Paradigm):
    """The first layer is model parallel, all other layers are data parallel.

    Attributes:
        pull: what ranks sum: `projections`, `aggregates` or `auto`, see `SlicedLayer`.
    """

    pull: Pull = "auto"
    reads_narrow_rows: ClassVar[bool] = True

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts: needs sliced features, whole topology, and a first layer on the contract."""
        store, optimizer = experiment.feature_store, experiment.optimizer
        return [
            *hidden_link_problems(experiment),
            *sampling_thread_problems(experiment),
            *rule_problems(
                (
                    store.slices,
                    "feature_store",
                    target_of(store),
                    "push_pull reads slices of rows",
                    "choose feature_store=sliced, or embedding_sliced",
                ),
                (
                    experiment.sampler.topology != "partitioned",
                    "sampler.topology",
                    "partitioned",
                    "push_pull samples micro-batches on every rank",
                    "set sampler.topology=replicated",
                ),
                (
                    is_elementwise(optimizer),
                    "optimizer",
                    optimizer.target,
                    "is not known to step every element by itself, and each rank steps a slice of the first layer",
                    "choose optimizer=adam, adamw, sgd or rmsprop",
                ),
                (
                    not has_block_layers(experiment),
                    "model",
                    target_of(experiment.model),
                    "its layers need whole rows, which no rank has: push_pull runs layers on the contract",
                    "choose model=sage, gcn, gat or gin",
                ),
            ),
        ]

    def refuses_gpu_sampling(self, experiment: Experiment) -> Refusal | None:
        """Micro-batches may be made on GPUs. The first block is copied to the host, where ranks exchange it."""
        return refuses_hidden_links(experiment)

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan. Only the feature store may need a partition."""
        num_parts = experiment.num_ranks if self.wants_partition(experiment) else None
        return Plan(num_parts, drawn_from_graph(experiment, facts), approximates=approximated(experiment, "even"))

    def trainer(self, job: Job) -> Trainer[Any]:
        """A trainer of micro-batches."""
        return PushPullTrainer(job, self.pull)


class PushPullTrainer(MiniBatchTrainer[Batch, Pushed]):
    """Trains a rank's micro-batches, and its columns of the first layer for all ranks. It keeps only those weights."""

    def __init__(self, job: Job, pull: Pull) -> None:
        super().__init__(job, Shares(job, "even"), "sampling")
        assert isinstance(job.store, SlicedStore | SlicedEmbeddingStore)
        dims = job.store.dims
        self.first = job.once.of("sliced layer", lambda: SlicedLayer(job.model, dims, job.comm, pull))
        self.make_gradients(self.first.sliced)  # every rank's batch goes through the slice

    def sample(self, own: RankBatch, key: BatchKey) -> Batch:
        """Sample a micro-batch."""
        return own.seen(self.job.sampler.sample(own.seeds, key, own.global_count))

    def load(self, sampled: Batch) -> Pushed:
        """Push the first block to all ranks. Load this rank's dimensions of the rows of all blocks."""
        job, own = self.job, sampled
        with job.timer.phase("sample"):
            blocks = self._pushed(own.blocks[0])
        features = tuple(job.store.read(own.input_ids if block is own.blocks[0] else block.src_ids) for block in blocks)
        others = [block for rank, block in enumerate(blocks) if rank != job.comm.rank]
        batch = self.to_device(own, features[job.comm.rank], sum(block.nbytes() for block in others))
        return Pushed(
            batch,
            tuple(batch.blocks[0] if block is own.blocks[0] else block.to(job.device) for block in blocks),
            features,
        )

    def _pushed(self, first: Block) -> tuple[Block, ...]:
        """The first block of every rank's micro-batch. All ranks call this."""
        comm = self.job.batch_comm
        sizes, packet = pack_block(first)
        (packet,) = back(packet)
        everyone = comm.swap(sizes.repeat(comm.size, 1))
        packets = comm.all_gather(packet, [int(n) for n in everyone.sum(1)], "topology")
        return tuple(
            first if rank == comm.rank else unpack_block(packets[rank], row, first) for rank, row in enumerate(everyone)
        )

    def forward(self, ready: Pushed) -> Tensor:
        """Pull sums of the first layer, then run data parallel. Ranks without targets take part."""
        hidden = self.first.run(ready.blocks, ready.features, ready.batch.key)
        return self.job.model(ready.batch, hidden, first=1)  # type: ignore[no-any-return]

    def evaluation_model(self) -> Model:
        """A model with whole weights, gathered from all ranks."""
        job, model, first = self.job, self.job.model, self.first.layer
        whole = job.experiment.model.make()
        whole.setup(
            model.in_dim,
            model.num_classes,
            first.facts,
            seed=job.experiment.seed,
            dtype=job.dtype,
            device=job.device,
            matmul=job.matmul,
        )
        bounds = slice_bounds(model.in_dim, job.comm.size)
        widths = [stop - start for start, stop in pairwise(bounds)]
        with torch.no_grad():
            for (name, target), source in zip(whole.named_parameters(), model.layers.parameters(), strict=True):
                index, _, parameter = name.removeprefix("layers.").partition(".")
                if index == "0" and parameter in first.traits.input_weights:
                    parts = job.comm.all_gather(source.detach().movedim(-1, 0), widths, "evaluation")
                    target.copy_(torch.cat(parts).movedim(0, -1))
                else:
                    target.copy_(source)
        return whole
