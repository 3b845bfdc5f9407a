"""Exchanges that run while the training loop computes.

One thread per rank runs the exchanges in the order in which they were started, which is the same on all ranks.
On CUDA the thread uses its own stream. Time stamps separate the time that the loop waited for from the time that
computing hid (`PhaseTimer.charge_wait`).
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


class PendingExchange(Generic[T]):
    """An exchange that has been started."""

    def __init__(self, future: Future[tuple[T, Sequence[Stretch]]], timer: PhaseTimer) -> None:
        self._future, self._timer = future, timer

    def result(self) -> T:
        """Wait for the exchange.

        Time of the wait in which the thread was in a phase is charged to that phase. The rest stays in the loop's.
        Outside of phases (a checkpoint is written) nothing is charged.
        """
        phase = self._timer.current
        if phase is None:
            return self._future.result()[0]
        asked = time.perf_counter()  # before the boundary, which waits for the exchange, too
        with self._timer.phase(phase):
            value, stretches = self._future.result()
        self._timer.charge_wait(stretches, phase, asked, time.perf_counter())
        if isinstance(value, Tensor) and value.is_cuda:
            # The thread's stream allocated it. Without this call, that stream could reuse the memory during a read.
            value.record_stream(torch.cuda.current_stream(value.device))
        return value


class Background:
    """Runs exchanges in the order in which they were started.

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

    def start(self, exchange: Callable[[], T]) -> PendingExchange[T]:
        """Queue `exchange` after earlier ones. It may read all data whose computation was queued before this call."""
        ready = None if self._stream is None else torch.cuda.current_stream(self._device).record_event()

        def run() -> tuple[T, Sequence[Stretch]]:
            with self._timer.aside() as stretches:
                if self._stream is None:
                    return exchange(), stretches
                with torch.cuda.stream(self._stream):
                    assert ready is not None
                    self._stream.wait_event(ready)
                    value = exchange()
                    self._stream.synchronize()  # blocks this thread only; a returned result is complete
                    return value, stretches

        return PendingExchange(self._pool.submit(run), self._timer)

    def finish(self) -> None:
        """Wait for all exchanges, and start no more."""
        self._pool.shutdown()
