"""The device tier of chunked work: what crosses into it, what crosses back, and how much it holds at most.

On CPU it is emulated: crossings are real copies, and while it is measured (one untimed pass) every tensor allocated
inside is counted. On CUDA crossings are transfers and the allocator counts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from gnnexp.kernels.rows.gather import add_rows, gather_rows, move_rows
from gnnexp.measure.memory import TensorMeter
from gnnexp.measure.phases import Crossing, PhaseTimer


@dataclass(frozen=True, eq=False)
class Arriving:
    """Rows on their way into the device tier (`DeviceTier.fetch`).

    Attributes:
        rows, ids: `rows[ids]` are meant.
        there: `[n, d]` on a GPU, when `done` has happened there; None on CPU.
    """

    rows: Tensor
    ids: Tensor
    there: Tensor | None = None
    done: torch.cuda.Event | None = None


class DeviceTier:
    """Where chunks are worked on.

    Args:
        device: the rank's.
        timer: is told how long crossings took; None: nobody is.
        reads_transpose: whether backward passes there go over a chunk's transpose, which then crosses.

    Attributes:
        counts: `tier/h2d_bytes` and `tier/d2h_bytes` since they were last taken, and rows by the names they were given.
        peak_bytes: most that was held at once while measured, 0 before.
    """

    def __init__(self, device: torch.device, timer: PhaseTimer | None = None, *, reads_transpose: bool = False) -> None:
        self.device, self.reads_transpose = device, reads_transpose
        self.counts: Counter[str] = Counter()
        self.peak_bytes = 0
        self._timer, self._measured, self._held_bytes = timer, False, 0
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._events: list[tuple[Crossing, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count what is allocated inside chunks from here on."""
        self._measured = True
        try:
            yield
        finally:
            self._measured = False

    @contextmanager
    def holding(self, *buffers: Tensor | None) -> Iterator[None]:
        """Buffers that stay in the tier from chunk to chunk; name them among `existing` of `chunk` too."""
        num_bytes = sum(_num_bytes(buffer) for buffer in buffers if buffer is not None)
        self._held_bytes += num_bytes
        if self._measured:
            self.peak_bytes = max(self.peak_bytes, self._held_bytes)
        try:
            yield
        finally:
            self._held_bytes -= num_bytes

    @contextmanager
    def chunk(self, topology_bytes: int, existing: Iterable[Tensor | None]) -> Iterator[None]:
        """A chunk is on the device: its topology crosses, and what is made inside belongs to the tier.

        Args:
            topology_bytes: of the chunk.
            existing: what is worked with and lies elsewhere, or is counted as topology or by `holding`.
        """
        self.counts["tier/h2d_bytes"] += topology_bytes
        if not self._measured or self.device.type != "cpu":
            yield
            return
        with TensorMeter(tensor for tensor in existing if tensor is not None) as meter:
            yield
        self.peak_bytes = max(self.peak_bytes, meter.peak_bytes + topology_bytes + self._held_bytes)

    # --- into it ---------------------------------------------------------------------------------------------------
    def enter(self, rows: Tensor, ids: Tensor | None = None, counted: str | None = None) -> Tensor:
        """`rows[ids]`, or all of them, on the device; `counted` names a counter of rows."""
        with self._crossing("h2d"):
            taken = rows
            if ids is not None:
                taken = rows.index_select(0, ids.to(rows.device)) if rows.is_cuda else gather_rows(rows, ids)
            taken = taken.clone() if taken is rows and self.device.type == "cpu" else taken.to(self.device)
        self._count("tier/h2d_bytes", taken, counted)
        return taken

    def fetch(self, rows: Tensor, ids: Tensor) -> Arriving:
        """Begin to bring `rows[ids]`: on a GPU beside what it does; on CPU nothing runs beside, `place` will copy."""
        if self._copies is None:
            return Arriving(rows, ids)
        staging = torch.empty(ids.numel(), rows.shape[1], dtype=rows.dtype, pin_memory=True)
        torch.index_select(rows, 0, ids, out=staging)
        with torch.cuda.stream(self._copies):
            with self._crossing("h2d"):
                there = staging.to(self.device, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
        return Arriving(rows, ids, there, done)

    def place(self, arriving: Arriving, buffer: Tensor, places: Tensor, counted: str) -> None:
        """Put fetched rows at `places` `[n]` of a buffer of the device tier."""
        if arriving.there is None:
            with self._crossing("h2d"):
                move_rows(arriving.rows, arriving.ids, places, buffer)
        else:
            assert arriving.done is not None
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(arriving.done)
            arriving.there.record_stream(stream)
            buffer.index_copy_(0, places, arriving.there)
        moved = arriving.ids.numel()
        self.counts["tier/h2d_bytes"] += moved * _num_bytes(buffer[:1])
        self.counts[counted] += moved

    # --- out of it -------------------------------------------------------------------------------------------------
    def leave(self, rows: Tensor, into: Tensor, counted: str | None = None) -> None:
        """Copy rows of the device tier into host memory."""
        with self._crossing("d2h"):
            into.copy_(rows)
        self._count("tier/d2h_bytes", rows, counted)

    def collect(self, buffer: Tensor, places: Tensor, counted: str | None = None) -> Tensor:
        """`buffer[places]` in host memory."""
        with self._crossing("d2h"):
            back = buffer.index_select(0, places).cpu() if buffer.is_cuda else gather_rows(buffer, places)
        self._count("tier/d2h_bytes", back, counted)
        return back

    def add(self, rows: Tensor, into: Tensor, ids: Tensor | None) -> None:
        """Add rows of the device tier to `into`, or to its rows `ids` (unique), in host memory."""
        with self._crossing("d2h"):
            back = rows.to(into.device)
        self._count("tier/d2h_bytes", back, None)
        self.accumulate(back, into, ids)

    def accumulate(self, rows: Tensor, into: Tensor, ids: Tensor | None) -> None:
        """Add rows in host memory to `into`, or to its rows `ids` (unique): the host's own work."""
        with self._crossing("host_add"):
            if ids is None:
                into += rows
            elif into.is_cuda:
                into.index_add_(0, ids.to(into.device), rows)
            else:
                add_rows(into, ids, rows)

    def copy_on_host(self, rows: Tensor, into: Tensor) -> None:
        """Copy within host memory, unless both are the same: the host's own work."""
        if rows is not into:
            with self._crossing("host_add"):
                into.copy_(rows)

    # --- counts ----------------------------------------------------------------------------------------------------
    def take_counts(self) -> dict[str, int]:
        """Counts since the last call; the timer learns of transfers that have ended meanwhile."""
        for what, start, end in self._events:
            end.synchronize()
            self._note(what, start.elapsed_time(end) / 1000)
        self._events.clear()
        counts, self.counts = dict(self.counts), Counter()
        return counts

    def _count(self, name: str, rows: Tensor, counted: str | None) -> None:
        self.counts[name] += _num_bytes(rows)
        if counted is not None:
            self.counts[counted] += rows.shape[0]

    @contextmanager
    def _crossing(self, what: Crossing) -> Iterator[None]:
        if self.device.type == "cuda" and what != "host_add":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            yield
            end.record()
            self._events.append((what, start, end))
            return
        began = time.perf_counter()
        yield
        self._note(what, time.perf_counter() - began)

    def _note(self, what: Crossing, seconds: float) -> None:
        if self._timer is not None:
            self._timer.note_crossing(what, seconds)


def across(values: Tensor, device: torch.device) -> Tensor:
    """`values` of the host on `device`: on CPU the same ones, on a GPU through pinned memory, so that nobody waits."""
    return values if device.type == "cpu" else values.pin_memory().to(device, non_blocking=True)


def _num_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
