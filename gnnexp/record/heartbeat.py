"""The status that a rank writes about itself: `RUN_DIR/status/rank_<r>.json`, replaced every two seconds."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gnnexp.comm.environment import Environment
from gnnexp.files.disk import subfolder
from gnnexp.files.pulse import process_table
from gnnexp.measure.phases import PhaseTimer
from gnnexp.record.records import write_json

PERIOD_S = 2.0


class Heartbeat(threading.Thread):
    """Writes the status of this rank until the rank's last status.

    From it, a launcher on any machine finds out which rank failed first, which one hangs, and in which phase.

    Args:
        run_dir: the run directory.
        environment: environment of the rank, with its number.
    """

    def __init__(self, run_dir: Path, environment: Environment) -> None:
        super().__init__(name="gnnexp-heartbeat", daemon=True)
        with suppress(OSError):  # the disk is full: there may be room at the first beat
            subfolder(run_dir, "status")
        self._file = run_dir / "status" / f"rank_{environment.rank}.json"
        self._who = {"rank": environment.rank, "host": environment.host, "pid": os.getpid(), "table": process_table()}
        self._timer: PhaseTimer | None = None
        self._marks, self._since = -1, time.time()
        self._lock, self._over = threading.Lock(), threading.Event()

    def watch(self, timer: PhaseTimer) -> None:
        """Include the phases of `timer` from now on."""
        self._timer = timer

    def run(self) -> None:
        """Write the status every `PERIOD_S` seconds, until the last status is written."""
        while not self._over.is_set():
            with self._lock:
                if not self._over.is_set():
                    with suppress(OSError):  # the disk is full: there may be room at the next beat
                        self._write("running", {})
            self._over.wait(PERIOD_S)

    def last_word(self, state: str, **more: object) -> None:
        """Write how the rank ended; nothing is written after that."""
        with self._lock:
            self._over.set()
            self._write(state, more)

    def phase(self) -> str:
        """The stage of the run and, in training, the phase."""
        if self._timer is None:
            return "start"
        stage = self._timer.activity.stage
        return (self._timer.current or stage) if stage in ("start", "train") else stage

    def _write(self, state: str, more: dict[str, Any]) -> None:
        timer, now = self._timer, time.time()
        marks = -1 if timer is None else timer.activity.marks
        if marks != self._marks:
            self._marks, self._since = marks, now
        exchanging = timer is not None and timer.activity.is_exchanging
        write_json(
            self._file,
            {
                **self._who,
                "state": state,
                "time": now,
                "phase": self.phase(),
                "exchanging": exchanging,
                "since": self._since,
                **more,
            },
        )
