"""Copies between host memory and a GPU for which the host does not wait."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

# Larger arrays cross without a pinned copy, and the host waits: torch keeps pinned memory until the process ends.
MOST_PINNED = 1 << 30


def crossed(arrays: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Host arrays on a GPU: one copy from one pinned buffer, behind the work of the calling thread's stream.

    Arrays with larger elements are first in the buffer, so every array is aligned and no byte is added. More than
    `MOST_PINNED` bytes cross one array after the other, from where they are.

    Args:
        arrays: arrays of any shapes and types, in host memory.
        device: the GPU.

    Returns:
        The arrays in the same order: views of one buffer, which lives as long as one of them.
    """
    order = sorted(range(len(arrays)), key=lambda place: -arrays[place].element_size())
    ends = list(accumulate(arrays[place].nbytes for place in order))
    if ends and ends[-1] > MOST_PINNED:
        return [array.to(device) for array in arrays]
    staging = torch.empty(ends[-1] if ends else 0, dtype=torch.uint8, pin_memory=True)
    for place, part in zip(order, _parts(staging, ends), strict=True):
        part.view(arrays[place].dtype).view(arrays[place].shape).copy_(arrays[place])
    arrived = staging.to(device, non_blocking=True)
    moved = {
        place: part.view(arrays[place].dtype).view(arrays[place].shape)
        for place, part in zip(order, _parts(arrived, ends), strict=True)
    }
    return [moved[place] for place in range(len(arrays))]


def _parts(buffer: Tensor, ends: Sequence[int]) -> list[Tensor]:
    """The buffer cut at `ends`."""
    return [buffer[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def across(array: Tensor, device: torch.device) -> Tensor:
    """An array on a device; unchanged if it is there. The host waits for no copy from host memory to a GPU."""
    if array.device == device or array.is_cuda or device.type == "cpu":
        return array.to(device)
    if array.nbytes > MOST_PINNED:
        return array.to(device)
    return array.contiguous().pin_memory().to(device, non_blocking=True)


def back(*values: Tensor) -> list[Tensor]:
    """Device `values` on the host: unchanged on CPU; copied from a GPU through pinned memory, with one wait for all."""
    if values[0].device.type == "cpu":
        return list(values)
    host = [torch.empty(value.shape, dtype=value.dtype, pin_memory=True) for value in values]
    for target, value in zip(host, values, strict=True):
        target.copy_(value, non_blocking=True)
    torch.cuda.current_stream(values[0].device).record_event().synchronize()
    return host
