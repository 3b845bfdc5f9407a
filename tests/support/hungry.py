"""An optimizer that takes memory until the kernel ends its rank; only in a control group with a limit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_PIECE = 8 << 20


class Hungry(torch.optim.SGD):
    """Rank 1 takes memory in its 25th step, while the file `hungry` is in the current folder."""

    steps = 0

    def step(self, closure: Callable[[], float] | None = None) -> Any:  # type: ignore[override]
        self.steps += 1
        if os.environ.get("RANK") == "1" and self.steps == 25 and Path("hungry").exists():
            taken: list[bytearray] = []
            while True:
                taken.append(bytearray(os.urandom(1)) * _PIECE)
        return super().step(closure)
