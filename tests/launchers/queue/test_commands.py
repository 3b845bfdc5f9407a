"""Commands of SLURM that fail, hang, or print what nobody should read whole."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fake_slurm import install

from gnnexp.launchers.queue.commands import plain_line, run_in_time


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_an_answer_is_text_without_a_failure(commands: Path) -> None:
    install(commands, "squeue", "echo '1|RUNNING'; echo 'a warning' >&2")
    reply = run_in_time(["squeue"])
    assert (reply.text, reply.words, reply.failure) == ("1|RUNNING\n", "a warning", "")


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        ("echo 1; exit 3", "squeue exited with code 3"),
        ("echo 1; echo 'Unable to contact slurm controller' >&2; exit 1", "squeue: Unable to contact slurm controller"),
        ("kill -9 $$", "squeue exited with code -9"),
        (r"printf 'bad\033[31m\000word\377' >&2; exit 1", "squeue: bad [31m word�"),
        ("yes", "squeue printed more than 16777216 bytes"),
        ("cat /dev/zero >&2", "squeue printed more than 65536 bytes"),
    ],
)
def test_what_is_no_answer_says_why(commands: Path, script: str, failure: str) -> None:
    install(commands, "squeue", script)
    reply = run_in_time(["squeue"])
    assert reply.failure == failure
    assert len(reply.text) < 1 << 25, "an endless answer is not read whole"


def test_a_command_that_is_missing_or_cannot_be_executed_is_no_answer(commands: Path) -> None:
    assert run_in_time(["no-such-command"]).failure.startswith("no-such-command cannot be started")
    install(commands, "squeue", "exit 0")
    (commands / "squeue").write_bytes(b"\x7fELF nonsense")
    assert "cannot be started" in run_in_time([str(commands / "squeue")]).failure
    assert run_in_time(["squeue", "\0"]).failure.startswith("squeue cannot be started")


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000",
        "exec sleep 1000",
        "trap '' TERM; sleep 1000 & wait",
        "sleep 1000 & exit 0",
        "exec >&- 2>&-; sleep 1000",
    ],
)
def test_a_command_that_hangs_is_killed_with_its_children(commands: Path, script: str) -> None:
    install(commands, "squeue", f"echo $$ > {commands}/pid; {script}")
    assert run_in_time(["squeue"], timeout_s=0.3).failure.startswith("squeue did not ")
    _assert_gone(int((commands / "pid").read_text()))


def test_an_interrupt_is_not_kept_waiting(commands: Path) -> None:
    # More than a pipe holds: it is being read when the signal comes.
    script = f"echo $$ > {commands}/pid; head -c 300000 /dev/zero; kill -USR1 {os.getpid()}; sleep 1000"
    install(commands, "squeue", script)
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_in_time(["squeue"], timeout_s=100.0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    _assert_gone(int((commands / "pid").read_text()))


def test_what_a_user_sets_for_squeue_hides_no_job(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_PARTITION", "other")
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    monkeypatch.setenv("SLURM_CONF", "/etc/other.conf")
    install(commands, "squeue", "env | sort")
    variables = run_in_time(["squeue"]).text.splitlines()
    assert "SLURM_CONF=/etc/other.conf" in variables and "SLURM_TIME_FORMAT=standard" in variables
    assert not [line for line in variables if line.startswith("SQUEUE_")]


def test_one_line_of_many_and_no_control_characters() -> None:
    assert plain_line("\n \x1b]0;title\x07\nsecond") == "]0;title"
    assert plain_line("x" * 10_000) == "x" * 200
    assert plain_line("") == plain_line("\n\n") == ""


def _assert_gone(group: int) -> None:
    """Killed processes go when the kernel has time for it."""
    end = time.monotonic() + 20.0
    while left := list(_alive_of(group)):
        assert time.monotonic() < end, f"{left} live on"
        time.sleep(0.05)


def _alive_of(group: int) -> Iterator[int]:
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
