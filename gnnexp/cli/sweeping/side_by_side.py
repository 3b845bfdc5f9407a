"""`gnnexp sweep --jobs N`: cases in processes of their own, N at a time, each with its output in a file."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from gnnexp.cli.console import make_console
from gnnexp.cli.main import guarded
from gnnexp.cli.sweeping.cases import STATES, State
from gnnexp.cli.sweeping.definition import Sweep
from gnnexp.cli.sweeping.known_runs import Looking
from gnnexp.cli.sweeping.once import not_started, run_once
from gnnexp.config.compose import Composed
from gnnexp.experiment.build import hardware_of
from gnnexp.files.disk import DiskError, held, in_words, remove_abandoned, subfolder
from gnnexp.files.pulse import Pulse, kill
from gnnexp.launchers.interrupts import noted
from gnnexp.launchers.kept import Launchers
from gnnexp.launchers.parent import LAUNCHER_VARIABLE, die_with_parent
from gnnexp.record.records import write_json

_POLL_S = 0.2
# What a process ends with that was asked to stop while it started, or prepared the case's data.
_ASKED = frozenset({128 + signal.SIGINT, 128 + signal.SIGTERM, -signal.SIGINT, -signal.SIGTERM})
# Folders of earlier calls, and what earlier versions called those of cases.
_CALL = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d-\d+|\d{3}")


@dataclass(frozen=True)
class _Child:
    """A case that runs.

    Attributes:
        position: in the sweep.
        folder: `case.json` goes in, `state.json` and `output.log` come out.
        process: `python -m gnnexp.cli.sweeping.side_by_side FOLDER`.
        pulse: of the process.
        timeout_s: after how long without a sign of life it is killed, and its ranks with it.
    """

    position: int
    folder: Path
    process: subprocess.Popen[bytes]
    pulse: Pulse
    timeout_s: float


def run_side_by_side(
    sweep: Sweep, composed: Sequence[Composed], states: list[State], jobs: int, console: Console,
    save: Callable[[list[State]], None], looking: Looking,
) -> list[State]:
    """Run the waiting cases, `jobs` at a time; Ctrl-C reaches all of them, and nothing is started after it.

    This call has a folder of its own: another sweep of the same name may run at the same time with other cases.
    """
    calls = STATES / f"{sweep.name}.jobs"
    folder = calls / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.getpid()}"
    with ExitStack() as stack:
        try:
            with in_words():
                calls.mkdir(parents=True, exist_ok=True)
                remove_abandoned(calls, _CALL)
                stack.enter_context(held(folder))
        except DiskError as error:
            return [not_started(state, error) if state.status == "waiting" else state for state in states]
        return _run_all(sweep, composed, states, jobs, console, save, looking, folder)


def _run_all(
    sweep: Sweep, composed: Sequence[Composed], states: list[State], jobs: int, console: Console,
    save: Callable[[list[State]], None], looking: Looking, folder: Path,
) -> list[State]:
    states = list(states)
    running: list[_Child] = []
    waiting = [position for position, state in enumerate(states) if state.status == "waiting"]
    passed_on = 0
    with noted() as asked:
        while running or (waiting and not asked.count):
            while waiting and len(running) < jobs and not asked.count:
                position = waiting.pop(0)
                try:
                    with in_words():
                        running.append(
                            _start(sweep, composed[position], states[position], position, looking, folder))
                except DiskError as error:
                    states[position] = not_started(states[position], error)
            time.sleep(_POLL_S)
            if asked.count > passed_on:  # each of them once: a second one is from somebody who does not want to wait
                passed_on = asked.count
                for child in running:
                    child.process.send_signal(signal.SIGINT)
            frozen = {child.position for child in running
                      if child.pulse.silent_s() > child.timeout_s and not kill(child.process)}
            for child in [one for one in running if one.position in frozen or one.process.poll() is not None]:
                running.remove(child)
                told = states[child.position] = _outcome(states[child.position], child)
                console.print(f"{told.status}: {told.label}  {told.reason or told.run_dir}", soft_wrap=True)
                save(states)
    return states


def _start(sweep: Sweep, composed: Composed, state: State, position: int, looking: Looking, above: Path) -> _Child:
    folder = subfolder(above, f"{position:03d}")
    write_json(folder / "case.json", {
        "composed": {**asdict(composed), "run_dir": str(composed.run_dir)}, "state": asdict(state), "sweep": sweep.name,
        "looking": {"accept_foreign": looking.accept_foreign, "passed_over": sorted(looking.passed_over)},
    })
    with (folder / "output.log").open("wb") as log:
        command = [sys.executable, "-m", "gnnexp.cli.sweeping.side_by_side", str(folder)]
        # A group of its own: Ctrl-C on a terminal reaches it once, from the sweep.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
                                   env=os.environ | {LAUNCHER_VARIABLE: str(os.getpid())})
    return _Child(position, folder, process, Pulse(process.pid), hardware_of(composed.config).timeout_s)


def _outcome(state: State, child: _Child) -> State:
    path = child.folder / "state.json"
    if path.exists():
        found = State(**json.loads(path.read_text(encoding="utf-8")))
        assert found.key == state.key, f"{path} is of another case"
        return found
    code = child.process.returncode
    if code in _ASKED:
        return replace(state, status="interrupted", reason="interrupted before its ranks were started")
    how = f"ended with {code}" if code != -signal.SIGKILL else "was killed, or was frozen and is killed now"
    if code is None:
        how = f"({child.process.pid}) is frozen, and SIGKILL does not end it"
    return replace(state, status="failed", reason=f"its process {how}: see {child.folder / 'output.log'}")


def main(arguments: Sequence[str]) -> int:
    """Run the case that is described in the folder `arguments[0]`; it dies with the sweep, as ranks do."""
    die_with_parent()
    folder = Path(arguments[0])
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    found = case["composed"]
    composed = Composed(found["config"], Path(found["run_dir"]), found["choices"], tuple(found["overrides"]),
                        found["config_dir"])
    sweep = Sweep(case["sweep"], "", ())
    looking = Looking(case["looking"]["accept_foreign"], frozenset(case["looking"]["passed_over"]))

    def run() -> int:
        with Launchers() as launchers:
            state = run_once(sweep, composed, State(**case["state"]), make_console(), launchers, looking)
        write_json(folder / "state.json", asdict(state))
        return 0

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
