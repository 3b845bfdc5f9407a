"""A slow rank: a timer that sleeps in one phase, and an optimizer that never ends a step on rank 1."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from gnnexp.measure.phases import Phase, PhaseTimer


class SlowTimer(PhaseTimer):
    """Sleeps for `seconds` at the first entry into `slow_in` in every epoch."""

    slow_in: Phase
    seconds: float

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.slept = True  # nobody measures what comes before the first epoch

    def start_epoch(self) -> None:
        super().start_epoch()
        self.slept = False

    def _enter(self, name: Phase) -> None:
        super()._enter(name)
        if name == self.slow_in and not self.slept:
            self.slept = True
            time.sleep(self.seconds)


@contextmanager
def slowed(phase: Phase, seconds: float) -> Iterator[None]:
    """Jobs that this process assembles inside are slow in `phase`."""
    timer = type("Slowed", (SlowTimer,), {"slow_in": phase, "seconds": seconds})
    with patch("gnnexp.training.assemble.PhaseTimer", timer):
        yield


class Hanging(torch.optim.SGD):
    """Rank 1 never ends its first step."""

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # type: ignore[override]
        if os.environ.get("RANK") == "1":
            time.sleep(1000)
        return super().step(closure)
