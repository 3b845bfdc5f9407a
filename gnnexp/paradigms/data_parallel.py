"""Data parallelism: every rank samples, loads and trains its share of each global batch; gradients are summed.

Exact: the loss is the global sum over the global count (never a mean of means), so shares may be uneven or empty; with
`sampler.key=global` the draws are those of a single worker.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numba
import torch
from torch import Tensor, nn

from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.job import Job
from gnnexp.models.model import Model
from gnnexp.paradigms.base import Paradigm
from gnnexp.paradigms.gradients import FlatGradients, assert_same_parameters
from gnnexp.paradigms.targets import TargetSchedule, share
from gnnexp.samplers.pipeline import prefetched


@dataclass(frozen=True, eq=False)
class Loaded:
    """A sampled batch with its features.

    Attributes:
        batch: blocks and targets.
        features: `[S, D]` rows of the input vertices; None where there are no targets.
        sampled_at: clock when sampling ended (to tell what a waiting consumer waited for).
        sample_s, load_s: seconds each took.
    """

    batch: Batch
    features: Rows | None
    sampled_at: float
    sample_s: float
    load_s: float


class DataParallel(Paradigm[Loaded]):
    """Replicated model, replicated topology, one gradient all-reduce per global batch."""

    exact = True

    def setup(self, job: Job) -> None:
        """Take the parts; all ranks start from the same parameters."""
        self.job = job
        self.schedule = TargetSchedule(
            job.task.targets(), job.run.train.batch_size, job.run.seed, job.run.train.shuffle
        )
        self.gradients = FlatGradients(job.model)
        self.work: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._kept: tuple[Tensor, Rows] | None = None
        self._crossed: tuple[Block, ...] | None = None
        assert_same_parameters(job.model, job.comm)

    @property
    def module(self) -> nn.Module:
        """The model."""
        return self.job.model

    def evaluation_model(self) -> Model:
        """The model: replicated, so already here."""
        return self.job.model

    def batches(self, epoch: int) -> Generator[Loaded, None, None]:
        """Sampled and loaded shares; `train.overlap` prepares the next ones while this one trains."""
        timer, steps = self.job.timer, self.schedule.num_steps
        with timer.phase("sample"):
            order = self.schedule.order(epoch)
        if not self.job.run.train.overlap or steps == 1:  # a single batch has none to overlap with
            for step in range(steps):
                yield self._load_in_phases(self._seeds(order, step), epoch, step)
            return
        sampler = self.job.sampler
        with timer.phase("sample"):
            ready = prefetched(
                lambda step: self._load(self._seeds(order, step), epoch, step), steps, sampler.threads, sampler.prefetch
            )
        try:
            for _ in range(steps):
                yield self._await(ready)
        finally:
            with timer.phase("sample"):
                ready.close()

    def forward_backward(self, batch: Loaded) -> tuple[Tensor, int]:
        """Gradients of this rank's part of the global mean loss."""
        job, sampled = self.job, batch.batch
        count = int(sampled.targets.numel())
        if batch.features is None:
            return torch.zeros((), dtype=job.dtype), 0
        with job.timer.phase("forward"):
            edges = sum(block.num_edges for block in sampled.blocks)
            self._count("edges_sampled", edges)
            self._count("edges_computed", edges)
            self._count("vertices_computed", sum(block.num_dst for block in sampled.blocks))
            logits = job.model(sampled, batch.features)
            loss = job.task.loss_sum(logits, sampled.targets)
        with job.timer.phase("backward"):
            (loss / sampled.global_count).backward()  # type: ignore[no-untyped-call]
        return loss.detach(), count

    def synchronize(self) -> None:
        """One all-reduce of all gradients."""
        with self.job.timer.phase("sync"):
            self.gradients.all_reduce(self.job.comm)

    def clear_gradients(self) -> None:
        """Zero the flat buffer."""
        self.gradients.clear()

    def end_epoch(self) -> dict[str, int]:
        """Counters of this rank."""
        counts = {**self.work, **self.job.store.take_counts()}
        self.work.clear()
        return counts

    def memory(self) -> dict[str, int]:
        """Replicated topology and features; gradients are the buffers."""
        graph = self.job.graph
        topology = graph.indptr.numel() * 8 + graph.indices.numel() * graph.indices.element_size()
        flat = self.gradients.flat
        return {
            "topology_bytes": topology,
            "vertex_bytes": self.job.store.nbytes(),
            "buffers_bytes": 2 * flat.numel() * flat.element_size(),
        }

    # --- one share of a global batch -----------------------------------------------------------------------------
    def _seeds(self, order: Tensor, step: int) -> tuple[Tensor, int]:
        targets = self.schedule.global_batch(order, step)
        return share(targets, self.job.comm.rank, self.job.comm.size), int(targets.numel())

    def _sample(self, seeds: tuple[Tensor, int], epoch: int, step: int) -> Batch:
        micro = self.job.comm.rank if self.job.sampler.key == "micro" else -1
        return self.job.sampler.sample(seeds[0], BatchKey(self.job.run.seed, epoch, step, micro), seeds[1])

    def _read(self, batch: Batch) -> Rows | None:
        """Features of the batch; a batch over the very same vertices (full-batch training) keeps those it has."""
        if not batch.targets.numel():
            return None
        kept = self._kept
        if kept is not None and kept[0] is batch.input_ids:
            return kept[1]
        features = self.job.store.read(batch.input_ids)
        if self.schedule.num_steps == 1:
            self._kept = (batch.input_ids, features)
        return features

    def _to_device(self, batch: Batch, features: Rows | None) -> Batch:
        """Blocks cross to the device tier with the features; both are counted (on CPU as an emulated crossing)."""
        if features is not None and self._crossed is not batch.blocks:
            if self.schedule.num_steps == 1:
                self._crossed = batch.blocks
            rows = features.nbytes() if isinstance(features, SparseRows) else features.numel() * features.element_size()
            self._count("tier/h2d_bytes", rows + sum(block.nbytes() for block in batch.blocks))
        return batch.to(self.job.device)

    def _count(self, name: str, amount: int) -> None:
        with self._lock:
            self.work[name] += amount

    def _load_in_phases(self, seeds: tuple[Tensor, int], epoch: int, step: int) -> Loaded:
        with self.job.timer.phase("sample"):
            batch = self._sample(seeds, epoch, step)
        with self.job.timer.phase("load"):
            features = self._read(batch)
            return Loaded(self._to_device(batch, features), features, 0.0, 0.0, 0.0)

    def _load(self, seeds: tuple[Tensor, int], epoch: int, step: int) -> Loaded:
        """The same in a background thread, on one core: a second OpenMP team would fight the training loop's."""
        numba.set_num_threads(1)  # numba keeps this per thread
        start = time.perf_counter()
        batch = self._sample(seeds, epoch, step)
        middle = time.perf_counter()
        features = self._read(batch)
        batch = self._to_device(batch, features)
        end = time.perf_counter()
        return Loaded(batch, features, middle, middle - start, end - middle)

    def _await(self, ready: Iterator[Loaded]) -> Loaded:
        """The next prepared batch; what was waited for is charged to `sample` or `load`, the rest was hidden."""
        timer = self.job.timer
        asked = time.perf_counter()
        with timer.phase("sample"):
            loaded = next(ready)
        got = time.perf_counter()
        waited_load = min(max(0.0, got - max(asked, loaded.sampled_at)), loaded.load_s)
        waited_sample = min(got - asked - waited_load, loaded.sample_s)
        timer.move("sample", "load", waited_load)
        timer.add_hidden("sample", loaded.sample_s - waited_sample)
        timer.add_hidden("load", loaded.load_s - waited_load)
        return loaded
