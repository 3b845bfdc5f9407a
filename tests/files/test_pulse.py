"""Signs of life, and the end of processes that may not end."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from unkillable import unkillable

from gnnexp.files.pulse import kill, process_table

__all__ = ["unkillable"]

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.mark.interpreter
def test_a_killed_process_has_ended() -> None:
    process = subprocess.Popen(SLEEP)
    assert kill(process) and process.returncode is not None


@pytest.mark.interpreter
def test_nobody_waits_for_a_process_that_sigkill_does_not_end(unkillable: list[subprocess.Popen[Any]]) -> None:
    process = subprocess.Popen(SLEEP)
    assert not kill(process) and unkillable == [process]


@pytest.mark.interpreter
def test_children_have_their_numbers_in_the_same_table() -> None:
    command = [sys.executable, "-c", "from gnnexp.files.pulse import process_table; print(process_table())"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [process_table()]
