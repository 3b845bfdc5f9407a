"""The interface of launchers: a launcher starts the same worker on every rank of a run, and waits for the end."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from gnnexp.components.schema import HardwareConfig
from gnnexp.components.setting import Setting
from gnnexp.errors import Problem
from gnnexp.launchers.queue.controller import Controller
from gnnexp.measure.available import available_memory


@dataclass(frozen=True)
class Outcome:
    """The result of a launch.

    Attributes:
        exit_code: 0 finished, 1 failed, 2 a user's mistake that only a rank could see, 128 + n for signal n.
        status: `finished`, `failed`, `interrupted`, or `submitted` if the launcher does not wait for the end.
        reason: one line for `result.json`; empty if the run finished.
        message: text for the user, with the rank's own traceback, shown once; empty if the run finished.
        kind: kind of the failure (`gnnexp.record.failure.Kind`). Tables print `out of memory` as the papers do.
        memory: `needed_bytes` and `available_bytes` if memory ran out and they are known.
        asked: a stop signal that arrived after the ranks had ended; the caller must handle it.
    """

    exit_code: int
    status: Literal["finished", "failed", "interrupted", "submitted"]
    reason: str = ""
    message: str = ""
    kind: str = ""
    memory: Mapping[str, int] = field(default_factory=dict)
    asked: signal.Signals | None = None

    @property
    def may_be_repeated(self) -> bool:
        """Whether another start from the last checkpoint may succeed."""
        return self.status == "failed" and self.kind not in ("mistake", "diverged", "interrupted", "disk")


def lost_place(run_dir: Path, fix: str) -> Outcome:
    """The outcome of a run whose directory was moved or removed, with its record and checkpoints.

    Args:
        run_dir: the directory in which the run began. Nothing more is written under this name.
        fix: what the user can do to continue.
    """
    reason = f"the run directory {run_dir} was moved or removed while the run trained"
    return Outcome(1, "failed", reason, f"{reason}; {fix}", "disk")


class Launcher(ABC):
    """Runs `python -m gnnexp.worker RUN_DIR` or the same code on every rank, waits, and returns the outcome."""

    @property
    def prepares(self) -> bool:
        """Whether the launcher also prepares the data of a run, in a job of its own before the ranks start."""
        return False

    def check(self, setting: Setting) -> list[Problem]:
        """Problems of the run that this launcher does not support."""
        return []

    def check_here(self, hardware: HardwareConfig) -> list[Problem]:
        """Parts of `hardware` that this machine, or the cluster that it submits to, does not have."""
        return []

    def node_bytes(self) -> int | None:
        """RAM that the ranks of a node may use; None if only the cluster knows it."""
        return available_memory()

    @abstractmethod
    def launch(self, run_dir: Path, hardware: HardwareConfig) -> Outcome:
        """Run all ranks of the run in `run_dir` to their end. No process of the run is left when this returns.

        A run that was stopped or killed continues from the last checkpoint in `run_dir`, which the ranks look for.
        """

    def close(self) -> None:  # noqa: B027  most launchers keep nothing
        """End the processes that are kept between launches."""


class Launchers:
    """One launcher for each set of launcher options; all are closed together.

    Attributes:
        controller: asks SLURM about jobs that were submitted before, about all of them at once.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Launcher] = {}
        self.controller = Controller()

    def of(self, launcher: Launcher, options: str) -> Launcher:
        """The launcher, or an earlier one with the same `options`, a text of its configuration."""
        return self._kept.setdefault(options, launcher)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for launcher in self._kept.values():
            launcher.close()
