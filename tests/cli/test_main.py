"""The process around the command line: what Ctrl-C does before, while and after a command answers it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from gnnexp.cli.main import run_command

# A shell that runs the tests in the background has SIGINT ignored, and Python then leaves it so.
_START = """
import atexit, os, signal, sys
signal.signal(signal.SIGINT, {handler})
sys.argv = ["gnnexp"]
from gnnexp.__main__ import main
"""
_AFTER = (
    _START
    + """
import gnnexp.__main__
run_command = gnnexp.__main__.run_command
def interrupted_later(arguments):
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
    return run_command(arguments)
gnnexp.__main__.run_command = interrupted_later
sys.exit(main())
"""
)
_WHILE = (
    _START
    + """
import gnnexp.__main__
gnnexp.__main__.run_command = lambda arguments: signal.raise_signal(signal.SIGINT)
sys.exit(main())
"""
)


@pytest.mark.parametrize(
    ("script", "handler", "codes"),
    [
        (_AFTER, "signal.default_int_handler", (-2, 130)),
        (_AFTER, "signal.SIG_IGN", (2,)),
        (_WHILE, "signal.default_int_handler", (130,)),
    ],
    ids=["after", "after, ignored", "while"],
)
@pytest.mark.interpreter
def test_ctrl_c_has_no_traceback(script, handler, codes):
    ended = subprocess.run(
        [sys.executable, "-c", script.format(handler=handler)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode in codes and "Traceback" not in ended.stderr, (ended.returncode, ended.stderr)


@pytest.mark.parametrize("ignored", [True, False])
def test_a_command_in_the_background_of_a_script_says_how_to_end_it(
    ignored: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        assert run_command(["resume", "no such run"]) == 2
        assert run_command(["run", "--dry-run", "train.epochs=0"]) == 2
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.count(f"kill {os.getpid()}") == int(ignored)
