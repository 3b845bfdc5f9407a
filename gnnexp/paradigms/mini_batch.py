"""What paradigms that train global mini-batches share: targets, draws, preparation ahead, loss, gradients, counts.

One global batch per iteration, the same for any number of ranks. A paradigm says who has which of its targets
(`targets_of`), how they are sampled (`sample`), what is loaded for them (`load`) and how its model runs (`forward`).
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from gnnexp.errors import ConfigError
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.sparse import Rows
from gnnexp.job import Job
from gnnexp.models.model import Model
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.gradients import FlatGradients, assert_same_parameters
from gnnexp.paradigms.pipeline import prepared
from gnnexp.paradigms.targets import Assign, StratifiedSchedule, TargetSchedule, check_assign, share


@dataclass(frozen=True, eq=False)
class Ready:
    """A batch that a rank can train.

    Attributes:
        batch: its blocks and targets, on the device.
    """

    batch: Batch


S = TypeVar("S")
R = TypeVar("R", bound=Ready)


class MiniBatch(Paradigm[R], Generic[S, R]):
    """Training by global mini-batches; `S` is what sampling gives, `R` what loading makes of it.

    Exact: the loss is the global sum over the global count (never a mean of means), so what a rank has of a batch may
    be uneven or empty; with `sampler.key=global` the draws are those of a single worker.

    Args:
        assign: who trains which targets of a global batch: `even` shares; the `owner` of each target; `stratified` (the
            published systems' habit: every owner draws from its own targets, so a batch is no uniform sample of all).
    """

    resumes_within_epoch = True  # batches are a pure function of (seed, epoch, step)

    def __init__(self, assign: Assign) -> None:
        if problems := check_assign(assign):
            raise ConfigError(problems)
        self.assign = assign
        self.exact = assign != "stratified"
        self.approximates = "" if self.exact else "batches are drawn part by part, not uniformly from all targets"

    # --- what a paradigm says --------------------------------------------------------------------------------------
    @abstractmethod
    def sample(self, targets: Tensor, key: BatchKey, global_count: int) -> S:
        """This rank's part of a global batch of `global_count` targets, from its `targets`; may communicate."""

    @abstractmethod
    def load(self, sampled: S) -> R:
        """With its features, on the device; may communicate."""

    @abstractmethod
    def forward(self, ready: R) -> Tensor | None:
        """`[n, classes]` outputs of this rank's targets; None where a rank without targets has nothing to do."""

    @property
    def drawing_unit(self) -> int:
        """Ranks of the same unit draw alike with `sampler.key=micro`; by default every rank for itself."""
        return self.job.comm.rank

    def targets_of(self, epoch: int) -> Callable[[int], tuple[Tensor, int]]:
        """For a step: this rank's targets, and the number of targets of the global batch."""
        comm, shard = self.job.comm, self.job.shard
        if self.assign == "stratified":
            strata = StratifiedSchedule(self.schedule, shard.owner, shard.num_parts)
            orders = strata.orders(epoch)
            return lambda step: strata.batch(orders, step, shard.part)
        order = self.schedule.order(epoch)

        def of_step(step: int) -> tuple[Tensor, int]:
            targets = self.schedule.global_batch(order, step)
            own = shard.owned_of(targets) if self.assign == "owner" else share(targets, comm.rank, comm.size)
            return own, int(targets.numel())

        return of_step

    # --- the iteration ---------------------------------------------------------------------------------------------
    def setup(self, job: Job) -> None:
        """Take the parts; all ranks start from the same parameters."""
        self.job = job
        self.schedule = TargetSchedule(
            job.task.targets(), job.run.train.batch_size, job.run.seed, job.run.train.shuffle
        )
        if job.comm.size > 1 and job.config["model"].get("degrees") == "block":
            self.exact, self.approximates = False, "degrees are those of each rank's own block"
        assert_same_parameters(job.model, job.comm)
        self.gradients = FlatGradients(job.model.parameters())
        self.work: Counter[str] = Counter()
        self._batches: dict[str, list[list[int]]] = {}
        self._lock = threading.Lock()
        self._crossed: tuple[Block, ...] | None = None

    @property
    def module(self) -> nn.Module:
        """The model."""
        return self.job.model

    def evaluation_model(self) -> Model:
        """The model: replicated, so already here."""
        return self.job.model

    def batches(self, epoch: int, first: int = 0) -> Generator[R, None, None]:
        """This rank's part of every global batch, sampled and loaded."""
        timer, sampler, seed = self.job.timer, self.job.sampler, self.job.run.seed
        with timer.phase("sample"):
            targets_of = self.targets_of(epoch)
        micro = self.drawing_unit if sampler.key == "micro" else -1

        def prepare(step: int) -> R:
            with timer.phase("sample"):
                targets, global_count = targets_of(step)
                sampled = self.sample(targets, BatchKey(seed, epoch, step, micro), global_count)
            with timer.phase("load"):
                return self.load(sampled)

        return (yield from prepared(self.job, range(first, self.schedule.num_steps), prepare))

    def forward_backward(self, batch: R) -> tuple[Tensor, int]:
        """Gradients of this rank's part of the global mean loss."""
        job, sampled = self.job, batch.batch
        with job.timer.phase("forward"):
            self.count_computed(batch)
            logits = self.forward(batch)
            if logits is None:
                return torch.zeros((), dtype=job.dtype), 0
            loss = job.task.loss_sum(logits, sampled.targets)
        with job.timer.phase("backward"):
            (loss / max(1, sampled.global_count)).backward()  # type: ignore[no-untyped-call]
        return loss.detach(), int(sampled.targets.numel())

    def synchronize(self) -> None:
        """One all-reduce of all gradients."""
        with self.job.timer.phase("sync"):
            self.gradients.all_reduce(self.job.comm)

    def clear_gradients(self) -> None:
        """Zero the flat buffer."""
        self.gradients.clear()

    def to_device(self, batch: Batch, features: Rows | None, beside: int = 0) -> Batch:
        """Blocks cross to the device tier (the store counts its rows); counted on CPU as an emulated crossing.

        Args:
            batch: on the host.
            features: None where nothing is trained: then nothing crosses.
            beside: bytes of what crosses with them.
        """
        if features is not None and self._crossed is not batch.blocks:
            if self.schedule.num_steps == 1:
                self._crossed = batch.blocks
            self.count("tier/h2d_bytes", beside + sum(block.nbytes() for block in batch.blocks))
        return batch.to(self.job.device)

    def forget_batches(self) -> None:
        """What crossed before crosses again."""
        self._crossed = None

    # --- counts ----------------------------------------------------------------------------------------------------
    def end_epoch(self) -> dict[str, int]:
        """Counters of this rank."""
        counts = Counter(self.work)
        counts.update(self.job.store.take_counts())
        self.work.clear()
        return dict(counts)

    def batch_counts(self) -> dict[str, list[list[int]]]:
        """Edges of every batch by layer."""
        counts, self._batches = self._batches, {}
        return counts

    def memory(self) -> dict[str, int]:
        """Topology and features that this rank holds; gradients are the buffers."""
        flat, store = self.gradients.flat, self.job.store
        return {
            "topology_bytes": self.job.sampler.topology_bytes(self.job.shard),
            "vertex_bytes": store.nbytes(),
            "cache_bytes": 0 if store.cache is None else store.cache.nbytes(),
            "buffers_bytes": 2 * flat.numel() * flat.element_size(),
        }

    def cross_edges(self, ready: R) -> Sequence[int]:
        """Edges of each block whose source is another rank's; empty where a rank has all sources."""
        return ()

    def count_computed(self, ready: R) -> None:
        """Edges and vertices of a batch, and how many edges have a foreign source; by layer for every batch.

        Self loops that the model adds are computed, but nobody sampled them and none crosses.
        """
        blocks, cross_edges = ready.batch.blocks, self.cross_edges(ready)
        edges = [block.num_edges - block.num_dst * block.self_loops for block in blocks]
        self.count("edges_sampled", sum(edges))
        self.count("edges_computed", sum(block.num_edges for block in blocks))
        self.count("vertices_computed", sum(block.num_dst for block in blocks))
        self._batches.setdefault("edges", []).append(edges)
        if cross_edges:
            self.count("edges_cross", sum(cross_edges))
            self._batches.setdefault("cross_edges", []).append(list(cross_edges))

    def count(self, name: str, amount: int) -> None:
        """Add to a work counter (from any thread)."""
        with self._lock:
            self.work[name] += amount
