"""What paradigms share that train a model on global batches: the loss, the gradients' sum, and counts."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from gnnexp.graph.block import Batch
from gnnexp.job import Job
from gnnexp.models.model import Model
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.gradients import FlatGradients, assert_same_parameters


@dataclass(frozen=True, eq=False)
class Ready:
    """A batch that a rank can train.

    Attributes:
        batch: its blocks and targets, on the device.
    """

    batch: Batch


R = TypeVar("R", bound=Ready)


class GlobalBatch(Paradigm[R]):
    """One replicated model, one optimizer step per global batch.

    Exact: the loss is the global sum over the global count (never a mean of means), whatever part of a batch's targets
    a rank has.
    """

    def setup(self, job: Job) -> None:
        """Take the parts; all ranks start from the same parameters."""
        self.job = job
        assert_same_parameters(job.model, job.comm)
        self.gradients = FlatGradients(job.model.parameters())
        self.work: Counter[str] = Counter()
        self._batches: dict[str, list[list[int]]] = {}
        self._lock = threading.Lock()

    @property
    def module(self) -> nn.Module:
        """The model."""
        return self.job.model

    def evaluation_model(self) -> Model:
        """The model: replicated, so already here."""
        return self.job.model

    def synchronize(self) -> None:
        """One all-reduce of all gradients."""
        with self.job.timer.phase("sync"):
            self.gradients.all_reduce(self.job.comm)

    def clear_gradients(self) -> None:
        """Zero the flat buffer."""
        self.gradients.clear()

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


class ByAutograd(GlobalBatch[R]):
    """Gradients come from one backward pass through all that was computed."""

    @abstractmethod
    def forward(self, ready: R) -> Tensor | None:
        """`[n, classes]` outputs of this rank's targets; None where a rank without targets has nothing to do."""

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
