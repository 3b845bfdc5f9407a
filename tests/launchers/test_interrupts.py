"""Signals that are noted: none is lost, none raises, and what is to be ignored is ignored."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from launching import HERE, prepare

from gnnexp.components.schema import HardwareConfig
from gnnexp.launchers.interrupts import Interrupts, handling, noted
from gnnexp.launchers.local import LocalLauncher
from gnnexp.launchers.watch import Watchdog


def test_the_first_is_remembered_and_all_are_counted() -> None:
    before = signal.getsignal(signal.SIGINT)
    with noted() as asked:
        assert asked.first is None
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert (asked.first, asked.count) == (signal.SIGTERM, 2) and signal.getsignal(signal.SIGINT) is before


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with noted() as asked:
            signal.raise_signal(signal.SIGHUP)
        assert asked.count == 0 and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_after_the_ranks_have_ended_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    prepare(tmp_path, ["finish"])
    close = Watchdog.close

    def late(watchdog: Watchdog) -> None:
        signal.raise_signal(signal.SIGINT)
        close(watchdog)

    monkeypatch.setattr(Watchdog, "close", late)
    launcher = LocalLauncher("stub_worker")
    outcome = launcher.launch(tmp_path, HardwareConfig(workers=1, timeout_s=30.0))
    launcher.close()
    assert (outcome.status, outcome.asked) == ("finished", signal.SIGINT)


def test_another_thread_leaves_the_handlers_alone() -> None:
    """Only the main thread may set handlers; a run in another thread records no signal."""
    before = signal.getsignal(signal.SIGINT)

    def inside() -> tuple[object, Interrupts]:
        with noted() as found, handling({signal.SIGUSR2: print}):
            return signal.getsignal(signal.SIGINT), found

    with ThreadPoolExecutor(1) as pool:
        handler, found = pool.submit(inside).result()
    assert handler is before is signal.getsignal(signal.SIGINT) and (found.first, found.count) == (None, 0)
