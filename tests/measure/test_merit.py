"""A lower error is better: for the best epoch, for the kept model, and for reports."""

from __future__ import annotations

import pytest

from gnnexp.cli.console import epoch_line
from gnnexp.measure.merit import is_share, lower_is_better
from gnnexp.record.records import summarize
from gnnexp.reports.metrics import axis_of
from gnnexp.training.best import Best


@pytest.mark.parametrize(("metric", "epoch"), [("mse", 1), ("r2", 2)])
def test_the_best_epoch(metric: str, epoch: int) -> None:
    values = [
        {"mse/val": 5.0, "r2/val": 0.1},
        {"mse/val": 2.0, "r2/val": -3.0},
        {"mse/val": 3.0, "r2/val": 0.2},
        {"mse/val": 2.0, "r2/val": 0.2},
    ]
    best = Best()
    for number, found in enumerate(values):
        best = best.after(number, found, metric)
    epochs = [{"epoch": number, "metrics": found} for number, found in enumerate(values)]
    assert best.epoch == epoch == summarize(epochs, metric)["best_epoch"]


def test_errors_are_not_shown_in_percent() -> None:
    assert lower_is_better("mae/test") and not lower_is_better("acc")
    assert is_share("hits@20/val") and not is_share("r2/test")
    assert axis_of("mse/test") == ("mse/test", 1.0) and axis_of("acc/test") == ("acc/test, %", 100.0)
    line = epoch_line({"epoch": 3, "metrics": {"mse/val": 0.25, "r2/test": -1.5, "acc/val": 0.5}})
    assert "mse val 0.25" in line and "r2 test -1.5" in line and "acc val 50.00" in line
