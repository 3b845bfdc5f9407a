"""The keeper gives the command's exit code, passes signals on, and leaves no process, whatever the command does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launching import gone, wait_until

from gnnexp.launchers import keeper

# A child in a session of its own, as torchrun's workers are; its id is in a file.
ESCAPED = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open("child.tmp", "w").write(str(child.pid))
os.rename("child.tmp", "child")
"""


def start(*command: str, cwd: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-I", keeper.__file__, str(os.getpid()), *command]
    return subprocess.Popen(
        words, cwd=cwd, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def python(text: str, cwd: Path) -> subprocess.Popen[str]:
    return start(sys.executable, "-c", text, cwd=cwd)


def child_of(folder: Path) -> int:
    assert wait_until((folder / "child").exists, 30)
    return int((folder / "child").read_text())


@pytest.mark.parametrize(
    ("text", "code"),
    [("", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137), ("import os; os.abort()", 134)],
)
@pytest.mark.interpreter
def test_the_exit_code_is_that_of_the_command(tmp_path: Path, text: str, code: int) -> None:
    assert python(text, tmp_path).wait(30) == code


@pytest.mark.interpreter
def test_words_reach_the_command_as_they_are(tmp_path: Path) -> None:
    words = [";", "touch x", "$(touch x)", "`touch x`", "*", "$HOME", ">x", "a b"]
    process = start(sys.executable, "-c", "import sys; print(sys.argv[1:])", *words, cwd=tmp_path)
    assert process.communicate(timeout=30)[0] == f"{words}\n" and list(tmp_path.iterdir()) == []


@pytest.mark.interpreter
def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    process = start("./data", cwd=tmp_path)
    assert process.wait(30) == 127 and "cannot be started" in (process.stdout or sys.stdin).read()


@pytest.mark.interpreter
def test_a_child_that_is_left_is_killed(tmp_path: Path) -> None:
    process = python(ESCAPED, tmp_path)
    assert process.wait(30) == 0 and gone(child_of(tmp_path))
    assert "left 1 processes" in (process.stdout or sys.stdin).read()


@pytest.mark.interpreter
def test_the_command_may_end_by_itself_at_sigterm(tmp_path: Path) -> None:
    text = (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\nopen('child', 'w')\n"
        "time.sleep(600)"
    )
    process = python(text, tmp_path)
    assert wait_until((tmp_path / "child").exists, 30)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 5


@pytest.mark.interpreter
def test_sighup_kills_a_command_that_ignores_sigterm(tmp_path: Path) -> None:
    process = python(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + ESCAPED + "time.sleep(600)", tmp_path
    )
    child = child_of(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 128 + signal.SIGHUP and gone(child)


@pytest.mark.interpreter
def test_nothing_survives_the_death_of_the_rank(tmp_path: Path) -> None:
    rank = (
        "import os, subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-I', {keeper.__file__!r}, str(os.getpid()), sys.executable, '-c', "
        f"{ESCAPED + 'open(str(os.getpid()), chr(119)); time.sleep(600)'!r}], start_new_session=True).wait()"
    )
    process = subprocess.Popen([sys.executable, "-c", rank], cwd=tmp_path)
    child = child_of(tmp_path)
    assert wait_until(lambda: [file for file in tmp_path.iterdir() if file.name.isdigit()], 30)
    (command,) = (int(file.name) for file in tmp_path.iterdir() if file.name.isdigit())
    process.kill()
    process.wait()
    assert wait_until(lambda: gone(child) and gone(command), 30)


@pytest.mark.interpreter
def test_a_killed_keeper_takes_the_command_with_it(tmp_path: Path) -> None:
    process = python(
        "import os, time; open('child.tmp', 'w').write(str(os.getpid())); "
        "os.rename('child.tmp', 'child'); time.sleep(600)",
        tmp_path,
    )
    command = child_of(tmp_path)
    process.kill()
    process.wait()
    assert wait_until(lambda: gone(command), 30)
