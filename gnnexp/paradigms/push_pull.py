"""Push-pull parallelism (P3, Gandhi & Iyer, OSDI 2021; "P3*" of GSplit, section 6): features are sliced by dimension.

    sample   each rank its micro-batch, then the first layer's block is pushed to all ranks
    load     each rank its dimensions of the input rows of every block
    train    first layer: each rank its slice for every block; partial sums are pulled by the block's owner (the push of
             the paper is the block, the pull the sums, `columns/sliced_layer.py`); the layer's end, and all other
             layers, data parallel

Exact for every layer on the contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.optimization import is_elementwise
from gnnexp.experiment.plan import GraphFacts, Plan, Sizes
from gnnexp.feature_stores.embedding import SlicedEmbeddingStore
from gnnexp.feature_stores.sliced import SlicedStore, slice_bounds
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.packing import pack_block, unpack_block
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.models.model import Model
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import block_layers, hidden_links, one_thread_where_batches_communicate
from gnnexp.paradigms.columns.sliced_layer import Pull, SlicedLayer
from gnnexp.paradigms.loops.global_batch import Ready
from gnnexp.paradigms.loops.gradients import FlatGradients, Trained
from gnnexp.paradigms.loops.mini_batch import MiniBatchTrainer, approximated
from gnnexp.paradigms.loops.rank_batch import RankBatch
from gnnexp.paradigms.trainer import Trainer


@dataclass(frozen=True, eq=False)
class Sampled:
    """A rank's micro-batch, and the first layer's block of every rank's."""

    batch: Batch
    blocks: tuple[Block, ...]


@dataclass(frozen=True, eq=False)
class Pushed(Ready):
    """What a rank trains in one step: its own micro-batch, and of every other the first layer.

    Attributes:
        blocks: the first layer's block of every rank's micro-batch, on the device.
        features: this rank's dimensions of their input rows.
    """

    blocks: tuple[Block, ...]
    features: tuple[Rows, ...]


@dataclass(frozen=True)
class PushPull(Paradigm):
    """Model parallel in the first layer, data parallel above.

    Attributes:
        pull: see `SlicedLayer`.
    """

    pull: Pull = "auto"

    def check(self, experiment: Experiment) -> list[Problem]:
        """Sliced features, whole blocks, a first layer on the contract."""
        problems = [*hidden_links(experiment), *one_thread_where_batches_communicate(experiment, always=True)]
        if not experiment.feature_store.options.slices:
            problems.append(Problem("feature_store", experiment.feature_store.target, "push_pull reads slices of rows",
                                    "choose feature_store=sliced, or embedding_sliced"))
        if experiment.sampler.options.topology == "partitioned":
            problems.append(Problem("sampler.topology", "partitioned", "push_pull samples micro-batches on every rank",
                                    "set sampler.topology=replicated"))
        if not is_elementwise(experiment.optimizer):
            problems.append(Problem("optimizer", experiment.optimizer.target, "is not known to step every element by "
                                    "itself, and each rank steps a slice of the first layer",
                                    "choose optimizer=adam, adamw, sgd or rmsprop"))
        if block_layers(experiment):
            problems.append(Problem("model", experiment.model.target, "its layers need whole rows, which no rank "
                                    "has: push_pull runs layers on the contract", "choose model=sage, gcn, gat or gin"))
        return problems

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """Nothing is placed by owner, but what the store wants."""
        num_parts = experiment.num_ranks if self.wants_partition(experiment) else None
        return Plan(num_parts, drawn_from_graph(experiment, facts), approximates=approximated(experiment, "even"))

    def trainer(self, job: Job) -> Trainer[Any]:
        """By mini-batches."""
        return PushPullTrainer(job, self.pull)


class PushPullTrainer(MiniBatchTrainer[Sampled, Pushed]):
    """A rank's micro-batches, and its columns of everybody's; of the first layer's input weights it keeps these."""

    def __init__(self, job: Job, pull: Pull) -> None:
        super().__init__(job, "even")
        assert isinstance(job.store, SlicedStore | SlicedEmbeddingStore)
        dims = job.store.dims
        self.first = job.once.of("sliced layer", lambda: SlicedLayer(job.model, dims, job.comm, pull))
        # The slice's gradients are complete here: every rank's batch went through it. No all-reduce.
        self.sliced = FlatGradients(self.first.sliced, None, job.dtype, job.device)
        own = {id(p) for p in self.first.sliced}
        whole = (p for p in job.model.parameters() if id(p) not in own)
        self.gradients = FlatGradients(whole, job.comm, job.dtype, job.device)

    @property
    def trained(self) -> tuple[Trained, ...]:
        """The slice, too."""
        return (*super().trained, self.sliced)

    def memory(self) -> dict[str, int]:
        """The slice's gradients are held once: no all-reduce works on them."""
        held, flat = super().memory(), self.sliced.flat
        return {**held, "buffers_bytes": held["buffers_bytes"] + flat.numel() * flat.element_size()}

    def sample(self, own: RankBatch, key: BatchKey) -> Sampled:
        """The push: every first block goes to every rank."""
        comm = self.job.batch_comm
        batch = own.seen(self.job.sampler.sample(own.seeds, key, own.global_count))
        first = batch.blocks[0]
        sizes, packet = pack_block(first)
        everyone = comm.swap(sizes.repeat(comm.size, 1))
        packets = comm.all_gather(packet, [int(n) for n in everyone.sum(1)], "topology")
        return Sampled(batch, tuple(first if rank == comm.rank else unpack_block(packets[rank], row, first)
                                    for rank, row in enumerate(everyone)))

    def load(self, sampled: Sampled) -> Pushed:
        """This rank's dimensions of the rows of all blocks."""
        job = self.job
        features = tuple(job.store.read(block.src_ids) for block in sampled.blocks)
        others = [block for rank, block in enumerate(sampled.blocks) if rank != job.comm.rank]
        batch = self.to_device(sampled.batch, features[job.comm.rank], sum(block.nbytes() for block in others))
        return Pushed(batch, tuple(batch.blocks[0] if block is sampled.batch.blocks[0] else block.to(job.device)
                                   for block in sampled.blocks), features)

    def forward(self, ready: Pushed) -> Tensor:
        """The pull, then data parallel; every rank takes part, with or without targets."""
        hidden = self.first.run(ready.blocks, ready.features, ready.batch.key)
        return self.job.model(ready.batch, hidden, first=1)  # type: ignore[no-any-return]

    def evaluation_model(self) -> Model:
        """A model with whole weights, gathered from all ranks."""
        job, model, first = self.job, self.job.model, self.first.layer
        whole = job.experiment.model.make()
        assert first.facts is not None
        whole.setup(model.in_dim, model.num_classes, first.facts, seed=job.experiment.seed, dtype=job.dtype,
                    device=job.device)
        bounds = slice_bounds(model.in_dim, job.comm.size)
        widths = [stop - start for start, stop in pairwise(bounds)]
        with torch.no_grad():
            for (name, target), source in zip(whole.named_parameters(), model.layers.parameters(), strict=True):
                index, _, parameter = name.removeprefix("layers.").partition(".")
                if index == "0" and parameter in first.input_weights:
                    parts = job.comm.all_gather(source.detach().movedim(-1, 0), widths, "evaluation")
                    target.copy_(torch.cat(parts).movedim(0, -1))
                else:
                    target.copy_(source)
        return whole
