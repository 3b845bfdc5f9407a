"""Base of paradigms that train a model on global batches: the loss, the sum of gradients, and counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar, final

import torch
from torch import Tensor, nn

from gnnexp.graph.block import Batch
from gnnexp.measure.ledger import Counts
from gnnexp.models.model import Model
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.computed import Computed
from gnnexp.paradigms.loops.gradients import FlatGradients, Trained, assert_same_parameters, clip
from gnnexp.paradigms.loops.rank_batch import RankBatch
from gnnexp.paradigms.loops.shares import targets_schedule
from gnnexp.paradigms.trainer import EpochCounts, Trainer


@dataclass(frozen=True, eq=False)
class Ready:
    """A batch that a rank can train.

    Attributes:
        batch: blocks, and vertices whose outputs are computed, on the device.
        own: examples of the rank's loss, and how it gets their outputs; None until the batch is prepared.
    """

    batch: Batch
    own: RankBatch | None = field(default=None, kw_only=True)

    @property
    def computed(self) -> Computed:
        """Counts of what this rank computes for it."""
        return Computed.of_sampled(self.batch)


R = TypeVar("R", bound=Ready)


class GlobalBatchTrainer(Trainer[R]):
    """One replicated model, one optimizer step per global batch.

    It is exact for any distribution of targets over ranks: the loss is the global sum divided by the global count,
    never a mean of means. All ranks start from the same parameters.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.schedule = targets_schedule(job)
        assert_same_parameters(job.model, job.comm)
        self.make_gradients(())
        self.work = Counts()
        self._batches: dict[str, list[list[int]]] = {}  # counts by name: of every batch, one number for each layer

    @final
    def make_gradients(self, sliced: Sequence[nn.Parameter]) -> None:
        """Make the buffers of gradients, also in place of earlier ones.

        Args:
            sliced: parameters whose gradients are complete here: ranks do not sum them.
        """
        job, sliced_ids = self.job, {id(parameter) for parameter in sliced}
        replicated = (parameter for parameter in job.model.parameters() if id(parameter) not in sliced_ids)
        self.gradients = FlatGradients(replicated, job.comm, job.dtype, job.device)
        self.sliced = FlatGradients(sliced, None, job.dtype, job.device) if sliced else None

    @property
    @final
    def module(self) -> nn.Module:
        """The model."""
        return self.job.model

    @property
    @final
    def trained(self) -> tuple[Trained, ...]:
        """The model's parameters, and rows of the feature store if they are trained."""
        trained = (self.gradients, self.job.trained_rows, self.sliced)
        return tuple(values for values in trained if values is not None)

    def evaluation_model(self) -> Model:
        """The model, which is replicated."""
        return self.job.model

    def synchronize(self) -> None:
        """Sum gradients with one all-reduce. Gradients of trained rows go to the owners of the rows."""
        with self.job.timer.phase("sync"):
            for values in self.trained:
                values.collect()

    def clip_gradients(self, max_norm: float) -> None:
        """Clip the gradients of all that is trained, on all ranks."""
        clip(self.trained, max_norm, self.job.comm)

    def update(self, optimizer: torch.optim.Optimizer) -> None:
        """Update parameters, and trained rows at their owners."""
        optimizer.step()
        for values in self.trained:
            values.update()

    @final
    def clear_gradients(self) -> None:
        """Clear the gradients of all that is trained."""
        for values in self.trained:
            values.forget()

    # --- counts ----------------------------------------------------------------------------------------------------
    def end_epoch(self) -> EpochCounts:
        """The counts of this rank, and edges and vertices of every batch by layer."""
        self.work.add(self.job.store.take_counts())
        batches, self._batches = self._batches, {}
        return EpochCounts(self.work.take(), batches)

    def memory(self) -> dict[str, int]:
        """Bytes of topology, features and gradients that this rank holds. An all-reduce takes a second buffer."""
        store, trained = self.job.store, self.job.trained_rows
        return {
            "topology_bytes": self.job.sampler.topology_bytes(self.job.shard),
            "vertex_bytes": store.nbytes(),
            **({} if trained is None else {"embedding_state_bytes": trained.state_nbytes()}),
            "cache_bytes": 0 if store.cache is None else store.cache.nbytes(),
            "buffers_bytes": 2 * self.gradients.nbytes + (0 if self.sliced is None else self.sliced.nbytes),
        }

    @final
    def count_computed(self, computed: Computed) -> None:
        """Record what this rank computes in a step, also layer by layer."""
        self.work.add({**computed.work, "vertices_computed": sum(computed.vertices)})
        self._batches.setdefault("edges", []).append([*computed.edges])
        self._batches.setdefault("vertices", []).append([*computed.vertices])
        if computed.cross_edges:
            self.count("edges_cross", sum(computed.cross_edges))
            self._batches.setdefault("cross_edges", []).append([*computed.cross_edges])

    @final
    def count(self, name: str, amount: int) -> None:
        """Add to a work counter (from any thread)."""
        self.work.add({name: amount})

    @final
    def count_crossing(self, num_bytes: int) -> None:
        """Count bytes that enter the device tier, and wait for a link that is slowed down (from any thread)."""
        self.work.add({"tier/h2d_bytes": num_bytes})
        self.job.tier.link.crossed("h2d", num_bytes)

    @final
    def task_loss(self, outputs: Tensor, own: RankBatch) -> tuple[Tensor, Tensor]:
        """Run the task forward and backward: `(loss sum, gradient of outputs [m, C])`. It has its own phases.

        A rank that only counts has no values: its loss is 0.
        """
        job, task = self.job, self.job.task
        if not job.computes:
            return torch.zeros((), dtype=job.dtype), outputs.new_zeros(outputs.shape)
        outputs = outputs.detach().requires_grad_()
        with job.timer.phase("decode"):
            decoded = task.decode(outputs, own.examples)
        with job.timer.phase("loss"):
            scores = decoded.detach().requires_grad_()
            loss = task.loss_sum(scores, own.examples)
            share = torch.full_like(loss, 1 / max(1, own.global_count))  # the gradient of the global mean
            (gradient,) = torch.autograd.grad(loss, scores, share)
        if decoded is outputs:
            return loss.detach(), gradient
        with job.timer.phase("decode"):
            decoded.backward(gradient)  # type: ignore[no-untyped-call]
        assert outputs.grad is not None
        return loss.detach(), outputs.grad


class AutogradTrainer(GlobalBatchTrainer[R]):
    """Training with one backward pass of autograd through all layers."""

    @abstractmethod
    def forward(self, ready: R) -> Tensor | None:
        """`[n, C]` outputs of the vertices that this rank computes; None if it computes nothing."""

    def forward_backward(self, batch: R) -> tuple[Tensor, int]:
        """Compute gradients of this rank's part of the global mean loss."""
        job, own = self.job, batch.own
        assert own is not None, "preparation of the batch sets it"
        with job.timer.phase("forward"):
            self.count_computed(batch.computed)
            rows = self.forward(batch)
            if rows is None:
                return torch.zeros((), dtype=job.dtype), 0
            outputs = own.outputs(rows, job.group_comm)
        loss, gradient = self.task_loss(outputs, own)
        with job.timer.phase("backward"):
            outputs.backward(gradient)  # type: ignore[no-untyped-call]
        return loss, own.examples.count
