"""Launchers that several runs share: what one keeps between launches serves the next run of a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from gnnexp.experiment.build import build
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

    def of(self, node: Mapping[str, Any]) -> Launcher:
        """The launcher of `hardware.launcher`."""
        key = json.dumps(node, sort_keys=True)
        if key not in self._kept:
            self._kept[key] = build(node, Launcher)
        return self._kept[key]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for launcher in self._kept.values():
            launcher.close()
