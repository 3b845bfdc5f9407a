"""`--jobs N`: cases in processes of their own, N at a time, each on cores of its own with its output in a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from gnnexp.cli.console import make_console
from gnnexp.cli.main import guarded
from gnnexp.cli.sweeping.case import QueuedCase, State, failed, run_case
from gnnexp.cli.sweeping.queue import STATES, Executor
from gnnexp.cli.sweeping.slots import Slot
from gnnexp.config.compose import Composed
from gnnexp.files.disk import DiskError, in_words, remove_unfinished
from gnnexp.files.pulse import Pulse, kill
from gnnexp.launchers.interrupts import noted
from gnnexp.launchers.kept import Launchers
from gnnexp.launchers.parent import LAUNCHER_VARIABLE, die_with_parent
from gnnexp.record.records import write_json

_POLL_S = 0.2
# What a process ends with that was asked to stop while it started, or prepared the case's data.
_ASKED = frozenset({128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM})


@dataclass(frozen=True)
class _Child:
    """A case that runs.

    Attributes:
        case: as it was started.
        slot: its cores and GPUs.
        file: the case goes in, its state comes out.
        process: `python -m gnnexp.cli.sweeping.side_by_side FILE`, whose output is beside the file.
        pulse: of the process.
    """

    case: QueuedCase
    slot: Slot
    file: Path
    process: subprocess.Popen[bytes]
    pulse: Pulse

    def is_over(self) -> bool:
        """Whether it has ended, or was killed because it was frozen; not even that ends every process."""
        frozen = self.pulse.silent_s() > self.case.experiment.hardware.timeout_s
        return (frozen and not kill(self.process)) or self.process.poll() is not None

    def state(self) -> State:
        """How the case stands after its process."""
        found, code = json.loads(self.file.read_text(encoding="utf-8")), self.process.returncode
        self.file.unlink()
        remove_unfinished(self.file)
        if "status" in found:
            return State(**found)
        if code in _ASKED:
            return replace(self.case.state, status="interrupted", reason="interrupted before its ranks were started")
        how = f"ended with {code}" if code != -signal.SIGKILL else "was killed, or was frozen and is killed now"
        if code is None:
            how = f"({self.process.pid}) is frozen, and SIGKILL does not end it"
        return replace(self.case.state, status="failed",
                       reason=f"its process {how}: see {self.file.with_suffix('.log')}")


class SideBySide(Executor):
    """A process for each case, in a free slot; Ctrl-C reaches all of them, and nothing is started after it.

    Another sweep of the same name may run at the same time with other cases: files are named by the cases' keys.

    Args:
        sweep: its name.
        slots: of the machine.
    """

    def __init__(self, sweep: str, slots: Sequence[Slot]) -> None:
        self._folder, self._free = STATES / f"{sweep}.jobs", list(slots)
        self.running: dict[int, _Child] = {}
        self._signals, self._passed_on = noted(), 0

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._asked = self._signals.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._signals.__exit__(None, None, None)

    def takes(self) -> bool:
        """See `Executor.takes`."""
        return bool(self._free) and not self._asked.count

    def start(self, position: int, case: QueuedCase) -> State:
        """See `Executor.start`."""
        file = self._folder / f"{position:03d}-{case.state.key[:8]}.json"
        try:
            with in_words():
                remove_unfinished(file)  # of a sweep that was killed while it wrote
                write_json(file, asdict(case))
                self.running[position] = _started(case, self._free[-1], file)
        except DiskError as error:
            return failed(case, error)
        self._free.pop()
        return case.state

    def ended(self) -> dict[int, State]:
        """See `Executor.ended`."""
        time.sleep(_POLL_S)
        if self._asked.count > self._passed_on:  # each once: a second one is from somebody who does not want to wait
            self._passed_on = self._asked.count
            for child in self.running.values():
                child.process.send_signal(signal.SIGINT)
        over = {position: child for position, child in self.running.items() if child.is_over()}
        for position, child in over.items():
            del self.running[position]
            self._free.append(child.slot)
        return {position: child.state() for position, child in over.items()}


def _started(case: QueuedCase, slot: Slot, file: Path) -> _Child:
    command = [sys.executable, "-m", "gnnexp.cli.sweeping.side_by_side", str(file)]
    # A group of its own: Ctrl-C on a terminal reaches it once, from the sweep.
    with file.with_suffix(".log").open("wb") as log, slot.inherited():
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
                                   env=slot.environment | {LAUNCHER_VARIABLE: str(os.getpid())})
    return _Child(case, slot, file, process, Pulse(process.pid))


def main(file: Path) -> int:
    """Run the case that is described in `file`; it dies with the sweep, as ranks do."""
    die_with_parent()
    found = json.loads(file.read_text(encoding="utf-8"))
    composed = Composed(**found["composed"] | {"run_dir": Path(found["composed"]["run_dir"])})
    case = QueuedCase(found["sweep"], found["command"], composed, State(**found["state"]))

    def run() -> int:
        with Launchers() as launchers:
            write_json(file, asdict(run_case(case, make_console(), launchers)))
        return 0

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
