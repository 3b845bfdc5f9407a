"""The lines of attempts, and who works on a run: asked without a right to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.errors import ConfigError
from gnnexp.record.attempts import ATTEMPTS_FILE, LOCK_FILE, alone, is_held, note, read_attempts


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
