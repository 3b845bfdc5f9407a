"""Exclusive phase times of one rank's epoch: each moment belongs to one phase, or is reported as unaccounted.

With `measure=exact`, the host waits for the GPU at each boundary of a phase. With `measure=free`, boundaries are marks
on the GPU's timeline (`Marks`), and their times are read when the epoch ends.

`Activity` is what a rank is doing now; another thread reports it to the launcher.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, NamedTuple, get_args

from gnnexp.measure.ledger import Tag, added
from gnnexp.measure.marks import Marks

Stage = Literal["start", "train", "evaluate", "checkpoint", "end"]


class Activity:
    """The stage of the run, a counter of progress (`marks`), and whether an exchange is running.

    A rank without new marks that is in no exchange hangs by itself. A rank in an exchange waits for another rank.

    Attributes:
        stage: stage of the run. Phases of the epoch record are inside `train`.
        marks: grows when a phase begins, an exchange ends, or a stage begins or ends.
    """

    def __init__(self) -> None:
        self.stage: Stage = "start"
        self.marks = 0
        self._exchanges = 0
        self._lock = threading.Lock()

    @property
    def is_exchanging(self) -> bool:
        """Whether a thread of this rank is inside a collective."""
        return self._exchanges > 0

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """Context of a collective call, on any thread."""
        with self._lock:
            self._exchanges += 1
        try:
            yield
        finally:
            with self._lock:
                self._exchanges -= 1
            self.marks += 1

    @contextmanager
    def during(self, stage: Stage) -> Iterator[None]:
        """Set `stage` inside the context. After an error the stage is not reset, so it shows where the error was."""
        before, self.stage = self.stage, stage
        self.marks += 1
        yield
        self.stage = before
        self.marks += 1


# "negatives", "decode" (forward and backward) and "loss" are the work of the task, not of the GNN (NeutronTP, Table 4).
Phase = Literal["sample", "negatives", "load", "forward", "decode", "loss", "backward", "sync", "update", "wait"]
PHASES: tuple[Phase, ...] = get_args(Phase)
FORWARD_BACKWARD: tuple[Phase, ...] = ("forward", "decode", "loss", "backward")  # includes the task's part
# Copies from host memory to the device tier, copies back, and additions on the host of rows that came back.
Crossing = Literal["h2d", "d2h", "host_add"]


class Stretch(NamedTuple):
    """Activity of another thread from `start` to `end`: an exclusive phase, or `comm` (inside collective calls)."""

    what: Phase | Literal["comm"]
    start: float
    end: float


@dataclass(frozen=True)
class PhaseTimes:
    """One rank's times of one epoch, in seconds.

    Attributes:
        epoch_s: wall time of the epoch.
        phases: exclusive time by phase. Their sum and `unaccounted_s` add up to `epoch_s`. Phases that the trainer
            cannot separate from others are left out (`without`).
        hidden: time by phase of other threads while the training loop did not wait, and `comm` in it; not in the sum.
        crossings: time of copies between memories, in any phases (on a GPU: parallel to them); not in the sum.
    """

    epoch_s: float
    phases: dict[Phase, float]
    hidden: dict[Phase | Literal["comm"], float] = field(default_factory=dict)
    crossings: dict[Crossing, float] = field(default_factory=dict)

    @property
    def unaccounted_s(self) -> float:
        """Wall time outside of all phases."""
        return self.epoch_s - sum(self.phases.values())

    def without(self, phases: Container[Phase]) -> PhaseTimes:
        """Times without `phases`, which must not have been entered."""
        assert not any(self.phases[phase] for phase in self.phases if phase in phases), "a left-out phase has time"
        return replace(self, phases={phase: spent for phase, spent in self.phases.items() if phase not in phases})

    def joined(self, later: PhaseTimes) -> PhaseTimes:
        """The sum of the times of two pieces of an epoch."""
        return PhaseTimes(
            self.epoch_s + later.epoch_s,
            added(self.phases, later.phases),
            added(self.hidden, later.hidden),
            added(self.crossings, later.crossings),
        )


@dataclass(slots=True)
class _Piece:
    """Time of the training loop in one phase, without inner phases.

    Attributes:
        phase: the phase.
        start, end: marks of the GPU, or seconds.
        waited: host seconds in which the loop waited for another thread; 0: it did not.
        behind: what that thread did: the phase, its seconds, and those of them in which the loop waited.
    """

    phase: Phase
    start: Any
    end: Any
    waited: float = 0.0
    behind: Sequence[tuple[Phase | Literal["comm"], float, float]] = ()


@dataclass(frozen=True)
class Tape:
    """Phases and exchanges of a captured step, between marks in the graph.

    Attributes:
        pieces: times in phases.
        exchanges: tags, and marks before and after.
    """

    pieces: list[_Piece] = field(default_factory=list)
    exchanges: list[tuple[Tag, Any, Any]] = field(default_factory=list)


class PhaseTimer:
    """Times nested phases exclusively: an inner phase stops the clock of the outer phase.

    The thread that starts the epoch is timed. Other threads may enter phases inside `aside`, which records the phases
    and their times. `charge_wait` then separates the time that the training loop waited from the time that was hidden.

    Args:
        synchronize: called at each boundary, so that asynchronous device work is charged to the phase that issued it.
        clock: monotonic clock in seconds.
        marks: marks of the GPU, which replace `synchronize` and the clock at boundaries; None: there are none.
        meets: whether ranks wait for each other before an exchange, so that `wait` is separate from the exchange.

    Attributes:
        activity: current activity of this rank, for other threads.
    """

    def __init__(
        self,
        synchronize: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        *,
        marks: Marks | None = None,
        meets: bool = True,
    ) -> None:
        self._synchronize, self._clock, self._marks, self.meets = synchronize, clock, marks, meets
        self._stack: list[Phase] = []
        self._others = threading.local()
        self._failed: tuple[Phase, BaseException | None] | None = None
        self._failed_aside: list[tuple[Phase, BaseException | None]] = []
        self.activity = Activity()
        self._runs = False
        self.start_epoch()
        self._runs = False  # until the first epoch starts

    def start_epoch(self) -> None:
        """Reset all times, and start the epoch's wall clock."""
        self._pieces: list[_Piece] = []
        self._exchanges: list[tuple[Tag, Any, Any]] = []
        self._crossings: dict[Crossing, float] = {}
        self._thread = threading.get_ident()
        self._settle()
        self._started = self._clock()
        self._mark, self._runs = (self._started if self._marks is None else self._marks.mark()), True

    def end_epoch(self) -> PhaseTimes:
        """Times since `start_epoch`. With marks, phases are times of the GPU, and the epoch is time of the host."""
        assert not self._stack, f"epoch ended inside phase {self._stack}"
        self._settle()
        epoch_s, self._runs = self._clock() - self._started, False
        phases: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        hidden: dict[Phase | Literal["comm"], float] = {}
        for piece in self._pieces:
            seconds = self._seconds(piece.start, piece.end)
            phases[piece.phase] += seconds
            # The GPU may still work while the host waits: what the GPU does not wait for is hidden, too.
            share = 1.0 if self._marks is None or not piece.waited else min(1.0, seconds / piece.waited)
            for what, spent, exposed in piece.behind:
                if what != "comm":
                    phases[piece.phase] -= share * exposed
                    phases[what] += share * exposed
                hidden[what] = hidden.get(what, 0.0) + spent - share * exposed
        return PhaseTimes(epoch_s, phases, hidden, dict(self._crossings))

    def take_exchanges(self) -> dict[Tag, float]:
        """Seconds of the GPU in exchanges of the epoch that has ended, by tag; empty without marks."""
        seconds: dict[Tag, float] = {}
        for tag, start, end in self._exchanges:
            seconds[tag] = seconds.get(tag, 0.0) + self._seconds(start, end)
        self._exchanges = []
        return seconds

    def phase(self, name: Phase) -> _Span:
        """Context manager: the time inside, without inner phases, is charged to `name`."""
        return _Span(self if threading.get_ident() == self._thread else self._record(), name)

    @contextmanager
    def waiting(self, name: Phase) -> Iterator[None]:
        """A phase in which the loop waits for another thread, and which begins without waiting for the device.

        The phase before has waited for it, and this thread has launched nothing since. To wait again would be to wait
        for what the other thread has launched.
        """
        self._boundary(settles=False)
        self._stack.append(name)
        self.activity.marks += 1
        try:
            yield
        except BaseException as error:
            self._fail(name, error)
            raise
        finally:
            self._exit()

    @contextmanager
    def aside(self) -> Iterator[list[Stretch]]:
        """Record the phases of the calling thread, which is not the training loop's. It may enter phases only here."""
        record = _Record(self._clock, self._failed_aside)
        self._others.record = record
        try:
            yield record.stretches
        finally:
            del self._others.record

    def _record(self) -> _Record:
        """The record of the calling thread, which is not the training loop's."""
        record: _Record | None = getattr(self._others, "record", None)
        assert record is not None, (
            f"thread {threading.current_thread().name} enters a phase outside of `aside`: exchanges, and backward "
            "passes with exchanges, belong to the training loop's thread"
        )
        return record

    @contextmanager
    def capturing(self) -> Iterator[Tape]:
        """Keep phases and exchanges inside for `repeat`. They belong to a step that is captured and not run."""
        assert self._marks is not None and not self._stack, "a capture is outside of phases, and needs marks"
        tape, before = Tape(), (self._pieces, self._exchanges, self._marks, self._runs)
        self._pieces, self._exchanges, self._marks, self._runs = (
            tape.pieces,
            tape.exchanges,
            self._marks.in_graph(),
            True,
        )
        try:
            yield tape
        finally:
            self._pieces, self._exchanges, self._marks, self._runs = before

    def repeat(self, tape: Tape) -> None:
        """Note the phases and exchanges of a step that was replayed, once in an epoch: a replay moves all marks."""
        self._pieces += tape.pieces
        self._exchanges += tape.exchanges if self._runs else []

    def begin_exchange(self) -> object:
        """A mark before an exchange; None if the host has to time the exchange: the caller then waits for its end."""
        timed = self._marks is not None and self._runs and threading.get_ident() == self._thread
        return self._marks.mark() if timed and self._marks is not None else None

    def end_exchange(self, tag: Tag, start: object) -> None:
        """Note the end of an exchange that began at the mark `start`."""
        assert self._marks is not None
        self._exchanges.append((tag, start, self._marks.mark()))

    def note_collective(self, start: float, end: float) -> None:
        """Record when a collective call ran, if it ran on another thread than the training loop's."""
        if threading.get_ident() != self._thread:
            self._record().stretches.append(Stretch("comm", start, end))

    def note_crossing(self, what: Crossing, seconds: float) -> None:
        """Add seconds of a copy between memories. They stay in the current phase as well."""
        self._crossings[what] = self._crossings.get(what, 0.0) + seconds

    @property
    def current(self) -> Phase | None:
        """The innermost phase of the training loop, or None outside of phases."""
        return self._stack[-1] if self._stack else None

    def charge_wait(self, stretches: Sequence[Stretch], waiting: Phase, asked: float, got: float) -> None:
        """Account for a result of another thread. The training loop waited for it from `asked` to `got`.

        The thread's phases during the wait were exposed: the wait, which was the last phase and is timed as `waiting`,
        is charged to them. The thread's phases before the wait were hidden.
        """
        last = self._pieces[-1]
        assert last.phase == waiting and not last.behind, "the wait was the last phase"
        last.waited = got - asked
        last.behind = [
            (what, end - start, max(0.0, min(end, got) - max(start, asked))) for what, start, end in stretches
        ]

    @property
    def failed_in(self) -> Phase | None:
        """The innermost phase in which the last error was raised, in the thread that raised it first."""
        return None if self._failed is None else self._failed[0]

    def _fail(self, name: Phase, error: BaseException | None) -> None:
        if self._failed is None or self._failed[1] is not error:
            aside = (found for found in self._failed_aside if found[1] is error)
            self._failed = next(aside, (name, error))

    def _settle(self) -> None:
        """Wait until the device has done all work, if there is one."""
        if self._marks is not None:
            self._marks.pass_all()
        elif self._synchronize is not None:
            self._synchronize()

    def _boundary(self, *, settles: bool = True) -> None:
        """Charge the time since the last one to the innermost phase."""
        if self._marks is not None:
            now: Any = self._marks.mark()
        else:
            if settles:
                self._settle()
            now = self._clock()
        if self._stack:
            self._pieces.append(_Piece(self._stack[-1], self._mark, now))
        self._mark = now

    def _seconds(self, start: Any, end: Any) -> float:  # noqa: ANN401
        return float(end - start) if self._marks is None else self._marks.seconds(start, end)

    def _enter(self, name: Phase) -> None:
        self._boundary()
        self._stack.append(name)
        self.activity.marks += 1

    def _exit(self) -> None:
        self._boundary()
        self._stack.pop()


class _Record:
    """Records the exclusive phases of another thread, with start and end."""

    def __init__(self, clock: Callable[[], float], failed: list[tuple[Phase, BaseException | None]]) -> None:
        self.stretches: list[Stretch] = []
        self._failed = failed
        self._stack: list[Phase] = []
        self._clock = clock
        self._mark = 0.0

    def _fail(self, name: Phase, error: BaseException | None) -> None:
        """Note the failed phase for the training loop, which raises the error again. The innermost phase is first."""
        self._failed.append((name, error))

    def _enter(self, name: Phase) -> None:
        self._cut()
        self._stack.append(name)

    def _exit(self) -> None:
        self._cut()
        self._stack.pop()

    def _cut(self) -> None:
        now = self._clock()
        if self._stack:
            self.stretches.append(Stretch(self._stack[-1], self._mark, now))
        self._mark = now


class _Span:
    """The context manager of one entry into a phase."""

    __slots__ = ("_name", "_timer")

    def __init__(self, timer: PhaseTimer | _Record, name: Phase) -> None:
        self._timer, self._name = timer, name

    def __enter__(self) -> None:
        self._timer._enter(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._timer._fail(self._name, error)
        self._timer._exit()
