"""Stop requests: how many steps lie between two reductions, whatever the length of epochs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gnnexp.comm import agreement
from gnnexp.comm.agreement import Agreement


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(agreement.time, "monotonic", lambda: now[0])
    return now


class Ranks:
    """Two ranks of which the other one has no request; it counts reductions."""

    size = 2

    def __init__(self) -> None:
        self.reductions = 0

    def start_max(self, numbers: torch.Tensor) -> Any:
        self.reductions += 1
        return SimpleNamespace(wait=lambda: None)


@pytest.mark.parametrize("step_s", [0.0, 1e-5, 0.01, 0.6])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_thousands_of_short_epochs(clock: list[float], steps: int, step_s: float) -> None:
    """The stride once doubled in each epoch that ended before it, until it was infinite: after 1,022 epochs."""
    ranks = Ranks()
    agreed = Agreement(ranks)  # type: ignore[arg-type]
    for epoch in range(3000):
        granted = []
        for step in range(steps):
            clock[0] += step_s
            granted.append(agreed.after_step(2 if (epoch, step) == (2999, 0) else 0))
        assert max(*granted, agreed.finish()) == (2 if epoch == 2999 else 0)
    assert ranks.reductions >= 3000, "each epoch starts with one"


def test_about_one_reduction_in_half_a_second(clock: list[float]) -> None:
    ranks = Ranks()
    agreed = Agreement(ranks)  # type: ignore[arg-type]
    for _ in range(100_000):
        clock[0] += 0.001
        agreed.after_step(0)
    assert 190 <= ranks.reductions <= 260, "in 100 seconds"
