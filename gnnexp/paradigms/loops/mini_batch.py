"""Base of paradigms that train global mini-batches: targets, random draws, and preparation in advance.

Each iteration has one global batch, the same for any number of ranks. `Shares` say which rank has which targets, and
which rank computes the vertices that a loss reads. A subclass defines three methods:

- `sample`: how these vertices are sampled.
- `load`: what is loaded for them.
- `forward`: how the model runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Generic, Literal, TypeVar, final

from torch import Tensor

from gnnexp.experiment.experiment import Experiment
from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.sparse import InputRows
from gnnexp.paradigms.checks import normalises_by_block
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.loops.global_batch import AutogradTrainer, Ready
from gnnexp.paradigms.loops.pipeline import prepared, prepared_in_stages, sampling_facts, sampling_threads
from gnnexp.paradigms.loops.rank_batch import RankBatch
from gnnexp.paradigms.loops.shares import Shares
from gnnexp.paradigms.loops.targets import Assign
from gnnexp.placement.exclude import ExcludedEdges, excluded
from gnnexp.tasks.pairs import PairTask

Alone = Literal["nothing", "sampling", "everything"]
S = TypeVar("S")
R = TypeVar("R", bound=Ready)


class MiniBatchTrainer(AutogradTrainer[R], Generic[S, R]):
    """Training by global mini-batches. `S` is the result of sampling, `R` the result of loading.

    It is exact, also if ranks have uneven or empty shares of a batch. With `sampler.key=global`, draws are those of a
    single worker.

    Args:
        job: job of the rank.
        shares: which rank trains which targets of a global batch.
        alone: what this rank prepares without exchanges with others, so that several threads may do it: `nothing`;
            `sampling`, if `Shares.rank_batch` and `sample` exchange nothing; `everything`, if `load` does not either.
            A single rank prepares everything alone.
    """

    resumes_within_epoch = True  # batches are a pure function of (seed, epoch, step)

    def __init__(self, job: Job, shares: Shares, alone: Alone = "nothing") -> None:
        super().__init__(job)
        self.shares = shares
        self._alone: Alone = "everything" if job.comm.size == 1 else alone
        self._crossed: tuple[Block, ...] | None = None

    # --- what a paradigm says --------------------------------------------------------------------------------------
    @abstractmethod
    def sample(self, own: RankBatch, key: BatchKey) -> S:
        """Sample what this rank needs to compute its seeds of a global batch. Ranks may communicate."""

    @abstractmethod
    def load(self, sampled: S) -> R:
        """Load the features, and move the batch to the device. Ranks may communicate."""

    def _hidden(self, batch: Tensor) -> ExcludedEdges | None:
        task = self.job.task
        if not isinstance(task, PairTask) or (links := task.hidden_links(batch)) is None:
            return None
        return excluded(links, task.num_relations, self.job.graph.num_relations)

    # --- the iteration ---------------------------------------------------------------------------------------------
    def batches(self, epoch: int, first: int = 0) -> Generator[R, None, None]:
        """This rank's part of every global batch, sampled and loaded.

        Several threads do what needs no other rank. One thread does the rest: all ranks need one order of exchanges.
        """
        timer, sampler, seed = self.job.timer, self.job.sampler, self.job.experiment.seed
        with timer.phase("sample"):
            targets_of = self.shares.targets_of(self.schedule, epoch)
        micro = self.shares.drawing_unit if sampler.options.key == "micro" else -1

        def draw(step: int) -> tuple[RankBatch, S]:
            key = BatchKey(seed, epoch, step)
            with timer.phase("sample"):
                targets, batch = targets_of(step)
                with timer.phase("negatives") if self.job.task.options.pairs else nullcontext():
                    own = self.shares.rank_batch(targets, batch, key)
                    if (hidden := self._hidden(batch)) is not None:
                        own = replace(own, hidden=hidden)
                return own, self.sample(own, key if micro < 0 else replace(key, micro=micro))

        def finish(drawn: tuple[RankBatch, S]) -> R:
            own, sampled = drawn
            with timer.phase("load"):
                self.count_crossing(own.examples.nbytes)
                ready = self.load(sampled)
                return replace(ready, own=own.to(self.job.device, ready.batch))

        steps = range(first, self.schedule.num_steps)
        sampler.inside = sampling_threads(self.job, len(steps), alone=self._alone != "nothing")[1]
        if self._alone == "sampling":
            return (yield from prepared_in_stages(self.job, steps, draw, finish, self.work))
        threads = min(1, sampler.options.threads) if self._alone == "nothing" else None
        whole = prepared(self.job, steps, lambda step: finish(draw(step)), self.work, threads=threads)
        return (yield from whole)

    def facts(self) -> Mapping[str, Any]:
        """With several threads, how they sample."""
        return {**super().facts(), **sampling_facts(self.job, self.schedule.num_steps, alone=self._alone != "nothing")}

    @final
    def to_device(self, batch: Batch, features: InputRows | None, more_bytes: int = 0) -> Batch:
        """Move blocks to the device tier, and count the bytes, also on a CPU. The store counts its rows.

        Args:
            batch: batch on the host, or a batch that was made on the device.
            features: rows of the batch; None if nothing is trained: then nothing is counted.
            more_bytes: bytes that cross with the blocks.
        """
        if features is not None and self._crossed is not batch.blocks:
            if self.schedule.num_batches == 1:
                self._crossed = batch.blocks
            self.count_crossing(more_bytes + batch.crossing_bytes)
            if batch.far_bytes is not None:
                self.count("tier/h2d_bytes_topology", batch.far_bytes)
        return batch.to(self.job.device)


def prepared_alone(job: Job, *, samples: bool) -> Alone:
    """What a rank prepares alone if it `samples` alone: everything, unless reads of rows are collective."""
    if not samples:
        return "nothing"
    return "sampling" if job.experiment.feature_store.is_collective else "everything"


def approximated(experiment: Experiment, assign: Assign) -> str:
    """How mini-batch training differs from serial training; empty if it is exact."""
    if experiment.num_ranks > 1 and normalises_by_block(experiment):
        return "degrees are those of each rank's own block"
    return "batches are drawn part by part, not uniformly from all targets" if assign == "stratified" else ""
