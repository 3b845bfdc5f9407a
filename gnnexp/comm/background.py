"""Exchanges that run while the training loop computes: one thread, so that all ranks exchange in one order.

On CUDA the thread works on a stream of its own. What the loop waited for is told from what was hidden by when things
happened (`PhaseTimer.charge_wait`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch
from torch import Tensor

from gnnexp.kernels.threads import begin_thread
from gnnexp.measure.phases import PhaseTimer, Stretch

T = TypeVar("T")


class Pending(Generic[T]):
    """An exchange under way."""

    def __init__(self, future: Future[tuple[T, Sequence[Stretch]]], timer: PhaseTimer) -> None:
        self._future, self._timer = future, timer

    def result(self) -> T:
        """Wait for it; the wait is charged to the phase that the loop is in, or to what the thread was doing."""
        asked = time.perf_counter()
        value, stretches = self._future.result()
        phase = self._timer.current
        assert phase is not None, "exchanges are part of a phase"
        self._timer.charge_wait(stretches, phase, asked, time.perf_counter())
        if isinstance(value, Tensor) and value.is_cuda:
            # Made on the thread's stream: without this its memory might be handed out there while the loop still reads.
            value.record_stream(torch.cuda.current_stream(value.device))
        return value


class Background:
    """Runs exchanges in the order in which they are started.

    Args:
        timer: of the rank.
        device: where payloads live.
    """

    def __init__(self, timer: PhaseTimer, device: torch.device) -> None:
        self._timer, self._device = timer, device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = ThreadPoolExecutor(1, "exchange", initializer=begin_thread, initargs=(device,))

    def start(self, exchange: Callable[[], T]) -> Pending[T]:
        """Begin `exchange` after those that were started before; it reads what is ready now."""
        ready = None if self._stream is None else torch.cuda.current_stream(self._device).record_event()

        def run() -> tuple[T, Sequence[Stretch]]:
            with self._timer.aside() as stretches:
                if self._stream is None:
                    return exchange(), stretches
                with torch.cuda.stream(self._stream):
                    assert ready is not None
                    self._stream.wait_event(ready)
                    value = exchange()
                    self._stream.synchronize()  # blocks this thread only: a result that is asked for is there
                    return value, stretches

        return Pending(self._pool.submit(run), self._timer)
