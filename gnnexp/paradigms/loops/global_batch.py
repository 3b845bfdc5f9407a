"""What paradigms share that train a model on global batches: the loss, the gradients' sum, and counts."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from gnnexp.graph.block import Batch
from gnnexp.job import Job
from gnnexp.measure.tally import Counts
from gnnexp.models.model import Model
from gnnexp.paradigms.loops.gradients import FlatGradients, Trained, assert_same_parameters, clip
from gnnexp.paradigms.loops.rank_batch import RankBatch
from gnnexp.paradigms.loops.targets import TargetSchedule
from gnnexp.paradigms.trainer import EpochCounts, Trainer


@dataclass(frozen=True, eq=False)
class Ready:
    """A batch that a rank can train.

    Attributes:
        batch: its blocks and the vertices whose outputs are computed, on the device.
        own: what the rank's loss is over.
    """

    batch: Batch
    own: RankBatch | None = field(default=None, kw_only=True)


R = TypeVar("R", bound=Ready)


class GlobalBatchTrainer(Trainer[R]):
    """One replicated model, one optimizer step per global batch.

    Exact: the loss is the global sum over the global count (never a mean of means), whatever part of a batch's targets
    a rank has. All ranks start from the same parameters.
    """

    def __init__(self, job: Job) -> None:
        self.job, train = job, job.experiment.train
        self.schedule = TargetSchedule(job.task.targets(), train.batch_size, job.experiment.seed, train.shuffle,
                                       train.steps_per_epoch)
        assert_same_parameters(job.model, job.comm)
        self.gradients = FlatGradients(job.model.parameters(), job.comm, job.dtype, job.device)
        self.work = Counts()
        self._batches: dict[str, list[list[int]]] = {}

    @property
    def module(self) -> nn.Module:
        """The model."""
        return self.job.model

    @property
    def trained(self) -> tuple[Trained, ...]:
        """The model's parameters, and rows of the feature store where these are trained."""
        rows = self.job.trained_rows
        return (self.gradients,) if rows is None else (self.gradients, rows)

    def evaluation_model(self) -> Model:
        """The model: replicated, so already here."""
        return self.job.model

    def synchronize(self) -> None:
        """One all-reduce of all gradients; those of trained rows go home."""
        with self.job.timer.phase("sync"):
            for one in self.trained:
                one.collect()

    def clip_gradients(self, max_norm: float) -> None:
        """Of all that is trained, wherever it lives."""
        clip(self.trained, max_norm, self.job.comm)

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Parameters, and trained rows where they live."""
        optimizer.step()
        for one in self.trained:
            one.update()

    def clear_gradients(self) -> None:
        """Of all that is trained."""
        for one in self.trained:
            one.forget()

    # --- counts ----------------------------------------------------------------------------------------------------
    def end_epoch(self) -> EpochCounts:
        """Counters of this rank, and edges of every batch by layer."""
        counts, batches = Counter(self.work.take()), self._batches
        counts.update(self.job.store.take_counts())
        self._batches = {}
        return EpochCounts(dict(counts), batches)

    def memory(self) -> dict[str, int]:
        """Topology and features that this rank holds; gradients are the buffers."""
        flat, store, trained = self.gradients.flat, self.job.store, self.job.trained_rows
        return {
            "topology_bytes": self.job.sampler.topology_bytes(self.job.shard),
            "vertex_bytes": store.nbytes(),
            **({} if trained is None else {"embedding_state_bytes": trained.state_nbytes()}),
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
        self._batches.setdefault("vertices", []).append([block.num_dst for block in blocks])
        if cross_edges:
            self.count("edges_cross", sum(cross_edges))
            self._batches.setdefault("cross_edges", []).append(list(cross_edges))

    def count(self, name: str, amount: int) -> None:
        """Add to a work counter (from any thread)."""
        self.work.add({name: amount})

    def task_loss(self, outputs: Tensor, own: RankBatch) -> tuple[Tensor, Tensor]:
        """The task's part of the iteration, both ways: `(loss sum, gradient of outputs [m, C])`, timed apart."""
        job, task = self.job, self.job.task
        outputs = outputs.detach().requires_grad_()
        with job.timer.phase("decode"):
            decoded = task.decode(outputs, own.examples)
        with job.timer.phase("loss"):
            scores = decoded.detach().requires_grad_()
            loss = task.loss_sum(scores, own.examples)
            (gradient,) = torch.autograd.grad(loss / max(1, own.global_count), scores)
        if decoded is outputs:
            return loss.detach(), gradient
        with job.timer.phase("decode"):
            decoded.backward(gradient)  # type: ignore[no-untyped-call]
        assert outputs.grad is not None
        return loss.detach(), outputs.grad


class AutogradTrainer(GlobalBatchTrainer[R]):
    """Gradients come from one backward pass through all that was computed."""

    @abstractmethod
    def forward(self, ready: R) -> Tensor | None:
        """`[n, C]` outputs of the vertices that this rank computes; None where it has nothing to do."""

    def forward_backward(self, batch: R) -> tuple[Tensor, int]:
        """Gradients of this rank's part of the global mean loss."""
        job, own = self.job, batch.own
        assert own is not None, "set where the batch is prepared"
        with job.timer.phase("forward"):
            self.count_computed(batch)
            computed = self.forward(batch)
            if computed is None:
                return torch.zeros((), dtype=job.dtype), 0
            outputs = own.outputs(computed, job.group_comm)
        loss, gradient = self.task_loss(outputs, own)
        with job.timer.phase("backward"):
            outputs.backward(gradient)  # type: ignore[no-untyped-call]
        return loss, own.examples.count
