"""Push-pull parallelism (P3, Gandhi & Iyer, OSDI 2021; "P3*" of GSplit, section 6): features are sliced by dimension.

Sample: each rank samples its micro-batch, and pushes the first layer's block to all ranks.

Load: each rank loads its dimensions of the input rows of every block.

Train: each rank runs its slice of the first layer for every block. The block's owner pulls the partial sums
(`columns/sliced_layer.py`). The end of the first layer and all other layers are data parallel.

It is exact for every contract layer, unless there is a delay d. Then the first layer of batch t runs, and is pulled,
while batch t - d trains (P3 pipelines this phase; weights are kept as in PipeDream, Narayanan et al., SOSP 2019).
With W_k, the first layer's parameters before the update of batch k of the epoch, and U_k, those of the other layers:

    z_t = layer 1 of batch t with W_max(0, t - d)        loss_t = loss(layers 2 ... L of z_t with U_t)
    W_(t + 1) = step(W_t, gradient of loss_t at W_max(0, t - d))        U_(t + 1) = step(U_t, gradient at U_t)

W has all parameters of layer 1: also bias, normalisation and attention vectors. The pipeline fills when an epoch
begins, and drains before it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
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
from gnnexp.paradigms.columns.delay import ahead_need, check_delay, delay_problems, most_ahead, pull_facts
from gnnexp.paradigms.columns.sliced_layer import Pull, SlicedLayer, StartedLayer
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.background import background_of
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
        ahead: with a delay, batches whose first layer starts in this step.
    """

    blocks: tuple[Block, ...]
    features: tuple[Rows, ...]
    ahead: tuple[Pushed, ...] = ()


@dataclass(frozen=True)
class PushPull(Paradigm):
    """The first layer is model parallel, all other layers are data parallel.

    Attributes:
        pull: what ranks sum: `projections`, `aggregates` or `auto`, see `SlicedLayer`.
        delay: d, steps by which the first layer runs ahead. 0: exact.
    """

    pull: Pull = "auto"
    delay: int = 0
    reads_narrow_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_delay(self.delay)

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts: needs sliced features, whole topology, and a first layer on the contract."""
        store, optimizer = experiment.feature_store, experiment.optimizer
        return [
            *hidden_link_problems(experiment),
            *sampling_thread_problems(experiment),
            *delay_problems(experiment, self.delay),
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
        drawn, others = drawn_from_graph(experiment, facts), approximated(experiment, "even")
        ahead = most_ahead(experiment, facts, self.delay)
        if not ahead:
            return Plan(num_parts, drawn, approximates=others)
        said = f"the first layer's weights miss up to {ahead} updates"
        needs = (ahead_need(experiment, facts, drawn, ahead),)
        return Plan(num_parts, drawn, approximates=f"{said}; {others}" if others else said, needs=needs)

    def trainer(self, job: Job) -> Trainer[Any]:
        """A trainer of micro-batches."""
        return DelayedTrainer(job, self.pull, self.delay) if self.delay else PushPullTrainer(job, self.pull)


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


class DelayedTrainer(PushPullTrainer):
    """The first layer of batch t + delay runs before batch t trains, and its sums are under way meanwhile.

    A run stops only at the end of an epoch: no first layer is under way there.
    """

    resumes_within_epoch = False

    def __init__(self, job: Job, pull: Pull, delay: int) -> None:
        super().__init__(job, pull)
        self._delay, self._started = delay, deque[StartedLayer]()
        aside = job.experiment.train.overlap and job.comm.size > 1
        self._background = background_of(job) if aside else None

    def batches(self, epoch: int, first: int = 0) -> Generator[Pushed, None, None]:
        """The batches of an epoch, each with those whose first layer starts in its step."""
        assert first == 0, "it does not resume within an epoch"
        waiting, ahead = deque[Pushed](), list[Pushed]()
        try:
            with closing(super().batches(epoch)) as source:
                for batch in source:
                    waiting.append(batch)
                    ahead.append(batch)
                    if len(waiting) > self._delay:
                        yield replace(waiting.popleft(), ahead=tuple(ahead))
                        ahead = []
            while waiting:
                yield replace(waiting.popleft(), ahead=tuple(ahead))
                ahead = []
        finally:
            while self._started:  # the loop took no more batches
                self._started.popleft().sums.wait()

    def forward(self, ready: Pushed) -> Tensor:
        """Start the first layers of later batches with the present weights. Run all other layers of this batch."""
        if ready.ahead:
            present = self.first.with_present_weights()
            for batch in ready.ahead:
                self._started.append(present.start(batch.blocks, batch.features, batch.batch.key, self._background))
        self._bring_drop_keys(ready)
        hidden = self._started.popleft().finish()
        return self.job.model(ready.batch, hidden, first=1)  # type: ignore[no-any-return]

    def _bring_drop_keys(self, ready: Pushed) -> None:
        """On a GPU, bring back the keys of this batch, for all ranks: masks are drawn after the pull, and backward."""
        if self.job.model.drop_keys is not None:
            for key in self.first.batch_keys(ready.batch.key):
                self.job.model.drop_keys.bring(key)

    def facts(self) -> Mapping[str, Any]:
        """Where first layers are pulled."""
        return {**super().facts(), **pull_facts(self.job, in_background=self._background is not None)}
