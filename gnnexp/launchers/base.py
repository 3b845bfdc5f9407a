"""What a launcher is: it starts the same worker on every rank of a run and waits."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gnnexp.errors import Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.schema import HardwareConfig


@dataclass(frozen=True)
class Outcome:
    """How a launch ended.

    Attributes:
        exit_code: 0 finished, 1 failed, 2 a user's mistake that only a rank could see, 128 + n on signal n.
        status: `finished`, `failed`, `interrupted`, or `submitted` where nobody waits for the end.
        reason: one line for `result.json`; empty when finished.
        message: what the user should read: the rank's own traceback, said once; empty when finished.
        kind: of the failure (`gnnexp.record.failure.Kind`): tables print `out of memory` as the papers do.
        memory: `needed_bytes` and `available_bytes` where memory ran out and they are known.
        asked: a signal that came when the ranks had ended: the caller's to answer.
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
        """Whether starting again from the last checkpoint may end better."""
        return self.status == "failed" and self.kind not in ("mistake", "diverged", "interrupted", "disk")


def lost_place(run_dir: Path, fix: str) -> Outcome:
    """The outcome of a run whose directory was moved or removed: the record and the checkpoints are in it.

    Args:
        run_dir: where the run began. Nothing is written under this name any more.
        fix: how to go on.
    """
    reason = f"the run directory {run_dir} was moved or removed while the run trained"
    return Outcome(1, "failed", reason, f"{reason}; {fix}", "disk")


class Launcher(ABC):
    """Has every rank do what `python -m gnnexp.worker RUN_DIR` does, waits, and says how it ended."""

    def check(self, experiment: Experiment) -> list[Problem]:
        """What of the experiment this launcher cannot do."""
        return []

    def check_here(self, hardware: HardwareConfig) -> list[Problem]:
        """What of `hardware` this machine, or the cluster that it submits to, cannot do."""
        return []

    def node_bytes(self) -> int | None:
        """RAM that the ranks of a node may take; None where only the cluster knows."""
        import psutil

        return int(psutil.virtual_memory().available)

    @abstractmethod
    def launch(self, run_dir: Path, hardware: HardwareConfig) -> Outcome:
        """Run all ranks of the run in `run_dir` to their end; nothing of them is left when this returns.

        A run that was stopped or killed goes on from the last checkpoint in `run_dir`: the ranks look for it.
        """

    def close(self) -> None:  # noqa: B027  most keep nothing
        """End what is kept between launches."""
