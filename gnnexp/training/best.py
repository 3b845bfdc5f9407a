"""The model that tables report: that of the best validation epoch, kept as `checkpoints/best`."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

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
    """

    epoch: int = -1
    value: float = math.nan

    def after(self, epoch: int, metrics: Mapping[str, float], primary: str) -> Best:
        """With one more epoch; of equal ones the first is the best.

        Args:
            epoch: its number.
            metrics: of it, the same on every rank.
            primary: the task's metric.
        """
        value = metrics.get(f"{primary}/val", math.nan)
        if not math.isnan(value):
            return Best(epoch, value) if math.isnan(self.value) or value > self.value else self
        tested = not math.isnan(metrics.get(f"{primary}/test", math.nan))
        return Best(epoch, value) if tested and math.isnan(self.value) else self

    @property
    def position(self) -> Position:
        """Of the checkpoint with its model: that after the epoch."""
        return Position(self.epoch + 1)


def describe_best(run_dir: Path, summary: Mapping[str, float]) -> dict[str, object]:
    """What `result.json` says of it: the epoch that tables report, and the checkpoint that holds its model.

    Args:
        run_dir: of the run.
        summary: of its epochs (`gnnexp.record.records.summarize`).

    Returns:
        Nothing where no epoch was evaluated; the checkpoint is None where none was kept (`train.checkpoint_every=0`,
        or the disk was full).
    """
    if "best_epoch" not in summary:
        return {}
    epoch = int(summary["best_epoch"])
    kept = _holds(run_dir / FOLDER / BEST, Position(epoch + 1))
    return {"epoch": epoch, "checkpoint": f"{FOLDER}/{BEST}" if kept else None}


def _holds(link: Path, position: Position) -> bool:
    """Whether `link` leads to a whole checkpoint of that position."""
    try:
        return link.exists() and open_checkpoint(link.resolve()).position == position
    except DataError as problem:
        logger.warning("the checkpoint of the best epoch is damaged: %s", problem)
        return False
