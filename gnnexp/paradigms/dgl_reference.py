"""The DGL reference: the same training, as a good DGL user writes it today.

DGL's NeighborSampler and DataLoader, DGL's convolutions, torch's DistributedDataParallel, the mean loss of each rank.
It starts from the same parameters as every other paradigm, and has the same evaluation. DDP reduces gradients while
backward runs. This time is part of `time/backward_s`, and is also reported as `time/comm_s`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from gnnexp.comm.communicator import Communicator
from gnnexp.components.facts import GraphFacts, Need
from gnnexp.components.locate import target_of
from gnnexp.components.options import rule_problems
from gnnexp.components.plan import Plan, Sizes
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.measure.ledger import Traffic, all_reduce_bytes
from gnnexp.measure.phases import Phase
from gnnexp.models.model import Model
from gnnexp.paradigms.base import Paradigm, drawn_from_graph
from gnnexp.paradigms.checks import (
    after_layer_problems,
    cpu_only_problems,
    decoder_problems,
    edge_weight_problems,
    link_problems,
    own_crossing_problems,
    plain_feature_problems,
    rounding_problems,
    uncountable_problems,
    whole_topology_problems,
)
from gnnexp.paradigms.dgl_layers import SUPPORTED, DGLStack, adds_self_loops, refusal_of
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.trainer import B, EpochCounts, Trainer
from gnnexp.tasks.base import Examples

os.environ.setdefault("DGLBACKEND", "pytorch")  # read by dgl when it is imported
import dgl

_DDP: frozenset[Phase] = frozenset(("sync", "wait"))
DGLBatch = tuple[Tensor, Tensor, list[Any], Tensor]


def dgl_problems(experiment: Experiment, name: str) -> list[Problem]:
    """Conflicts with DGL's scripts: links, decoders, models without a DGL convolution, partitioned data, GPUs."""
    why, refusal = "DGL's scripts for vertices are its peer", refusal_of(experiment.model)
    unsupported = [Problem("model", target_of(experiment.model), refusal.reason, SUPPORTED)] if refusal else []
    return [
        *link_problems(experiment, name, why),
        *decoder_problems(experiment, name, why),
        *unsupported,
        *after_layer_problems(experiment, name, "trains layers of DGL"),
        *plain_feature_problems(experiment, name),
        *whole_topology_problems(experiment, name),
        *cpu_only_problems(experiment, name),
        *own_crossing_problems(experiment, name),
        *rounding_problems(experiment, name),
        *uncountable_problems(experiment, f"{name} trains with DGL's own code"),
    ]


@dataclass(frozen=True)
class DGLReference(Paradigm):
    """Mini-batch training with DGL only.

    Attributes:
        num_workers: sampling processes of DGL's DataLoader on each rank; with 0 the training process samples.
        fused: whether to use DGL's fused sampling kernel (DGL's default).
    """

    num_workers: int = 0
    fused: bool = True

    def check(self, experiment: Experiment) -> list[Problem]:
        """Conflicts. DGL's loader samples, with the fanouts of the configured sampler."""
        sampler = experiment.sampler
        rules = rule_problems(
            (
                sampler.fanouts is not None,
                "sampler",
                target_of(sampler),
                "needs fanouts for DGL's NeighborSampler",
                "set sampler=fused, or system=dgl_full_graph for training without sampling",
            ),
            (
                not sampler.scales,
                "sampler",
                target_of(sampler),
                "rescales messages, and DGL's loader, which draws the neighbours, does not",
                "set sampler=fused",
            ),
            (self.num_workers >= 0, "paradigm.num_workers", self.num_workers, "must be 0 or more", "set it to 0"),
        )
        return rules + dgl_problems(experiment, "dgl_reference")

    def plan(self, experiment: Experiment, facts: GraphFacts, sizes: Sizes = None) -> Plan:
        """The plan, with memory for DGL's copies of graph and features. Checkpoints have the order of targets."""
        approximates = "each rank draws its own batches (DGL's sampler), and means of ranks are averaged (DDP)"
        return Plan(
            None,
            drawn_from_graph(experiment, facts),
            approximates=approximates,
            needs=dgl_needs(facts),
            checkpoint_bytes=8 * facts.num_train,
            problems=tuple(edge_weight_problems(facts, "dgl_reference")),
        )

    def trainer(self, job: Job) -> Trainer[Any]:
        """The trainer of DGL's script."""
        return DGLReferenceTrainer(job, self)


class DGLTrainer(Trainer[B]):
    """Base of the DGL trainers: DGL's graph, dense features, and a stack of DGL convolutions."""

    def __init__(self, job: Job) -> None:
        if refusal := refusal_of(job.model.options):
            raise ConfigError(Problem("model", target_of(job.model.options), refusal.reason, SUPPORTED))
        self.job = job
        self.graph = to_dgl(job.graph, adds_self_loops(job.model.options))
        self.features = dense_features(job)
        self.stack = DGLStack(job.model)

    @property
    def module(self) -> nn.Module:
        """The stack of DGL convolutions."""
        return self.stack

    def evaluation_model(self) -> Model:
        """The gnnexp model, with the parameters of the stack."""
        self.stack.store_to(self.job.model)
        return self.job.model

    def synchronize(self) -> None:
        """Do nothing: a single rank has no peers, and DDP reduces gradients during backward."""

    def clear_gradients(self) -> None:
        """Clear gradients, as `optimizer.zero_grad()` does."""
        self.stack.zero_grad(set_to_none=True)


class DGLReferenceTrainer(DGLTrainer[DGLBatch]):
    """Mini-batch training with DGL's loader and DDP."""

    def __init__(self, job: Job, options: DGLReference) -> None:
        super().__init__(job)
        self.runner: nn.Module = self.stack
        if job.comm.size > 1:
            self.runner = DistributedDataParallel(self.stack)
            # A lambda has no annotations. torch compares annotations with classes, and ours are strings.
            comm = job.comm  # a hook that refers to the trainer would keep its graph and features in memory
            self.runner.register_comm_hook(None, lambda _, bucket: _count_bucket(comm, bucket))
        # All trainers share one loader: each epoch shuffles the order of the last one, also after the memory probe.
        self.loader = job.once.of("loader", lambda: self._loader(options))
        self.work: Counter[str] = Counter()

    def _loader(self, options: DGLReference) -> Any:  # noqa: ANN401
        job = self.job
        fanouts = job.sampler.options.fanouts
        assert fanouts is not None
        sampler = dgl.dataloading.NeighborSampler(list(reversed(fanouts)), fused=options.fused)
        targets = job.task.targets()
        size = job.experiment.train.batch_size or targets.numel()
        train = job.experiment.train
        workers = options.num_workers if train.overlap else 0
        return dgl.dataloading.DataLoader(
            self.graph,
            targets,
            sampler,
            batch_size=max(1, size // job.comm.size),
            shuffle=train.shuffle,
            drop_last=False,
            use_ddp=job.comm.size > 1,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def batches(self, epoch: int, first: int = 0) -> Generator[DGLBatch, None, None]:
        """The batches of DGL's loader, with their features."""
        timer = self.job.timer
        seed = epoch_seed(self.job.experiment.seed, epoch, self.job.comm.rank)
        torch.manual_seed(seed)
        dgl.seed(seed)
        np.random.seed(seed)  # DGL's loader shuffles with numpy's global state
        with timer.phase("sample"):
            loader = islice(self.loader, self.job.experiment.train.steps_per_epoch)
        while True:
            with timer.phase("sample"):
                sampled = next(loader, None)
            if sampled is None:
                return
            inputs, targets, blocks = sampled
            with timer.phase("load"):
                rows = self.features[inputs]
            yield rows, targets, blocks, inputs

    def forward_backward(self, batch: DGLBatch) -> tuple[Tensor, int]:
        """Compute gradients of the rank's mean loss. DDP averages them over ranks while backward runs."""
        rows, targets, blocks, inputs = batch
        timer, count = self.job.timer, int(targets.numel())
        edges = sum(block.num_edges() for block in blocks)
        self.work["edges_sampled"] += edges
        self.work["edges_computed"] += edges
        self.work["vertices_computed"] += sum(block.num_dst_nodes() for block in blocks)
        self.work["features_loaded_host"] += int(inputs.numel())
        with timer.phase("forward"):
            logits = self.runner(blocks, rows)
            loss = self.job.task.loss_sum(logits, Examples(targets, count))
        with timer.phase("backward"):
            (loss / count).backward()  # type: ignore[no-untyped-call]
        return loss.detach(), count

    def end_epoch(self) -> EpochCounts:
        """The counts of this rank. DDP waits and reduces gradients during backward, so these phases have no times."""
        counts, together = dict(self.work), _DDP if self.job.comm.size > 1 else frozenset()
        self.work.clear()
        return EpochCounts(counts, untimed=together)

    @property
    def own_state(self) -> OrderOfTargets:
        """The order of this rank's targets: DGL's loader shuffles the order of the last epoch."""
        return OrderOfTargets(self.loader.dataset._indices)


@dataclass(frozen=True, eq=False)
class OrderOfTargets:
    """An order of targets that a loader shuffles in place.

    Attributes:
        order: `[n]` targets.
    """

    order: Tensor

    def state_dict(self) -> dict[str, Any]:
        """A copy of the order."""
        return {"order": self.order.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the order."""
        self.order.copy_(state["order"])


def _count_bucket(comm: Communicator, bucket: Any) -> Any:  # noqa: ANN401
    """Run DDP's own all-reduce of one bucket of gradients, and count it."""
    buffer = bucket.buffer()
    num_bytes = buffer.numel() * buffer.element_size()
    comm.ledger.add({"gradients": Traffic(all_reduce_bytes(num_bytes, comm.rank, comm.size), 1)})
    start = time.perf_counter()
    future = allreduce_hook(None, bucket)  # type: ignore[arg-type]

    def finish(done: Any) -> Any:  # noqa: ANN401
        comm.ledger.add({"gradients": Traffic(seconds=time.perf_counter() - start)})
        return done.value()

    return future.then(finish)


def epoch_seed(seed: int, epoch: int, rank: int) -> int:
    """A seed of 31 bits (DGL takes a C int) for libraries with global state. So epochs are independent."""
    return stream(seed, Purpose.SHUFFLE, epoch, rank) & 0x7FFFFFFF


def dgl_needs(facts: GraphFacts) -> tuple[Need, ...]:
    """Memory of DGL's graph (COO and CSC, int64), dense float32 rows, and the library.

    Measured on the dataset digits: 505 to 516 MB instead of 466 MB."""
    return (
        Need("DGL's own graph (int64, COO and CSC)", "host", 8 * (4 * facts.num_edges + facts.num_nodes)),
        Need("features as a DGL script holds them", "host", 4 * facts.num_nodes * facts.num_features),
        Need("DGL's library", "host", 50_000_000),
    )


def to_dgl(graph: Graph, self_loops: bool) -> Any:  # noqa: ANN401
    """A DGL graph: int64, as DGL's fused sampler corrupts int32 graphs; from COO, as CSC breaks edge softmax."""
    made = dgl.graph((graph.indices.long(), graph.destinations().long()), num_nodes=graph.num_nodes)
    if self_loops:
        made = dgl.add_self_loop(made)
    return made


def dense_features(job: Job) -> Tensor:
    """`[V, D]` dense features, as a DGL script holds them."""
    features = job.graph.features
    if features is None:
        raise ConfigError(Problem("dataset", job.graph.name, "has no vertex features", "choose another dataset"))
    dense = features.to_dense() if isinstance(features, SparseRows) else features
    return dense.to(job.dtype)
