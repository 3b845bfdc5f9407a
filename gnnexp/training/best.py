"""The model of the best validation epoch, which tables report. Its checkpoint is kept as `checkpoints/best`."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnexp.components.schema import TrainConfig
from gnnexp.errors import DataError
from gnnexp.measure.merit import lower_is_better
from gnnexp.training.checkpoint import BEST, FOLDER, Position, open_checkpoint

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Best:
    """The best evaluated epoch so far, by the same rule as `gnnexp.record.records.summarize`.

    Attributes:
        epoch: number of the epoch, -1 before the first evaluation.
        value: the task's metric on the validation split. It is NaN if the split is empty: then the last evaluated
            epoch is the best one.
        figures: metrics of the model after the epoch. They can differ from the record if the epoch was repeated with
            other code or on other ranks, because an epoch keeps its first record.
    """

    epoch: int = -1
    value: float = math.nan
    figures: Mapping[str, float] = field(default_factory=dict)

    def after(
        self, epoch: int, metrics: Mapping[str, float], primary: str, again: Mapping[str, float] | None = None
    ) -> Best:
        """The best epoch after one more epoch. If values are equal, the earlier epoch is the best.

        Args:
            epoch: number of the new epoch.
            metrics: recorded metrics of the new epoch, the same on every rank.
            primary: name of the task's metric.
            again: metrics of this attempt if the epoch was recorded before and is repeated now, else None.
        """
        value = metrics.get(f"{primary}/val", math.nan)
        latest = Best(epoch, value, _figures(metrics if again is None else again))
        if not math.isnan(value):
            better = value < self.value if lower_is_better(primary) else value > self.value
            return latest if math.isnan(self.value) or better else self
        tested = not math.isnan(metrics.get(f"{primary}/test", math.nan))
        return latest if tested and math.isnan(self.value) else self

    @property
    def position(self) -> Position:
        """Position of the checkpoint with the best model: the position after the best epoch."""
        return Position(self.epoch + 1)


def best_of(epochs: Sequence[Mapping[str, Any]], primary: str) -> Best:
    """The best of recorded epochs.

    Args:
        epochs: recorded epochs, in order.
        primary: name of the task's metric.
    """
    best = Best()
    for line in epochs:
        best = best.after(line["epoch"], line["metrics"], primary)
    return best


def ending(train: TrainConfig, position: Position, best: Best) -> str:
    """The reason why a run is over; empty if it is not over.

    Returns:
        `epochs`: all `train.epochs` are done. `patience`: `train.patience` epochs have passed since the best epoch.
        `stop_below`: the best validation metric so far is below the limit of the last epoch in `train.stop_below`.
    """
    if position.epoch >= train.epochs:
        return "epochs"
    if train.patience is not None and best.epoch >= 0 and position.epoch - best.position.epoch >= train.patience:
        return "patience"
    limits = (train.stop_below or ())[: position.epoch]
    limit = limits[-1] if len(limits) == position.epoch > 0 else None
    return "stop_below" if limit is not None and best.value < limit else ""


def describe_best(
    run_dir: Path, epochs: Sequence[Mapping[str, Any]], summary: Mapping[str, float]
) -> dict[str, object]:
    """The entry `best` of `result.json`: the epoch that tables report, and the checkpoint that holds its model.

    Args:
        run_dir: directory of the run.
        epochs: recorded epochs.
        summary: their summary (`gnnexp.record.records.summarize`).

    Returns:
        The keys `epoch` and `checkpoint`; empty if no epoch was evaluated. The checkpoint is None if none holds the
        recorded model. Causes are `train.checkpoint_every=0`, a full disk, a damaged checkpoint, or an epoch that was
        repeated with another result.
    """
    if "best_epoch" not in summary:
        return {}
    epoch = int(summary["best_epoch"])
    recorded = next(line["metrics"] for line in epochs if line["epoch"] == epoch)
    kept = _holds(run_dir / FOLDER / BEST, Position(epoch + 1), recorded)
    return {"epoch": epoch, "checkpoint": f"{FOLDER}/{BEST}" if kept else None}


def _figures(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics on the splits, which identify a model."""
    return {name: float(metrics[name]) for name in sorted(metrics) if name.partition("/")[2] in ("val", "test")}


def _holds(link: Path, position: Position, recorded: Mapping[str, float]) -> bool:
    """Whether `link` leads to a complete checkpoint of `position` that holds the model of the recorded metrics."""
    try:
        if not link.exists():
            return False
        checkpoint = open_checkpoint(link.resolve())
        if checkpoint.position != position:
            return False
        checkpoint.verify()
        figures = checkpoint.shared().get("best", {}).get("figures")  # None: an earlier version wrote it
    except DataError as problem:
        logger.warning("the checkpoint of the best epoch is damaged: %s", problem)
        return False
    if figures is None or repr(figures) == repr(_figures(recorded)):  # as texts: NaN equals no number
        return True
    logger.warning("epoch %d was repeated with another result: the recorded model is lost", position.epoch - 1)
    return False
