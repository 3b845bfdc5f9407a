"""A store that does not answer is left alone for a while; one that refuses at once is asked for every run."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from recording_tracker import RecordingTracker

from gnnexp.trackers import patience as module
from gnnexp.trackers.base import AwayError, TrackingError
from gnnexp.trackers.mlflow import MlflowTracker
from gnnexp.trackers.patience import Patience

RUN = Path("run")


class Clock:
    """A monotonic clock that moves only when somebody waits."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def store(clock: Clock, waits_s: float, error: Callable[[float], Exception]) -> SimpleNamespace:
    """A delivery that fails after a wait, and counts how often it was tried."""
    asked = SimpleNamespace(count=0)

    def deliver() -> bool:
        asked.count += 1
        clock.now += waits_s
        raise error(waits_s)

    asked.deliver = deliver
    return asked


def away(waited_s: float) -> AwayError:
    return AwayError("the store is silent", waited_s)


def tried(patience: Patience, asked: SimpleNamespace, runs: int) -> str:
    words = ""
    for _ in range(runs):
        with pytest.raises(TrackingError) as caught:
            patience.ask(RecordingTracker(), asked.deliver)
        words = str(caught.value)
    return words


def test_of_many_runs_one_waits_for_a_silent_store(clock: Clock) -> None:
    asked, began = store(clock, 20.0, away), clock.now
    words = tried(Patience(), asked, 1000)
    assert (asked.count, clock.now - began) == (1, 20.0)
    assert words.startswith("the store is silent") and "not asked again" in words


@pytest.mark.parametrize(("waits_s", "pause_s"), [(2.0, 20.0), (20.0, 60.0)])
def test_it_is_asked_again_after_a_while(clock: Clock, waits_s: float, pause_s: float) -> None:
    asked, patience = store(clock, waits_s, away), Patience()
    tried(patience, asked, 2)
    clock.now += pause_s - 0.1
    tried(patience, asked, 1)
    assert asked.count == 1
    clock.now += 0.2
    tried(patience, asked, 1)
    assert asked.count == 2


def test_what_refuses_at_once_is_asked_for_every_run(clock: Clock) -> None:
    asked = store(clock, 0.3, away)
    tried(Patience(), asked, 5)
    assert asked.count == 5


def test_a_run_that_is_not_accepted_says_nothing_of_the_next_one(clock: Clock) -> None:
    asked = store(clock, 20.0, lambda _: TrackingError("a run with a wrong name"))
    tried(Patience(), asked, 5)
    assert asked.count == 5


def test_another_store_is_asked(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, patience = store(clock, 20.0, away), Patience()
    tried(patience, asked, 2)
    monkeypatch.setattr(RecordingTracker, "where", lambda self: "another")
    tried(patience, asked, 1)
    assert asked.count == 2


@contextmanager
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_never_answers_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with silent_server() as address:
        tracker = MlflowTracker(uri=address, timeout_s=0.3)
        with pytest.raises(AwayError) as caught:
            Patience().ask(tracker, partial(tracker.deliver, tmp_path))
    assert "no whole answer within 0.3 s" in str(caught.value) and 0.3 <= caught.value.waited_s < 30
