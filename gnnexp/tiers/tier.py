"""The device tier of chunked work: copies data into it and back, counts the bytes, and measures its peak memory.

On CPU the tier is emulated: crossings are real copies, and one untimed pass counts every tensor that is allocated
inside. On CUDA crossings are transfers, and the allocator counts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gnnexp.graph.block import Block
from gnnexp.kernels.rows.gather import add_rows, gather_rows, move_rows
from gnnexp.measure.memory import TensorMeter
from gnnexp.measure.phases import Crossing, PhaseTimer


@dataclass(frozen=True, eq=False)
class Arriving:
    """Rows on their way into the device tier (`DeviceTier.fetch`).

    Attributes:
        rows, ids: `rows[ids]` are being fetched.
        there: `[n, d]` the rows on a GPU, complete after the event `done`; None on CPU.
        done: event of the GPU after the transfer; None on CPU.
    """

    rows: Tensor
    ids: Tensor
    there: Tensor | None = None
    done: torch.cuda.Event | None = None


class DeviceTier:
    """The memory in which chunks are computed.

    Args:
        device: device of the rank.
        timer: gets the times of crossings; None: they are not timed.
        reads_transpose: whether backward passes need the transpose of a chunk, which then is copied into the tier too.
        constants: values kept by block (`Backend.constants`); nothing of a chunk stays in it.

    Attributes:
        counts: `tier/h2d_bytes`, `tier/d2h_bytes`, and rows by the names that callers give, since they were last taken.
        peak_bytes: peak bytes in the tier while it was measured, 0 before.
    """

    def __init__(
        self, device: torch.device, timer: PhaseTimer | None = None, *, reads_transpose: bool = False,
        constants: MutableMapping[Block, Any] | None = None,
    ) -> None:
        self.device, self.reads_transpose = device, reads_transpose
        self.constants = {} if constants is None else constants
        self.counts: Counter[str] = Counter()
        self.peak_bytes = 0
        self._timer, self._measured, self._held_bytes = timer, False, 0
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._events: list[tuple[Crossing, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count the tensors that are allocated in chunks inside this context."""
        self._measured = True
        try:
            yield
        finally:
            self._measured = False

    @contextmanager
    def holding(self, *buffers: Tensor | None) -> Iterator[None]:
        """Count buffers that stay in the tier over several chunks. Pass them to `chunk` as `existing` too."""
        num_bytes = sum(buffer.nbytes for buffer in buffers if buffer is not None)
        self._held_bytes += num_bytes
        if self._measured:
            self.peak_bytes = max(self.peak_bytes, self._held_bytes)
        try:
            yield
        finally:
            self._held_bytes -= num_bytes

    @contextmanager
    def chunk(self, topology_bytes: int, existing: Iterable[Tensor | None]) -> Iterator[None]:
        """Context of a chunk: its topology is copied to the device, and tensors made inside belong to the tier.

        Args:
            topology_bytes: bytes of the chunk's topology.
            existing: tensors that are used inside but not counted: they are outside of the tier, or already counted as
                topology or by `holding`.
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
        """Copy `rows[ids]`, or all rows, to the device; `counted` names a counter of rows."""
        with self._crossing("h2d"):
            taken = rows if ids is None else gather_rows(rows, ids)
            taken = taken.clone() if taken is rows and self.device.type == "cpu" else taken.to(self.device)
        self._count("tier/h2d_bytes", taken, counted)
        return taken

    def fetch(self, rows: Tensor, ids: Tensor) -> Arriving:
        """Begin to copy `rows[ids]` to a GPU while it computes. On CPU, `place` copies them later."""
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
        """Put fetched rows into positions `places` `[n]` of a buffer in the device tier."""
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
        self.counts["tier/h2d_bytes"] += moved * buffer[:1].nbytes
        self.counts[counted] += moved

    # --- out of it -------------------------------------------------------------------------------------------------
    def leave(self, rows: Tensor, into: Tensor, counted: str | None = None) -> None:
        """Copy rows of the device tier to `into` in host memory."""
        with self._crossing("d2h"):
            into.copy_(rows)
        self._count("tier/d2h_bytes", rows, counted)

    def collect(self, buffer: Tensor, places: Tensor, counted: str | None = None) -> Tensor:
        """Copy `buffer[places]` to host memory."""
        with self._crossing("d2h"):
            back = gather_rows(buffer, places).cpu()
        self._count("tier/d2h_bytes", back, counted)
        return back

    def add(self, rows: Tensor, into: Tensor, ids: Tensor | None) -> None:
        """Add rows of the device tier to `into`, or to its rows `ids` (unique), in host memory."""
        with self._crossing("d2h"):
            back = rows.to(into.device)
        self._count("tier/d2h_bytes", back, None)
        self.accumulate(back, into, ids)

    def accumulate(self, rows: Tensor, into: Tensor, ids: Tensor | None) -> None:
        """Add rows in host memory to `into`, or to its rows `ids` (unique). Timed as `host_add`."""
        with self._crossing("host_add"):
            if ids is None:
                into += rows
            else:
                add_rows(into, ids, rows)

    def copy_on_host(self, rows: Tensor, into: Tensor) -> None:
        """Copy within host memory, unless both are the same tensor. Timed as `host_add`."""
        if rows is not into:
            with self._crossing("host_add"):
                into.copy_(rows)

    # --- counts ----------------------------------------------------------------------------------------------------
    def take_counts(self) -> dict[str, int]:
        """Counts since the last call. Also waits for transfers and gives their times to the timer."""
        for what, start, end in self._events:
            end.synchronize()
            self._note(what, start.elapsed_time(end) / 1000)
        self._events.clear()
        counts, self.counts = dict(self.counts), Counter()
        return counts

    def _count(self, name: str, rows: Tensor, counted: str | None) -> None:
        self.counts[name] += rows.nbytes
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
    """Host `values` on `device`: unchanged on CPU; copied to a GPU through pinned memory, without waiting."""
    return values if device.type == "cpu" else values.pin_memory().to(device, non_blocking=True)


def back(*values: Tensor) -> list[Tensor]:
    """Device `values` on the host: unchanged on CPU; copied from a GPU through pinned memory, with one wait for all."""
    if values[0].device.type == "cpu":
        return list(values)
    host = [torch.empty(value.shape, dtype=value.dtype, pin_memory=True) for value in values]
    for target, value in zip(host, values, strict=True):
        target.copy_(value, non_blocking=True)
    torch.cuda.current_stream(values[0].device).record_event().synchronize()
    return host
