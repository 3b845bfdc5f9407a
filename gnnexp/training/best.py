"""The model that tables report: that of the best validation epoch, kept as `checkpoints/best`."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnexp.errors import DataError
from gnnexp.training.checkpoint import BEST, FOLDER, Position, open_checkpoint

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Best:
    """The best evaluated epoch so far, by the same rule as `gnnexp.record.records.summarize`.

    Attributes:
        epoch: its number, -1 before the first evaluation.
        value: of the task's metric on the validation split; NaN where it has no vertices: then the last evaluated
            epoch is the best one.
        figures: metrics of the model after it. They are not those of the record where the epoch was done again and
            came out differently, by other code or on other ranks: it keeps its first record.
    """

    epoch: int = -1
    value: float = math.nan
    figures: Mapping[str, float] = field(default_factory=dict)

    def after(
        self, epoch: int, metrics: Mapping[str, float], primary: str, again: Mapping[str, float] | None = None
    ) -> Best:
        """With one more epoch; of equal ones the first is the best.

        Args:
            epoch: its number.
            metrics: of it as recorded, the same on every rank.
            primary: the task's metric.
            again: what came out where it was recorded before and done again now.
        """
        value = metrics.get(f"{primary}/val", math.nan)
        one = Best(epoch, value, _figures(metrics if again is None else again))
        if not math.isnan(value):
            return one if math.isnan(self.value) or value > self.value else self
        tested = not math.isnan(metrics.get(f"{primary}/test", math.nan))
        return one if tested and math.isnan(self.value) else self

    @property
    def position(self) -> Position:
        """Of the checkpoint with its model: that after the epoch."""
        return Position(self.epoch + 1)


def describe_best(
    run_dir: Path, epochs: Sequence[Mapping[str, Any]], summary: Mapping[str, float]
) -> dict[str, object]:
    """What `result.json` says of it: the epoch that tables report, and the checkpoint that holds its model.

    Args:
        run_dir: of the run.
        epochs: of its record.
        summary: of them (`gnnexp.record.records.summarize`).

    Returns:
        Nothing where no epoch was evaluated; the checkpoint is None where there is none with the epoch's model
        (`train.checkpoint_every=0`, the disk was full, it is damaged, the epoch was done again and came out
        differently).
    """
    if "best_epoch" not in summary:
        return {}
    epoch = int(summary["best_epoch"])
    recorded = next(line["metrics"] for line in epochs if line["epoch"] == epoch)
    kept = _holds(run_dir / FOLDER / BEST, Position(epoch + 1), recorded)
    return {"epoch": epoch, "checkpoint": f"{FOLDER}/{BEST}" if kept else None}


def _figures(metrics: Mapping[str, float]) -> dict[str, float]:
    """What a model is known by: its metrics on the splits."""
    return {name: float(metrics[name]) for name in sorted(metrics) if name.partition("/")[2] in ("val", "test")}


def _holds(link: Path, position: Position, recorded: Mapping[str, float]) -> bool:
    """Whether `link` leads to a whole checkpoint of that position, with the model of the recorded metrics."""
    try:
        if not link.exists():
            return False
        found = open_checkpoint(link.resolve())
        if found.position != position:
            return False
        found.verify()
        figures = found.shared().get("best", {}).get("figures")  # None: of an earlier version
    except DataError as problem:
        logger.warning("the checkpoint of the best epoch is damaged: %s", problem)
        return False
    if figures is None or repr(figures) == repr(_figures(recorded)):  # as texts: NaN equals no number
        return True
    logger.warning("epoch %d was done again and came out differently: the recorded model is lost", position.epoch - 1)
    return False
