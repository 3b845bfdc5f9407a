"""Marks on a GPU's timeline: how phases are timed if the host does not wait for the GPU (`measure=free`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:  # readers of records need no torch
    import torch

# `exact`: the host waits for the GPU at each boundary of a phase, and ranks meet before each exchange.
# `free`: neither. On a GPU, phases end when the GPU has done their work. Without a GPU, exchanges include waiting.
Measure = Literal["exact", "free"]
MEASURES: tuple[Measure, ...] = get_args(Measure)


class Marks:
    """Events on the stream of the calling thread. An event passes when the GPU has done all work before it.

    Args:
        device: the GPU.
        captured: whether marks belong to a graph that is being captured. Each replay passes them again.
    """

    def __init__(self, device: torch.device, *, captured: bool = False) -> None:
        self._device, self._captured = device, captured

    def in_graph(self) -> Marks:
        """Marks for a capture."""
        return Marks(self._device, captured=True)

    def mark(self) -> torch.cuda.Event:
        """Put a mark behind the work that was launched so far. The host does not wait."""
        import torch

        event = torch.cuda.Event(  # type: ignore[no-untyped-call]
            enable_timing=True, **({"external": True} if self._captured else {})
        )
        event.record(torch.cuda.current_stream(self._device))
        return event

    def pass_all(self) -> None:
        """Wait until the GPU has passed all marks."""
        import torch

        torch.cuda.synchronize(self._device)

    def seconds(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        """Seconds between two marks that the GPU has passed."""
        milliseconds: float = first.elapsed_time(second)
        return milliseconds / 1000
