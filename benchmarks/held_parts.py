"""Model averaging with every part kept in memory: what switching between them costs is what it takes less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnnexp.paradigms.job import Job
from gnnexp.paradigms.model_averaging import AveragingTrainer, ModelAveraging
from gnnexp.paradigms.parts.active_part import ActivePart
from gnnexp.paradigms.trainer import Trainer


@dataclass(frozen=True)
class HeldParts(ModelAveraging):
    """A rank loads each of its parts once."""

    def trainer(self, job: Job) -> Trainer[Any]:
        """One that keeps parts."""
        return HeldPartsTrainer(job, self)


class HeldPartsTrainer(AveragingTrainer):
    """None is loaded when it begins."""

    def __init__(self, job: Job, options: ModelAveraging) -> None:
        super().__init__(job, options)
        self._turns_held: dict[int, ActivePart] = {}

    def _load(self, number: int) -> ActivePart:
        if number not in self._turns_held:
            self._turns_held[number] = super()._load(number)
        return self._turns_held[number]
