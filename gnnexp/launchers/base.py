"""What a launcher is: it starts the same worker on every rank of a run and waits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gnnexp.errors import Problem


@dataclass(frozen=True)
class Outcome:
    """How a launch ended.

    Attributes:
        exit_code: 0 finished, 1 failed, 2 a user's mistake that only a rank could see, 128 + n on signal n.
        status: `finished`, `failed` or `interrupted`.
        reason: one line for `result.json`; empty when finished.
        message: what the user should read: the rank's own traceback, said once; empty when finished.
    """

    exit_code: int
    status: Literal["finished", "failed", "interrupted"]
    reason: str = ""
    message: str = ""


class Launcher(ABC):
    """Starts `python -m gnnexp.worker RUN_DIR` on every rank, waits, and says how it ended."""

    def check(self, config: Mapping[str, Any]) -> list[Problem]:
        """What of the configuration this launcher cannot do."""
        return []

    @abstractmethod
    def launch(self, run_dir: Path, config: Mapping[str, Any]) -> Outcome:
        """Run all ranks of the run in `run_dir` to their end; nothing of them is left when this returns."""
