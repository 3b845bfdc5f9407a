"""Marks on a GPU's timeline: how phases are timed if the host does not wait for the GPU (`measure=free`)."""

from __future__ import annotations

from typing import Literal, get_args

import torch

# `exact`: the host waits for the GPU at each boundary of a phase, and ranks meet before each exchange.
# `free`: neither. On a GPU, phases end when the GPU has done their work. Without a GPU, exchanges include waiting.
Measure = Literal["exact", "free"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


class Marks:
    """Events on the stream of the calling thread. An event passes when the GPU has done all work before it.

    Args:
        device: the GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        """Put a mark behind the work that was launched so far. The host does not wait."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def pass_all(self) -> None:
        """Wait until the GPU has passed all marks."""
        torch.cuda.synchronize(self._device)

    def seconds(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        """Seconds between two marks that the GPU has passed."""
        milliseconds: float = first.elapsed_time(second)
        return milliseconds / 1000
