"""A file that was edited twice within a second: Python must not execute what it compiled of the first edit."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from gnnexp.errors import DataError
from gnnexp.provenance import bytecode
from gnnexp.provenance.bytecode import drop_if_stale
from gnnexp.provenance.code import code_of

WRITTEN = 1_700_000_000


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that was compiled, and then edited: its time and its size are those of before."""
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "mytwice.py"
    _write(file, "rate = 1\n")
    py_compile.compile(str(file))
    _write(file, "rate = 2\n")
    assert _executed(file) == "1", "Python executes what it has compiled"
    return file


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    os.utime(file, (WRITTEN, WRITTEN))


def _executed(file: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(file.parent)}
    command = [sys.executable, "-c", f"import {file.stem} as m; print(m.rate)"]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.interpreter
def test_the_code_that_is_recorded_is_the_code_that_is_executed(edited: Path) -> None:
    code_of([edited.stem])
    assert _executed(edited) == "2"


def test_what_is_right_stays(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def rate(x, *, y=(1, {2})):\n    return [lambda: x for _ in y]\n")
    compiled = [
        Path(py_compile.compile(str(file), invalidation_mode=mode))
        for mode in (py_compile.PycInvalidationMode.TIMESTAMP, py_compile.PycInvalidationMode.UNCHECKED_HASH)
    ]
    before = compiled[1].read_bytes()
    drop_if_stale(file)
    assert compiled[1].read_bytes() == before


@pytest.mark.interpreter
def test_what_cannot_be_removed_is_named(edited: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(bytecode.Path, "unlink", refuse)
    with pytest.raises(DataError, match=f"touch {edited}"):
        drop_if_stale(edited)
