"""The lines of attempts, and who works on a run: asked without a right to write."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from gnnexp.errors import ConfigError
from gnnexp.record.attempts import ATTEMPTS_FILE, LOCK_FILE, alone, holder, is_held, note, read_attempts


def test_a_line_that_was_not_written_whole_spoils_no_other(tmp_path: Path) -> None:
    note(tmp_path, "start")
    with (tmp_path / ATTEMPTS_FILE).open("a") as file:
        file.write('{"event": "en')  # the disk was full
    note(tmp_path, "start", restarts=1)
    note(tmp_path, "end")
    assert [line["event"] for line in read_attempts(tmp_path)] == ["start", "start", "end"]
    assert len((tmp_path / ATTEMPTS_FILE).read_text().splitlines()) == 4


def test_who_looks_whether_a_run_is_held_writes_nothing_and_disturbs_nobody(tmp_path: Path) -> None:
    assert not is_held(tmp_path) and not list(tmp_path.iterdir())
    with alone(tmp_path):
        (tmp_path / LOCK_FILE).chmod(0o444)
        assert is_held(tmp_path)
        with pytest.raises(ConfigError, match="another process is working on this run"), alone(tmp_path):
            raise AssertionError("two hold it")
    assert not is_held(tmp_path)
    with alone(tmp_path):
        assert is_held(tmp_path)


def test_the_lock_says_who_holds_it(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    with alone(tmp_path):
        found = holder(tmp_path)
    assert found is not None and (found.host, found.pid) == (platform.node(), os.getpid())
    for words in (b"", b"\xff", b"[]", b'{"host": "a"}', b'{"host": "a", "pid": "x", "started": 1}'):
        (tmp_path / LOCK_FILE).write_bytes(words)
        assert holder(tmp_path) is None


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to(path)], ids=["a FIFO", "a folder", "a loop of links"]
)
def test_a_lock_that_is_no_file_is_named_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / LOCK_FILE)
    with pytest.raises(ConfigError, match="remove it: it is only a lock"):
        is_held(tmp_path)
    with pytest.raises(ConfigError, match="remove it: it is only a lock"), alone(tmp_path):
        raise AssertionError("held")
