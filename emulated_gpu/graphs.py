"""CUDA graphs of the emulated device: the functions of `torch.cuda` that capture and replay (`cpp/graph.cpp`)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_ROOM = 2000  # characters of an error


def graph_functions(library: ctypes.CDLL) -> dict[str, Any]:
    """Replacements of functions and classes of `torch.cuda`, by name."""
    import torch

    library.emulated_graph_new.restype = ctypes.c_void_p
    # torch calls it before a capture; a build without CUDA does not have it
    torch._C._host_emptyCache = lambda: None

    def checked(call: Callable[..., int], graph: ctypes.c_void_p) -> None:
        error = ctypes.create_string_buffer(_ROOM)
        if call(graph, error, _ROOM):
            raise RuntimeError(error.value.decode(errors="replace"))

    class CUDAGraph:
        """Work that was captured. `torch.cuda.graph` captures it."""

        def __init__(self, keep_graph: bool = False) -> None:
            assert not keep_graph, "a captured graph cannot be changed here"
            self._graph = ctypes.c_void_p(library.emulated_graph_new())

        def capture_begin(self, pool: Any = None, **_: Any) -> None:  # noqa: ANN401  as torch has it
            """Begin to capture on the current stream."""
            checked(library.emulated_graph_begin, self._graph)

        def capture_end(self) -> None:
            """End the capture."""
            checked(library.emulated_graph_end, self._graph)

        def replay(self) -> None:
            """Launch the work again."""
            checked(library.emulated_graph_replay, self._graph)

        def reset(self) -> None:
            """Forget the work, and free its memory."""
            library.emulated_graph_delete(self._graph)
            self._graph = ctypes.c_void_p(library.emulated_graph_new())

        def __del__(self) -> None:
            library.emulated_graph_delete(self._graph)

    return {"CUDAGraph": CUDAGraph, "is_current_stream_capturing": lambda: bool(library.emulated_is_capturing())}


class ExternalEvent:
    """An event that replays of a graph record again (`torch.cuda.Event(external=True)`).

    Args:
        library: the emulated device.
        event: an event of the device.
    """

    def __init__(self, library: ctypes.CDLL, event: Any) -> None:  # noqa: ANN401  torch has no type for both
        self._library, self._event = library, event

    def record(self, stream: Any = None) -> None:  # noqa: ANN401
        """Record the event on the stream."""
        self._library.emulated_external_events(1)
        try:
            self._event.record(stream)
        finally:
            self._library.emulated_external_events(0)

    def elapsed_time(self, later: ExternalEvent) -> float:
        """Milliseconds between both events."""
        return float(self._event.elapsed_time(later._event))
