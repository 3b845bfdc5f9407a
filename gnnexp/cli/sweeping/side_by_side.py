"""`--jobs N`: N cases at a time in separate processes, each on its own cores and with its output in a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from gnnexp.cli.console import make_console
from gnnexp.cli.main import run_guarded
from gnnexp.cli.running.prepare import CheckedConfig
from gnnexp.cli.sweeping.case import CaseState, QueuedCase, failed, run_case
from gnnexp.cli.sweeping.processes import STATES
from gnnexp.cli.sweeping.queue import Executor
from gnnexp.config.compose import composed_from_json
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.build import experiment_of
from gnnexp.experiment.experiment import Experiment
from gnnexp.files.disk import DiskError, in_words, remove_temporary
from gnnexp.files.pulse import Pulse, kill
from gnnexp.launchers.base import Launchers
from gnnexp.launchers.interrupts import noted
from gnnexp.launchers.local import LocalLauncher
from gnnexp.launchers.parent import LAUNCHER_VARIABLE, die_with_parent
from gnnexp.provenance.machine import CASES_VARIABLE, Node, cores_by_threads, this_node
from gnnexp.record.records import write_json


@dataclass(frozen=True)
class Slot:
    """The share of the machine that a case has.

    Attributes:
        cores: the cores, each as the numbers of its hardware threads.
        gpus: the GPUs, named as in `CUDA_VISIBLE_DEVICES`.
        num_cases: number of slots.
    """

    cores: tuple[tuple[int, ...], ...]
    gpus: tuple[str, ...]
    num_cases: int

    @property
    def node(self) -> Node:
        """The machine in the form in which a record of the case describes it."""
        return replace(this_node(), cores=len(self.cores), num_cases=self.num_cases)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the case's process and its child processes."""
        gpus = {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if this_node().gpus else {}
        return os.environ | gpus | {CASES_VARIABLE: str(self.num_cases)}

    @contextmanager
    def inherited(self) -> Iterator[None]:
        """Inside of this context, processes that this thread starts run on the cores of the slot."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {number for core in self.cores for number in core})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)


def make_slots(num_cases: int, experiments: Sequence[Experiment]) -> list[Slot]:
    """Slots of equal size for `num_cases` cases at a time.

    Raises:
        ConfigError: the ranks of that many of the `experiments` need more cores or GPUs than the machine has.
    """
    cores, gpus = cores_by_threads()[: this_node().cores], visible_gpus()
    local = [experiment.hardware for experiment in experiments if isinstance(experiment.launcher, LocalLauncher)]
    ranks = max((hardware.workers for hardware in local), default=1)
    on_gpus = max((hardware.workers for hardware in local if gpus and hardware.device != "cpu"), default=0)
    ConfigError.raise_all(
        _shortage_problems(num_cases, ranks, len(cores), "cores")
        + _shortage_problems(num_cases, on_gpus, len(gpus), "GPUs")
    )
    each, cards = len(cores) // num_cases, len(gpus) // num_cases
    return [
        Slot(tuple(map(tuple, cores[n * each : (n + 1) * each])), tuple(gpus[n * cards : (n + 1) * cards]), num_cases)
        for n in range(num_cases)
    ]


def _shortage_problems(num_cases: int, ranks: int, available: int, what: str) -> list[Problem]:
    """A problem if there are fewer of `what` than ranks."""
    if (needed := num_cases * ranks) <= available:
        return []
    fewer = f", or hardware.workers={available // num_cases}" if available >= num_cases else ""
    return [
        Problem(
            "--jobs",
            num_cases,
            f"{num_cases} cases with {ranks} rank{'s' if ranks > 1 else ''} each need "
            f"{needed} {what} of their own, and this machine has {available}",
            f"--jobs {max(1, available // ranks)}{fewer}",
        )
    ]


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, by the names that `CUDA_VISIBLE_DEVICES` takes."""
    import torch

    if not torch.cuda.is_available():
        return []
    named, count = os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()
    return named.split(",")[:count] if named else [str(number) for number in range(count)]


_POLL_S = 0.2
# Exit codes of a process that was asked to stop while it started or prepared the case's data.
_ASKED = frozenset({128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM})


@dataclass(frozen=True)
class _Child:
    """A running case.

    Attributes:
        case: the case as it was started.
        slot: its cores and GPUs.
        file: file that passes the case to the process, and its state back.
        process: `python -m gnnexp.cli.sweeping.side_by_side FILE`, whose output is in a log next to the file.
        pulse: signs of life of the process.
    """

    case: QueuedCase
    slot: Slot
    file: Path
    process: subprocess.Popen[bytes]
    pulse: Pulse

    def is_over(self) -> bool:
        """Whether the process has ended or was frozen and killed. SIGKILL may fail; then the case is over, too."""
        frozen = self.pulse.silent_s() > self.case.experiment.hardware.timeout_s
        return (frozen and not kill(self.process)) or self.process.poll() is not None

    def state(self) -> CaseState:
        """The state of the case after its process is over."""
        content, code = json.loads(self.file.read_text(encoding="utf-8")), self.process.returncode
        self.file.unlink()
        remove_temporary(self.file)
        if "status" in content:
            return CaseState(**content)
        if code in _ASKED:
            return replace(self.case.state, status="interrupted", reason="interrupted before its ranks were started")
        how = f"ended with {code}" if code != -signal.SIGKILL else "was killed, or was frozen and then killed"
        if code is None:
            how = f"({self.process.pid}) is frozen, and SIGKILL does not end it"
        return replace(
            self.case.state, status="failed", reason=f"its process {how}: see {self.file.with_suffix('.log')}"
        )


class SideBySide(Executor):
    """Runs each case in a process of its own, in a free slot. After Ctrl-C, which all processes get, no case starts.

    Another sweep of the same name may run other cases at the same time, so files are named by the cases' keys.

    Args:
        sweep: name of the sweep.
        slots: the slots of the machine.
    """

    def __init__(self, sweep: str, slots: Sequence[Slot]) -> None:
        self._folder, self._free = STATES / f"{sweep}.jobs", list(slots)
        self.running: dict[int, _Child] = {}
        self.slots = len(slots)
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

    def start(self, position: int, case: QueuedCase) -> CaseState:
        """See `Executor.start`."""
        file = self._folder / f"{position:03d}-{case.state.key[:8]}.json"
        try:
            with in_words():
                remove_temporary(file)  # files of a sweep that was killed while it wrote
                write_json(file, _request_of(case))
                self.running[position] = _started(case, self._free[-1], file)
        except DiskError as error:
            return failed(case, error)
        self._free.pop()
        return case.state

    def ended(self) -> dict[int, CaseState]:
        """See `Executor.ended`."""
        time.sleep(_POLL_S)
        if self._asked.count > self._passed_on:  # each is passed on once; a second one means "do not wait"
            self._passed_on = self._asked.count
            for child in self.running.values():
                child.process.send_signal(signal.SIGINT)
        over = {position: child for position, child in self.running.items() if child.is_over()}
        for position, child in over.items():
            del self.running[position]
            self._free.append(child.slot)
        return {position: child.state() for position, child in over.items()}


def _request_of(case: QueuedCase) -> dict[str, object]:
    """A case as JSON, of which its process makes it again (`main`)."""
    composed, state = asdict(case.checked.composed), asdict(case.state)
    return {"sweep": case.sweep, "command": case.command, "composed": composed, "state": state}


def _started(case: QueuedCase, slot: Slot, file: Path) -> _Child:
    command = [sys.executable, "-m", "gnnexp.cli.sweeping.side_by_side", str(file)]
    # The process has its own group: Ctrl-C on a terminal reaches it once, from the sweep.
    with file.with_suffix(".log").open("wb") as log, slot.inherited():
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            env=slot.environment | {LAUNCHER_VARIABLE: str(os.getpid())},
        )
    return _Child(case, slot, file, process, Pulse(process.pid))


def main(file: Path) -> int:
    """Run the case that `file` describes. This process dies with the sweep, as ranks do."""
    die_with_parent()
    request = json.loads(file.read_text(encoding="utf-8"))
    composed = composed_from_json(request["composed"])
    checked = CheckedConfig(composed, experiment_of(composed.config))
    case = QueuedCase(request["sweep"], request["command"], checked, CaseState(**request["state"]))

    def run() -> int:
        with Launchers() as launchers:
            write_json(file, asdict(run_case(case, make_console(), launchers)))
        return 0

    return run_guarded(run)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
