"""The device tier of chunked work: what crosses into it, what crosses back, and how much it holds at most.

On CPU it is emulated: crossings are real copies, and while it is measured (one untimed pass) every tensor allocated
inside is counted. On CUDA crossings are transfers and the allocator counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from gnnexp.kernels.gather import add_rows, gather_rows
from gnnexp.measure.memory import TensorMeter


class DeviceTier:
    """Where chunks are worked on.

    Args:
        device: the rank's.

    Attributes:
        counts: `tier/h2d_bytes` and `tier/d2h_bytes` since they were last taken.
        peak_bytes: most that was held at once while measured, 0 before.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.counts: Counter[str] = Counter()
        self.peak_bytes = 0
        self._measured = False

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count what is allocated inside chunks from here on."""
        self._measured = True
        try:
            yield
        finally:
            self._measured = False

    @contextmanager
    def chunk(self, topology_bytes: int, existing: Iterable[Tensor | None]) -> Iterator[None]:
        """A chunk is on the device: its topology crosses, and what is made inside belongs to the tier.

        Args:
            topology_bytes: of the chunk.
            existing: what is worked with and lies elsewhere, or is counted as topology.
        """
        self.counts["tier/h2d_bytes"] += topology_bytes
        if not self._measured or self.device.type != "cpu":
            yield
            return
        with TensorMeter(tensor for tensor in existing if tensor is not None) as meter:
            yield
        self.peak_bytes = max(self.peak_bytes, meter.peak_bytes + topology_bytes)

    def enter(self, rows: Tensor, ids: Tensor | None = None) -> Tensor:
        """`rows[ids]`, or all of them, on the device."""
        taken = rows
        if ids is not None:
            taken = rows.index_select(0, ids.to(rows.device)) if rows.is_cuda else gather_rows(rows, ids)
        taken = taken.clone() if taken is rows and self.device.type == "cpu" else taken.to(self.device)
        self.counts["tier/h2d_bytes"] += _num_bytes(taken)
        return taken

    def leave(self, rows: Tensor, into: Tensor) -> None:
        """Copy rows of the device tier into host memory."""
        self.counts["tier/d2h_bytes"] += _num_bytes(rows)
        into.copy_(rows)

    def add(self, rows: Tensor, into: Tensor, ids: Tensor | None) -> None:
        """Add rows of the device tier to `into`, or to its rows `ids` (unique), in host memory."""
        back = rows.to(into.device)
        self.counts["tier/d2h_bytes"] += _num_bytes(back)
        if ids is None:
            into += back
        elif into.is_cuda:
            into.index_add_(0, ids.to(into.device), back)
        else:
            add_rows(into, ids, back)

    def take_counts(self) -> dict[str, int]:
        """Counts since the last call."""
        counts, self.counts = dict(self.counts), Counter()
        return counts


def _num_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
