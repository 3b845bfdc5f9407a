"""The queue of a sweep's cases: take the next one, skip it, resume it or start it, and note how it ended.

Several sweeps may work in one folder at once. A case is made once, however many of them have it: who takes it holds its
lock, and looks for its run before.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from rich.console import Console

from gnnexp.cli.console import marked
from gnnexp.cli.running.execute import complete
from gnnexp.cli.sweeping.case import QueuedCase, State, failed, run_case
from gnnexp.cli.sweeping.definition import Sweep
from gnnexp.cli.sweeping.known_runs import Looking, key_now, known_runs, stand
from gnnexp.config.compose import Composed
from gnnexp.errors import DataError, ProblemsError
from gnnexp.files.disk import DiskError, in_words, locked, refusal, remove_unfinished, shortened, try_lock
from gnnexp.launchers.kept import Launchers
from gnnexp.launchers.queue.slurm_jobs import read_job_id
from gnnexp.record.records import write_json
from gnnexp.record.runs import RUNS

STATES = RUNS / "sweeps"
_PATIENCE_S = 10.0  # for a lock that is held for milliseconds


class Executor(ABC):
    """A way to run cases; entered once for a queue.

    Attributes:
        running: positions of the cases that were started and have not ended.
    """

    running: Collection[int] = ()

    @abstractmethod
    def takes(self) -> bool:
        """Whether another case may be started now."""

    @abstractmethod
    def start(self, position: int, case: QueuedCase) -> State:
        """Start a case; how it stands then, which may be that it has ended."""

    def ended(self) -> dict[int, State]:
        """Wait for a moment; the cases that have ended or were submitted meanwhile, by position."""
        return {}

    def stop(self) -> dict[int, State]:
        """After Ctrl-C: what became of those that were running; empty where the command ends by it."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:  # noqa: B027  most keep nothing
        """End what is kept between cases."""


class OneByOne(Executor):
    """In this process: a case has ended when it was started, and one that was interrupted is the last.

    Args:
        launchers: of all cases.
        console: where runs show themselves.
    """

    def __init__(self, launchers: Launchers, console: Console) -> None:
        self._launchers, self._console, self._interrupted = launchers, console, False

    def takes(self) -> bool:
        """See `Executor.takes`."""
        return not self._interrupted

    def start(self, position: int, case: QueuedCase) -> State:
        """See `Executor.start`."""
        state = run_case(case, self._console, self._launchers)
        self._interrupted = state.status == "interrupted"
        return state


@dataclass
class Queue:
    """The cases of a sweep, in the order in which they are taken.

    Attributes:
        sweep: whose they are.
        looking: which runs that are there count.
        console: where runs show themselves.
        states: of all cases.
        composed: configurations by position; a case that has none could not be composed, and has failed.
    """

    sweep: Sweep
    looking: Looking
    console: Console
    states: list[State] = field(default_factory=list)
    composed: dict[int, Composed] = field(default_factory=dict)
    _turns: dict[int, ExitStack] = field(default_factory=dict)

    def case(self, position: int) -> QueuedCase:
        """As it stands now."""
        return QueuedCase(self.sweep.name, self.sweep.command, self.composed[position], self.states[position])

    def add(self, case: QueuedCase) -> None:
        """Put a case at the end of the queue."""
        self.composed[len(self.states)] = case.composed
        self.states.append(case.state)

    def work(self, executor: Executor, first: int = 0) -> None:
        """Run the waiting cases from the position `first` on; one that fails does not stop the others."""
        save_states(self.sweep, self.states)  # where this cannot be written, nothing is started
        new = [position for position in self.composed if position >= first]
        for position in new:
            if self.states[position].status == "finished before":  # an earlier call may have been killed before
                complete(Path(self.states[position].run_dir), self.case(position).experiment.tracker)
        left = deque(position for position in new if self.states[position].status == "waiting")
        try:
            with executor:
                while executor.running or (left and executor.takes()):
                    if left and executor.takes():
                        self._take(left.popleft(), executor)
                    else:
                        self._listen(executor)
        finally:
            for turn in self._turns.values():
                turn.close()
        for position in new:  # what ran elsewhere may have finished meanwhile
            if (state := self.states[position]).status == "running elsewhere":
                now = look_again(self.case(position), self.looking)
                self.states[position] = now if now.status == "finished before" else replace(state, run_dir=now.run_dir)
        keep_states(self.sweep, self.states)

    def _take(self, position: int, executor: Executor) -> None:
        """The turn of a case: skip it, or have the executor resume or start it."""
        turn = self._turns[position] = ExitStack()
        try:
            with in_words():
                state = turn.enter_context(turn_of(self.case(position), self.looking))
        except DiskError as error:
            state = failed(self.case(position), error)
        if state.status == "waiting":
            words = marked(f"\n{position + 1}/{len(self.states)}", "bold", f" {state.label}")
            self.console.print(words, soft_wrap=True)
            state = executor.start(position, replace(self.case(position), state=state))
        self._note(position, state)

    def _listen(self, executor: Executor) -> None:
        try:
            ended = executor.ended()
        except KeyboardInterrupt:
            if not (ended := executor.stop()):
                raise
        for position, state in ended.items():
            self._note(position, state)

    def _note(self, position: int, state: State) -> None:
        """Its turn is over when the case has ended, or it is known which job works on it."""
        self.states[position] = state
        if state.status != "waiting":
            self._turns.pop(position, ExitStack()).close()
            self.console.print(f"{state.status}: {state.label}  {state.reason or state.run_dir}", soft_wrap=True)
            keep_states(self.sweep, self.states)


@contextmanager
def turn_of(case: QueuedCase, looking: Looking) -> Iterator[State]:
    """How a case stands now; where it is `waiting`, no other process starts it before this context is left.

    A sweep plans at its beginning. What other sweeps of this folder, of the same name or another, have made of the
    case since then counts. A case whose code was edited since then is not the planned one: beside the others it would
    mix two codes in one table.
    """
    with _locked(STATES / ".cases" / f"{case.state.key}.lock") as mine:
        now = look_again(case, looking)
        if now.status == "waiting" and not mine:
            now = replace(now, status="running elsewhere", reason="another sweep is running this case")
        elif now.status == "waiting" and not _as_planned(case):
            what = "code or its stored partition" if case.experiment.partitioner.reads_file else "code"
            now = replace(now, status="failed", run_dir="",
                          reason=f"its {what} was edited since the sweep began: start the sweep again")
        yield now


def look_again(case: QueuedCase, looking: Looking) -> State:
    """How a case stands by what is on disk now."""
    return stand(case, known_runs({case.state.key}, looking).get(case.state.key, []), looking)


def _as_planned(case: QueuedCase) -> bool:
    """Whether nobody has edited its code or its stored partition since the sweep was planned."""
    with suppress(ProblemsError):  # it is not there any more
        return key_now(case, case.state.dataset_key) == case.state.key
    return False


@contextmanager
def _locked(file: Path) -> Iterator[bool]:
    """Whether this process holds the lock of `file`, which is removed afterwards; the system releases it at its end."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = try_lock(file)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            file.unlink()
            os.close(handle)


def begun_jobs(cases: Sequence[QueuedCase]) -> list[str]:
    """The SLURM jobs of runs that an earlier call has begun: SLURM is asked for all of them at once."""
    found = []
    for state in (case.state for case in cases):
        if state.status == "waiting" and state.run_dir:
            with suppress(DataError):  # a damaged note: `made_ready` names it when the turn of this case comes
                job_id = read_job_id(Path(state.run_dir))
                found += [] if job_id is None else [job_id]
    return found


def save_states(sweep: Sweep, states: Sequence[State]) -> None:
    """Write what `gnnexp report NAME` reads, one process at a time; remove what killed processes left half written.

    A process that holds the lock for too long is frozen. The state is written all the same then; nothing is removed.
    """
    locks, file = STATES / ".cases", STATES / f"{sweep.name}.json"
    locks.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        with suppress(TimeoutError):
            held.enter_context(locked(locks / f"{shortened(sweep.name)}.states", _PATIENCE_S))
            remove_unfinished(file)
        write_json(file, content_of(sweep, states))


def content_of(sweep: Sweep, states: Sequence[State]) -> dict[str, Any]:
    """What `gnnexp.record.records.read_state` reads."""
    return {"schema": 1, "name": sweep.name, "description": sweep.description, "command": sweep.command,
            "report": dict(sweep.report), "cases": [asdict(state) for state in states]}


def keep_states(sweep: Sweep, states: Sequence[State]) -> None:
    """As `save_states`; a disk that is full now ends no sweep: the next case is saved with those before it."""
    try:
        save_states(sweep, states)
    except OSError as error:
        if (problem := refusal(error, sweep.command)) is None:
            raise
        print(f"gnnexp: {problem}", file=sys.stderr)
