"""A step on the full graph as a CUDA graph: it is captured once, and then launched again (`train.cuda_graph`).

The graph has the forward pass, the loss, the backward pass and the sum of gradients over ranks: thousands of launches
of the host become one. Clipping, the optimizer and its learning rate stay outside. They are a few launches, they may be
any class of torch, and their numbers (the learning rate, the factor of clipping) change from step to step.

A graph repeats every number of the captured step. So dropout reads its keys from memory, and the keys of the next step
are written there before each replay (`DropKeys`). What Python counted in the captured step is added again as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnexp.comm.communicator import STAGED
from gnnexp.components.locate import choice_of
from gnnexp.components.schema import WARM_UP_STEPS
from gnnexp.errors import ConfigError, Problem, RunError
from gnnexp.graph.block import BatchKey
from gnnexp.measure.ledger import Tag, Traffic
from gnnexp.measure.phases import Tape
from gnnexp.paradigms.job import Job

Step = Callable[[], tuple[Tensor, int]]
_FIX = "set train.cuda_graph=false"


@dataclass(frozen=True)
class Counted:
    """What a trainer counted in one step.

    Attributes:
        work: counts by name.
        batches: for each name, counts of every layer.
    """

    work: Mapping[str, int]
    batches: Mapping[str, list[list[int]]]


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    loss: Tensor
    count: int
    tape: Tape
    traffic: Mapping[Tag, Traffic]
    counted: Counted


class CapturedStep:
    """Runs the steps of a trainer: the first ones as they are, then a captured one.

    Steps before the capture make everything that lives longer than a step (transposes, kernels, communicators). They
    run on the stream of the capture.

    Args:
        job: job of the rank.

    Attributes:
        peak_bytes: largest number of bytes on the GPU in the captured step, which its replays need too; 0 before it.

    Raises:
        ConfigError: the rank has no GPU, or shares it with other ranks.
    """

    def __init__(self, job: Job) -> None:
        ConfigError.raise_all(_problems(job))
        self._job, self._stream = job, torch.cuda.Stream(job.device)  # type: ignore[no-untyped-call]
        self._steps, self.peak_bytes = 0, 0
        self._captured: _Captured | None = None

    def run(
        self,
        key: BatchKey,
        step: Step,
        apart: Callable[[], AbstractContextManager[Counted]],
        again: Callable[[Counted], None],
    ) -> tuple[Tensor, int]:
        """The loss of this rank and its number of targets, as `step` returns them.

        Args:
            key: key of the batch. Nothing else may change from step to step.
            step: forward pass, backward pass and sum of gradients.
            apart: collects what the trainer counts inside.
            again: adds what was collected.
        """
        keys, job = self._job.model.drop_keys, self._job
        assert keys is not None, "a model on a GPU has them"
        if self._captured is None:
            keys.bring(key)
            if self._steps < WARM_UP_STEPS or key.epoch == job.experiment.trace:
                self._steps += 1
                return self._aside(step)
            self._captured = self._capture(step, apart)
        with job.timer.phase("forward"):
            keys.bring(key)
        self._captured.graph.replay()
        job.timer.repeat(self._captured.tape)
        job.comm.ledger.add(self._captured.traffic)
        again(self._captured.counted)
        return self._captured.loss.clone(), self._captured.count

    def _aside(self, step: Step) -> tuple[Tensor, int]:
        current = torch.cuda.current_stream(self._job.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = step()
        current.wait_stream(self._stream)
        return result

    def _capture(self, step: Step, apart: Callable[[], AbstractContextManager[Counted]]) -> _Captured:
        job, graph = self._job, torch.cuda.CUDAGraph()
        with (
            _explained(job),
            job.timer.capturing() as tape,
            job.comm.ledger.apart() as traffic,
            apart() as counted,
            torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"),
        ):
            loss, count = step()
        self.peak_bytes = torch.cuda.max_memory_allocated(job.device)
        return _Captured(graph, loss, count, tape, traffic, counted)


def _problems(job: Job) -> list[Problem]:
    """Why this rank cannot capture, which the configuration alone does not tell."""
    if job.device.type != "cuda":
        return [Problem("train.cuda_graph", True, "needs a GPU, and no CUDA device is visible", _FIX)]
    if job.facts["comm_backend"] == STAGED:
        return [
            Problem(
                "train.cuda_graph",
                True,
                f"ranks share a GPU, so their exchanges wait for the host ({STAGED})",
                f"{_FIX}, or start one rank for each GPU (hardware.workers)",
            )
        ]
    return []


@contextmanager
def _explained(job: Job) -> Iterator[None]:
    """Say what the error of a capture means. CUDA reports the first error, and a second one when the capture ends.

    After a capture that fails, torch leaves the thread on the capture's stream.
    """
    before = torch.cuda.current_stream(job.device)
    try:
        yield
    except RuntimeError as error:
        torch.cuda.set_stream(before)
        first = error.__context__ if isinstance(error.__context__, RuntimeError) else error
        if isinstance(first, torch.OutOfMemoryError):
            raise first from None
        raise RunError(
            f"train.cuda_graph: a step of {choice_of(job.experiment.model)} cannot be captured "
            f"({str(first).splitlines()[0]}). A captured step must not wait for the GPU, nor copy from memory that is "
            f"not pinned: {_FIX}"
        ) from first
