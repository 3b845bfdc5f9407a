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
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.kernels.rows.gather import add_rows, gather_rows, move_rows
from gnnexp.measure.memory import TensorMeter
from gnnexp.measure.phases import Crossing, PhaseTimer
from gnnexp.tiers.link import Direction, HostLink
from gnnexp.tiers.resident import ResidentChunks, memory_of

# The host waits for rows that leave a GPU once in so many chunks, and never for those of the chunk that has just ended.
_CHUNKS_PER_WAIT = 2


@dataclass(frozen=True, eq=False)
class ArrivingRows:
    """Rows on their way into the device tier (`DeviceTier.fetch`).

    Attributes:
        rows, ids: `rows[ids]` are being fetched.
        on_device: `[n, d]` the rows on a GPU, complete after the event `done`; None on CPU.
        done: event of the GPU after the transfer; None on CPU.
    """

    rows: Tensor
    ids: Tensor
    on_device: Tensor | None = None
    done: torch.cuda.Event | None = None


@dataclass(frozen=True, eq=False)
class _Leaving:
    """Rows on their way from a GPU to the host.

    Attributes:
        staging: pinned memory that receives the rows; `into` itself if that is pinned and only copied to.
        into, ids: where the rows go: `into`, or its rows `ids`.
        adds: whether they are added there.
        done: event of the GPU after the transfer.
        number: number of this transfer among those of the compute stream.
    """

    staging: Tensor
    into: Tensor
    ids: Tensor | None
    adds: bool
    done: torch.cuda.Event
    number: int


@dataclass
class _Crossed:
    """A crossing that is being timed, with its bytes."""

    num_bytes: int = 0


class DeviceTier:
    """The memory in which chunks are computed.

    Rows enter a GPU from pinned memory without another copy. Methods that write to host memory first wait for rows that
    are still read from it; other writers call `before_writing`.

    Rows that leave a GPU are in host memory some chunks later, or after `settle`. So the host rarely waits for a
    transfer. Until then they are in pinned memory, those of three chunks at most. Methods of the tier that read host
    memory first wait for rows that are on their way to it.

    Args:
        device: device of the rank.
        timer: gets the times of crossings; None: they are not timed.
        reads_transpose: whether backward passes need the transpose of a chunk, which then is copied into the tier too.
        constants: values kept by block (`Backend.constants`); nothing of a chunk stays in it.
        link: link to the host tier; None: as fast as the machine.

    Attributes:
        counts: `tier/h2d_bytes`, `tier/d2h_bytes`, and rows by the names that callers give, since they were last taken.
            With resident chunks, `take_counts` adds how many there are (`tier/resident_chunks`) and their bytes.
        again: for each layer, how often backward ran all its chunks forward again, since `take_again`.
        peak_bytes: peak bytes in the tier while it was measured, 0 before.
        link: see above.
        resident: chunks that stay in the tier; none unless a trainer says which.
    """

    def __init__(
        self,
        device: torch.device,
        timer: PhaseTimer | None = None,
        *,
        reads_transpose: bool = False,
        constants: MutableMapping[Block, Any] | None = None,
        link: HostLink | None = None,
    ) -> None:
        self.device, self.reads_transpose = device, reads_transpose
        self.constants = {} if constants is None else constants
        self.link = HostLink() if link is None else link
        self.counts: Counter[str] = Counter()
        self.again: Counter[int] = Counter()
        self.peak_bytes = 0
        self.resident = ResidentChunks()
        self._timer, self._measured, self._held_bytes = timer, False, 0
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._events: list[tuple[Crossing, torch.cuda.Event, torch.cuda.Event]] = []
        self._leaving: list[_Leaving] = []
        self._entering: dict[int, tuple[int, torch.cuda.Event]] = {}  # by memory: its last transfer to a GPU
        self._transfers = self._completed = 0  # of the compute stream; the first `_completed` have ended
        self._ended = 0  # chunks since the rank started

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
            self.peak_bytes = max(self.peak_bytes, self._held_bytes + self.resident.num_bytes)
        try:
            yield
        finally:
            self._held_bytes -= num_bytes

    @contextmanager
    def chunk(self, topology_bytes: int, existing: Iterable[Tensor | None]) -> Iterator[None]:
        """Context of a chunk: its topology is copied to the device, and tensors made inside belong to the tier.

        Args:
            topology_bytes: bytes of the chunk's topology that is not there yet.
            existing: tensors that are used inside but not counted: they are outside of the tier, or already counted as
                topology or by `holding`.
        """
        self.cross_unseen("h2d", topology_bytes)
        if not self._measured or self.device.type != "cpu":
            of_others = len(self._leaving)
            yield
            self._ended += 1
            if self._ended % _CHUNKS_PER_WAIT == 0:
                self._land(of_others)
            return
        held = topology_bytes + self._held_bytes + self.resident.num_bytes
        with TensorMeter(tensor for tensor in (*existing, *self.resident.tensors()) if tensor is not None) as meter:
            yield
        self.peak_bytes = max(self.peak_bytes, meter.peak_bytes + held)

    def cross_unseen(self, direction: Direction, num_bytes: int) -> None:
        """Count bytes whose crossing is not a copy of this class: topology, and rows that a model moves."""
        self.counts[f"tier/{direction}_bytes"] += num_bytes
        if self.link.throttle is not None:
            with self._crossing(direction) as crossing:
                crossing.num_bytes = num_bytes

    # --- into it ---------------------------------------------------------------------------------------------------
    def enter(self, rows: Tensor, ids: Tensor | None = None, counted: str | None = None) -> Tensor:
        """Copy `rows[ids]`, or all rows, to the device; `counted` names a counter of rows."""
        with self._crossing("h2d") as crossing:
            taken = self._taken(rows, ids)
            crossing.num_bytes = taken.nbytes
        self._count("tier/h2d_bytes", taken, counted)
        return taken

    def enter_rows(self, rows: Rows, ids: Tensor | None) -> Rows:
        """`enter` for dense or sparse rows. Sparse ones are taken on the host; their three arrays are counted."""
        if not isinstance(rows, SparseRows):
            return self.enter(rows.detach(), ids)
        with self._crossing("h2d") as crossing:
            taken = (rows.clone() if ids is None else rows.rows(ids)).on(self.device)
            crossing.num_bytes = taken.nbytes
        self.counts["tier/h2d_bytes"] += taken.nbytes
        return taken

    def enter_weights(self, edges: Tensor, block: Block, part: slice) -> Tensor:
        """Copy the weights `edges[part]` of a block's edges to the device, unless they stayed there."""
        own = self.resident.weights_of(block, edges)
        if own is None:
            own = self.enter(edges.detach()[part])
            self.resident.keep_weights(block, edges, own)
        return own

    def _taken(self, rows: Tensor, ids: Tensor | None) -> Tensor:
        """`rows[ids]`, or a copy of all rows, on the device; the host does not wait for the copy."""
        self._before_reading(rows)
        if self.device.type == "cpu":
            return rows.clone() if ids is None else gather_rows(rows, ids)
        if rows.is_cuda:
            return rows if ids is None else gather_rows(rows, ids)
        if ids is None and rows.is_pinned() and rows.is_contiguous():
            moved = rows.to(self.device, non_blocking=True)
            self._entering[memory_of(rows)] = self._mark()
            return moved
        staging = torch.empty(
            rows.shape[0] if ids is None else ids.numel(), *rows.shape[1:], dtype=rows.dtype, pin_memory=True
        )
        if ids is None:
            staging.copy_(rows)
        else:
            move_rows(rows, ids, torch.arange(ids.numel()), staging)
        return staging.to(self.device, non_blocking=True)

    def fetch(self, rows: Tensor, ids: Tensor) -> ArrivingRows:
        """Begin to copy `rows[ids]` to a GPU while it computes. On CPU, `place` copies them later."""
        if self._copies is None:
            return ArrivingRows(rows, ids)
        self._before_reading(rows)
        staging = torch.empty(ids.numel(), rows.shape[1], dtype=rows.dtype, pin_memory=True)
        torch.index_select(rows, 0, ids, out=staging)
        with torch.cuda.stream(self._copies):
            with self._crossing("h2d"):
                moved = staging.to(self.device, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
        return ArrivingRows(rows, ids, moved, done)

    def place(self, arriving: ArrivingRows, buffer: Tensor, places: Tensor, counted: str) -> None:
        """Put fetched rows into positions `places` `[n]` of a buffer in the device tier."""
        if arriving.on_device is None:
            with self._crossing("h2d") as crossing:
                move_rows(arriving.rows, arriving.ids, places, buffer)
                crossing.num_bytes = places.numel() * buffer[:1].nbytes
        else:
            assert arriving.done is not None
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(arriving.done)
            arriving.on_device.record_stream(stream)
            buffer.index_copy_(0, places, arriving.on_device)
        moved = arriving.ids.numel()
        self.counts["tier/h2d_bytes"] += moved * buffer[:1].nbytes
        self.counts[counted] += moved

    # --- out of it -------------------------------------------------------------------------------------------------
    def leave(self, rows: Tensor, into: Tensor, counted: str | None = None) -> None:
        """Copy rows of the device tier to `into`, usually in host memory."""
        if rows.is_cuda and not into.is_cuda:
            self._send(rows, into, None, adds=False)
        else:
            self.before_writing(into)
            with self._crossing("d2h") as crossing:
                into.copy_(rows)
                crossing.num_bytes = rows.nbytes
        self._count("tier/d2h_bytes", rows, counted)

    def collect(self, buffer: Tensor, places: Tensor, counted: str | None = None) -> Tensor:
        """Copy `buffer[places]` to host memory. The host waits for the rows."""
        with self._crossing("d2h") as crossing:
            back = gather_rows(buffer, places).cpu()
            crossing.num_bytes = back.nbytes
        self._count("tier/d2h_bytes", back, counted)
        return back

    def add(self, rows: Tensor, into: Tensor, ids: Tensor | None) -> None:
        """Add rows of the device tier to `into`, or to its rows `ids` (unique), usually in host memory."""
        self._count("tier/d2h_bytes", rows, None)
        if rows.is_cuda and not into.is_cuda:
            self._send(rows, into, ids, adds=True)
            return
        with self._crossing("d2h") as crossing:
            back = rows.to(into.device)
            crossing.num_bytes = rows.nbytes
        self._accumulate(back, into, ids)

    def give_back(self, buffer: Tensor, places: Tensor, into: Tensor, ids: Tensor, counted: str) -> None:
        """Add `buffer[places]` to the rows `ids` (unique) of `into` in host memory."""
        if buffer.is_cuda:
            self._send(leaving := gather_rows(buffer, places), into, ids, adds=True)
            self._count("tier/d2h_bytes", leaving, counted)
        else:
            self._accumulate(self.collect(buffer, places, counted), into, ids)

    def accumulate(self, rows: Tensor, into: Tensor, ids: Tensor | None) -> None:
        """Add rows in host memory to `into`, or to its rows `ids` (unique), after those that were sent before."""
        self.settle()
        self._accumulate(rows, into, ids)

    def copy_on_host(self, rows: Tensor, into: Tensor) -> None:
        """Copy within host memory, unless both are the same tensor. Timed as `host_add`."""
        self.settle()
        if rows is not into:
            self.before_writing(into)
            with self._crossing("host_add"):
                into.copy_(rows)

    def settle(self) -> None:
        """Wait until all rows that left the tier are in host memory."""
        self._land(len(self._leaving))

    def _send(self, rows: Tensor, into: Tensor, ids: Tensor | None, *, adds: bool) -> None:
        """Begin to copy rows of a GPU to the host."""
        direct = not adds and into.is_pinned() and into.is_contiguous()
        staging = into if direct else torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
        with self._crossing("d2h"):
            staging.copy_(rows, non_blocking=True)
        number, done = self._mark()
        self._leaving.append(_Leaving(staging, into, ids, adds, done, number))

    def _mark(self) -> tuple[int, torch.cuda.Event]:
        """Number and event of a transfer that the compute stream has just got."""
        self._transfers += 1
        return self._transfers, torch.cuda.current_stream(self.device).record_event()

    def _wait(self, number: int, done: torch.cuda.Event) -> None:
        """Wait for a transfer, unless a later one of the same stream has ended."""
        if number > self._completed:
            done.synchronize()
            self._completed = number

    def _land(self, count: int) -> None:
        """Wait for the first `count` transfers, and put their rows where they go, in order."""
        landing, self._leaving = self._leaving[:count], self._leaving[count:]
        if landing:
            self._wait(landing[-1].number, landing[-1].done)
        for transfer in landing:
            if transfer.adds:
                self._accumulate(transfer.staging, transfer.into, transfer.ids)
            elif transfer.staging is not transfer.into:
                self.before_writing(transfer.into)
                with self._crossing("host_add"):
                    transfer.into.copy_(transfer.staging)

    def _before_reading(self, rows: Tensor) -> None:
        """Wait for transfers to the memory of `rows`."""
        if any(memory_of(one.into) == memory_of(rows) for one in self._leaving):
            self.settle()

    def before_writing(self, rows: Tensor) -> None:
        """Wait until no GPU reads the memory of `rows`, which the host is about to change."""
        entering = self._entering.pop(memory_of(rows), None)
        if entering is not None:
            self._wait(*entering)

    def _accumulate(self, rows: Tensor, into: Tensor, ids: Tensor | None) -> None:
        """Timed as `host_add`."""
        self.before_writing(into)
        self.counts["tier/host_add_bytes"] += rows.nbytes
        with self._crossing("host_add"):
            if ids is None:
                into += rows
            else:
                add_rows(into, ids, rows)

    # --- counts ----------------------------------------------------------------------------------------------------
    def take_counts(self) -> dict[str, int]:
        """Counts since the last call. Also waits for transfers and gives their times to the timer."""
        self.settle()
        for what, start, end in self._events:
            end.synchronize()
            self._note(what, start.elapsed_time(end) / 1000)
        self._events.clear()
        counts, self.counts = dict(self.counts), Counter()
        if not self.resident.is_empty:
            counts |= {
                "tier/resident_bytes": self.resident.num_bytes,
                "tier/resident_chunks": self.resident.num_chunks,
            }
        return counts

    def take_again(self) -> dict[int, int]:
        """`again` since the last call."""
        again, self.again = dict(self.again), Counter()
        return again

    def _count(self, name: str, rows: Tensor, counted: str | None) -> None:
        self.counts[name] += rows.nbytes
        if counted is not None:
            self.counts[counted] += rows.shape[0]

    @contextmanager
    def _crossing(self, what: Crossing) -> Iterator[_Crossed]:
        crossed = _Crossed()
        if self.device.type == "cuda" and what != "host_add":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            yield crossed
            end.record()
            self._events.append((what, start, end))
            return
        began = time.perf_counter()
        yield crossed
        if what != "host_add":
            self.link.crossed(what, crossed.num_bytes, time.perf_counter() - began)
        self._note(what, time.perf_counter() - began)

    def _note(self, what: Crossing, seconds: float) -> None:
        if self._timer is not None:
            self._timer.note_crossing(what, seconds)
