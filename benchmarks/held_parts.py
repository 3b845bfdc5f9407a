"""Model averaging with every part kept in memory: what switching between them costs is what it takes less."""

from __future__ import annotations

from gnnexp.job import Job
from gnnexp.paradigms.model_averaging import ModelAveraging
from gnnexp.paradigms.parts.turn import Turn


class HeldParts(ModelAveraging):
    """A rank loads each of its parts once."""

    def setup(self, job: Job) -> None:
        """None is loaded yet."""
        super().setup(job)
        self._turns_held: dict[int, Turn] = {}

    def _load(self, number: int) -> Turn:
        if number not in self._turns_held:
            self._turns_held[number] = super()._load(number)
        return self._turns_held[number]
