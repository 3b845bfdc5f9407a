"""Runs as figures see them, made by hand."""

import math
from collections.abc import Mapping
from pathlib import Path

from gnnexp.record.runs import RecordedRun


def figure_run(
    system: str,
    epoch_s: float = math.nan,
    workers: int = 1,
    seed: int = 0,
    kind: str = "",
    dataset: str = "cora",
    metrics: Mapping[str, float] | None = None,
    path: Path = Path("run"),
) -> RecordedRun:
    """Of three epochs, the first ten times as long; failed where a kind of failure is given."""
    config = {"dataset": {"name": dataset}, "system": system, "seed": seed, "hardware": {"workers": workers}}
    of_time = {} if math.isnan(epoch_s) else {"time/epoch_s": epoch_s}
    warm = {**of_time, **(metrics or {})}
    cold = {name: 10 * value for name, value in warm.items()}
    return RecordedRun(
        path, config, {}, [] if kind else [cold, warm, warm], {}, "failed" if kind else "finished", kind=kind
    )
