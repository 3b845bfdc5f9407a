"""Parameters and their optimizer state by name, in the form of checkpoints, for any number of ranks.

In some paradigms a rank has only a slice of a parameter (push-pull: columns of the first layer's input weights).
Slices of N ranks are joined, and cut again for M ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gnnexp.comm.slices import Slices

Entries = dict[str, Any]


def take(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Entries]:
    """For each parameter, its `value` and optimizer entries (`exp_avg`, `step`, …); for each buffer, its `value`."""
    found: dict[str, Entries] = {name: {"value": buffer.detach()} for name, buffer in module.named_buffers()}
    for name, parameter in module.named_parameters():
        found[name] = {"value": parameter.detach(), **optimizer.state.get(parameter, {})}
    return found


def put(module: nn.Module, optimizer: torch.optim.Optimizer, entries: Mapping[str, Entries]) -> None:
    """Set all parameters, their optimizer entries, and all buffers.

    Raises:
        ValueError: names or shapes do not match `module`.
    """
    targets = dict(module.named_buffers()) | dict(module.named_parameters())
    if entries.keys() != targets.keys():
        odd = sorted(entries.keys() ^ targets.keys())
        raise ValueError(f"parameters differ: {', '.join(odd[:5])}")
    state = {}
    numbers = {id(p): n for n, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    for name, target in targets.items():
        rest = dict(entries[name])
        value = rest.pop("value")
        if value.shape != target.shape or value.dtype != target.dtype:
            raise ValueError(f"{name} is {_form(target)} here, {_form(value)} in the checkpoint")
        with torch.no_grad():
            target.copy_(value)
        if rest and id(target) in numbers:
            state[numbers[id(target)]] = rest
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def join(pieces: Sequence[Mapping[str, Entries]], slices: Slices) -> dict[str, Entries]:
    """This rank's slices, cut from the joined slices of all ranks that wrote the checkpoint."""
    joined: dict[str, Entries] = {}
    for name, (dim, own) in slices.items():
        parts = [piece[name] for piece in pieces]
        joined[name] = {
            key: _cut([part[key] for part in parts], dim, own) if _is_sliced(value, dim) else value
            for key, value in parts[0].items()
        }
    return joined


def _is_sliced(value: object, dim: int) -> bool:
    """Whether an entry is sliced along `dim` like its parameter. Moments are; a number of steps is not."""
    return isinstance(value, Tensor) and value.ndim > dim


def _cut(parts: Sequence[Tensor], dim: int, own: slice) -> Tensor:
    return torch.cat(list(parts), dim).narrow(dim, own.start, own.stop - own.start).contiguous()


def _form(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
