"""Launchers that several runs share: what one keeps between launches serves the next run of a sweep."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from gnnexp.experiment.experiment import Experiment
from gnnexp.launchers.base import Launcher
from gnnexp.launchers.queue.controller import Controller


class Launchers:
    """One launcher for every way in which one is configured; closed together.

    Attributes:
        controller: what SLURM says of runs that were submitted before; they are asked for together.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Launcher] = {}
        self.controller = Controller()

    def of(self, experiment: Experiment) -> Launcher:
        """The experiment's launcher, or an earlier one with the same options."""
        return self._kept.setdefault(experiment.config.group("hardware.launcher").text(), experiment.launcher)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for launcher in self._kept.values():
            launcher.close()
