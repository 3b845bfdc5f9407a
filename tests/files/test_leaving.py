"""A process that leaves at once: what was registered is done before, what streams hold is written, nothing is freed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import atexit, sys, threading, time
from gnnexp.files.leaving import Ending
class Freed:
    def __del__(self): print("freed")
ending, kept = Ending(), Freed()
kept.itself = kept
atexit.register(print, "registered")
threading.Thread(target=lambda: (time.sleep(0.1), print("joined"))).start()
print("held", end=" ")
ending.exit_code = {code}
sys.exit(7)
"""


@pytest.mark.parametrize(
    ("code", "ended", "said"), [(3, 3, "held joined\nregistered\n"), (None, 7, "held joined\nregistered\nfreed\n")]
)
@pytest.mark.interpreter
def test_a_process_leaves_with_its_own_code(code: int | None, ended: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(code=code)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (ended, said), done.stderr


@pytest.mark.interpreter
def test_a_stream_that_cannot_be_written_is_reported_by_python() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from gnnexp.files.leaving import Ending\nprint(1)\nEnding().exit_code = 0"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
    assert done.returncode == 120 and "No space left" in done.stderr
