"""Models of several parts that take turns in one module, and their average (SDT-GNN, section III-D).

The average is bit-identical for any distribution of parts over ranks. Parameters are summed as integers, so the order
of addition does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import DivergedError

# Sums of parameters stay below 2^61. The other bits are the sign, and room for the rounding of every part.
_BITS = 61


class LocalModels:
    """Values and optimizer states of a rank's parts. The module holds the last average while no part has its turn.

    Args:
        module: module whose parameters are all trained.
        parts: parts of this rank. Each keeps its own optimizer state. Averages of models do not change this state.
    """

    def __init__(self, module: nn.Module, parts: Sequence[int]) -> None:
        self._parameters = list(module.parameters())
        self._average = [parameter.data for parameter in self._parameters]
        self._values = {part: [value.clone() for value in self._average] for part in parts}
        self._states: dict[int, list[dict[str, Any]]] = {part: [{} for _ in self._parameters] for part in parts}
        self._turn: int | None = None
        self.optimizer: torch.optim.Optimizer | None = None

    def use(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the optimizer, once. If a part has its turn, the optimizer gets the state of this part."""
        if self.optimizer is not None:
            return
        self.optimizer = optimizer
        if self._turn is not None:
            for parameter, state in zip(self._parameters, self._states[self._turn], strict=True):
                self._set_state(parameter, state)

    def begin(self, part: int) -> None:
        """Begin the part's turn: module and optimizer get its values and states, without a copy."""
        self.end()
        self._turn = part
        for parameter, value, state in zip(self._parameters, self._values[part], self._states[part], strict=True):
            parameter.data = value
            self._set_state(parameter, state)

    def end(self) -> None:
        """End the turn, if there is one."""
        if self._turn is None:
            return
        for number, (parameter, value) in enumerate(zip(self._parameters, self._average, strict=True)):
            parameter.data = value
            if self.optimizer is not None:
                self._states[self._turn][number] = self.optimizer.state.pop(parameter, {})
        self._turn = None

    def average(self, weights: Mapping[int, float], comm: Communicator) -> None:
        """Set all models to the weighted average of the models of all parts on all ranks. No part may have its turn.

        Args:
            weights: weights of this rank's parts. Over all ranks they sum to 1.
            comm: communicator of all ranks.
        """
        assert self._turn is None
        weighted_sum(self._average, self._values, weights, comm)
        for values in self._values.values():
            for value, average in zip(values, self._average, strict=True):
                value.copy_(average)

    def _set_state(self, parameter: nn.Parameter, state: dict[str, Any]) -> None:
        if self.optimizer is None:
            return
        if state:
            self.optimizer.state[parameter] = state
        else:
            self.optimizer.state.pop(parameter, None)

    def state_dict(self) -> dict[str, Any]:
        """Values and optimizer states of every part of this rank, by number, in the order of parameters."""
        return {str(part): {"values": self._values[part], "states": self._states[part]} for part in self._values}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of `state_dict`, each tensor on the device of its parameter."""
        devices = [parameter.device for parameter in self._parameters]
        for part, found in state.items():
            self._values[int(part)] = [value.to(device) for value, device in zip(found["values"], devices, strict=True)]
            self._states[int(part)] = [
                {name: entry.to(device) if isinstance(entry, Tensor) else entry for name, entry in one.items()}
                for one, device in zip(found["states"], devices, strict=True)
            ]


def weighted_sum(
    out: Sequence[Tensor], values: Mapping[int, Sequence[Tensor]], weights: Mapping[int, float], comm: Communicator
) -> None:
    """Write the sum over all parts of weight times value to `out`, with one all-reduce of int64.

    Values are rounded to 2^-61 of the largest value on any rank. For float32 this is negligible. In float64, small
    values lose their last bits. The result is bit-identical for any order and any distribution of the parts.
    """
    size = sum(tensor.numel() for tensor in out)
    flat = {part: torch.cat([value.detach().reshape(-1).double() for value in mine]) for part, mine in values.items()}
    largest = max((_largest(model) for model in flat.values()), default=0.0)
    of_ranks = comm.all_gather(torch.tensor([largest], dtype=torch.float64), [1] * comm.size, "sizes")
    largest = max(float(magnitude) for magnitude in of_ranks)
    if not math.isfinite(largest):
        raise DivergedError("a part's model is not finite: try a smaller optimizer.lr")
    scale = 2.0 ** (_BITS - 1 - math.frexp(largest)[1])
    total = torch.zeros(size, dtype=torch.int64, device=out[0].device)
    for number, weight in weights.items():
        total += (flat[number] * weight * scale).round().to(torch.int64)
    comm.all_reduce(total, "parameters")
    for tensor, part in zip(out, torch.split_with_sizes(total, [tensor.numel() for tensor in out]), strict=True):
        tensor.copy_((part.double() / scale).view_as(tensor))


def _largest(values: Tensor) -> float:
    """The largest magnitude; infinite if a value is NaN."""
    found = float(values.abs().max()) if values.numel() else 0.0
    return math.inf if math.isnan(found) else found
