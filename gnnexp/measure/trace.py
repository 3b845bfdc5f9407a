"""A trace of one epoch by torch's profiler: a file for Chrome's viewer, and what the GPU and the host did in it."""

from __future__ import annotations

import gc
import gzip
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from gnnexp.files.disk import subfolder, write_bytes

# An event takes about 250 bytes in the trace, and 15 bytes in the compressed file.
MOST_EVENTS = 200_000
# Calls of CUDA's runtime and driver. Copies whose name ends in `Async` do not wait, if host memory is pinned.
_LAUNCHES = ("LaunchKernel", "LaunchCooperativeKernel", "GraphLaunch")
_WAITS = ("StreamSynchronize", "EventSynchronize", "DeviceSynchronize", "CtxSynchronize")
_BLOCKING_COPIES = ("cudaMemcpy", "cudaMemcpy2D", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2")
_CALLS = ("cuda_runtime", "cuda_driver")
# The emulated GPU adds this function to `torch.cuda`: it has no profiler, but counts launches and waits itself.
EMULATED = "emulated_counting"


@contextmanager
def tracing(device: torch.device, file: Path | None) -> Iterator[dict[str, float]]:
    """Trace what happens inside, and write the trace to `file` at the end. After an error, nothing is written.

    Args:
        device: device of this rank.
        file: the file (`*.json.gz`); None: nothing is traced.

    Yields:
        Figures, which are filled in at the end: `events`, the number of events. On a GPU also those of `gpu_figures`.
        An emulated GPU has no `gpu_busy_s`.
    """
    figures: dict[str, float] = {}
    if file is None:
        yield figures
        return
    emulated = getattr(torch.cuda, EMULATED, None) if device.type == "cuda" else None
    activities = sorted(torch.profiler.supported_activities(), key=str)  # type: ignore[no-untyped-call]
    profiler = torch.profiler.profile(activities=activities)
    with profiler, nullcontext() if emulated is None else emulated() as counts:
        yield figures
    events = _events_of(profiler)
    del profiler
    gc.collect()  # the profiler refers to itself, and torch has crashed where it was freed at the end of the process
    figures["events"] = len(events)
    if counts is not None:
        figures.update({name: counts.totals[name] for name in ("launches", "waits", "h2d_bytes", "d2h_bytes")})
    elif device.type == "cuda":
        figures.update(gpu_figures(events))
    subfolder(file.parent.parent, file.parent.name)
    write_bytes(file, gzip.compress(json.dumps(shortened_trace(events)).encode(), mtime=0))


def gpu_figures(events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """What the GPU and the host did, from events of a trace.

    Returns:
        `gpu_busy_s`: seconds in which at least one kernel ran; `launches` and `waits` of the host; `h2d_bytes` and
        `d2h_bytes` that were copied.

    Args:
        events: events in Chrome's format, with times in microseconds. `cat` is `kernel` for a kernel on the GPU, and
            `cuda_runtime` or `cuda_driver` for a call on the host.
    """
    kernels: list[tuple[float, float]] = []
    launches = waits = 0
    copied = {"HtoD": 0, "DtoH": 0}
    for event in events:
        name, kind = str(event.get("name", "")), event.get("cat")
        if kind == "kernel":
            kernels.append((float(event["ts"]), float(event["ts"]) + float(event["dur"])))
        elif kind == "gpu_memcpy":
            for way in copied:
                copied[way] += int(event.get("args", {}).get("bytes", 0)) if way in name else 0
        elif kind in _CALLS:
            launches += any(word in name for word in _LAUNCHES)
            waits += name in _BLOCKING_COPIES or any(name.endswith(word) for word in _WAITS)
    return {
        "gpu_busy_s": covered(kernels) / 1e6,
        "launches": launches,
        "waits": waits,
        "h2d_bytes": copied["HtoD"],
        "d2h_bytes": copied["DtoH"],
    }


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals: kernels of several streams run at the same time."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def shortened_trace(events: Sequence[Mapping[str, Any]], most: int = MOST_EVENTS) -> dict[str, Any]:
    """A trace with the first `most` events in order of time, for Chrome's viewer. It says how many are left out."""
    timed = sorted((event for event in events if event.get("ph") != "M"), key=lambda event: float(event.get("ts", 0.0)))
    named = [event for event in events if event.get("ph") == "M"]  # names of processes and threads
    return {"traceEvents": [*named, *timed[:most]], "left_out": max(0, len(timed) - most)}


def _events_of(profiler: torch.profiler.profile) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(file))
        events: list[dict[str, Any]] = json.loads(file.read_bytes())["traceEvents"]
    return events
