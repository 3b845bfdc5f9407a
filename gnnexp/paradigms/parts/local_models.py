"""Models of several parts that take turns in one module, and their average (SDT-GNN, section III-D).

The average is the same to the bit however parts are spread over ranks: weights are summed as whole numbers, which have
no order of addition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gnnexp.comm.communicator import Communicator
from gnnexp.errors import DivergedError

# Sums of weights stay below 2^61: a sign, and a bit for rounding of every part.
_BITS = 61


class LocalModels:
    """Values and optimizer states of a rank's parts; outside of a turn the module holds the last average.

    Args:
        module: all of its parameters are trained.
        parts: of this rank. Each keeps an optimizer state of its own, which an average of the models leaves alone.
    """

    def __init__(self, module: nn.Module, parts: Sequence[int]) -> None:
        self._parameters = list(module.parameters())
        self._average = [parameter.data for parameter in self._parameters]
        self._values = {part: [value.clone() for value in self._average] for part in parts}
        self._states: dict[int, list[dict[str, Any]]] = {part: [{} for _ in self._parameters] for part in parts}
        self._turn: int | None = None
        self.optimizer: torch.optim.Optimizer | None = None

    def use(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer whose states they are; the first time, the part whose turn it is brings its own."""
        if self.optimizer is not None:
            return
        self.optimizer = optimizer
        if self._turn is not None:
            for parameter, state in zip(self._parameters, self._states[self._turn], strict=True):
                self._set_state(parameter, state)

    def begin(self, part: int) -> None:
        """The part's turn: module and optimizer are its own, without a copy."""
        self.end()
        self._turn = part
        for parameter, value, state in zip(self._parameters, self._values[part], self._states[part], strict=True):
            parameter.data = value
            self._set_state(parameter, state)

    def end(self) -> None:
        """The turn is over, if there is one."""
        if self._turn is None:
            return
        for number, (parameter, value) in enumerate(zip(self._parameters, self._average, strict=True)):
            parameter.data = value
            if self.optimizer is not None:
                self._states[self._turn][number] = self.optimizer.state.pop(parameter, {})
        self._turn = None

    def average(self, weights: Mapping[int, float], comm: Communicator) -> None:
        """All models become the weighted average of those of all parts of all ranks, between turns.

        Args:
            weights: of this rank's parts; over all ranks they sum to 1.
            comm: of all ranks.
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
        """Of every part of this rank, by its number: values and optimizer states in the order of the parameters."""
        return {str(part): {"values": self._values[part], "states": self._states[part]} for part in self._values}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave, each tensor on the device of its parameter."""
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
    """Write the sum over all parts of weight times value into `out`, tensor by tensor; one all-reduce of int64.

    Rounded to 2^-61 of the largest value anywhere (for float32 that is no loss worth naming; for float64 the last bits
    of small values go), to the bit the same for any order and any spread of the parts.
    """
    size = sum(tensor.numel() for tensor in out)
    flat = {part: torch.cat([value.detach().reshape(-1).double() for value in mine]) for part, mine in values.items()}
    largest = max((_largest(one) for one in flat.values()), default=0.0)
    told = comm.all_gather(torch.tensor([largest], dtype=torch.float64), [1] * comm.size, "sizes")
    largest = max(float(one) for one in told)
    if not math.isfinite(largest):
        raise DivergedError("a part's model is not finite: try a smaller optimizer.lr")
    scale = 2.0 ** (_BITS - 1 - math.frexp(largest)[1])
    total = torch.zeros(size, dtype=torch.int64, device=out[0].device)
    for part, weight in weights.items():
        total += (flat[part] * weight * scale).round().to(torch.int64)
    comm.all_reduce(total, "parameters")
    start = 0
    for tensor in out:
        tensor.copy_((total[start : start + tensor.numel()].double() / scale).view_as(tensor))
        start += tensor.numel()


def _largest(values: Tensor) -> float:
    """Magnitude, infinite where one is no number."""
    found = float(values.abs().max()) if values.numel() else 0.0
    return math.inf if math.isnan(found) else found
