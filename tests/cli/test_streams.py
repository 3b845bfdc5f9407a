"""Commands whose standard streams are closed, or whose folder is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parents[2])


@pytest.mark.parametrize(
    "closed", [*(pytest.param(one, marks=pytest.mark.slow) for one in (">&-", "2>&-", "<&-")), "<&- >&- 2>&-"]
)
@pytest.mark.interpreter
def test_closed_streams_change_nothing(tmp_path: Path, closed: str) -> None:
    command = f"PYTHONPATH={HERE} {sys.executable} -m gnnexp run --cfg dataset=digits {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "Traceback" not in done.stdout + done.stderr


@pytest.mark.interpreter
def test_a_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    command = f"cd gone && rmdir ../gone && PYTHONPATH={HERE} {sys.executable} -m gnnexp status {tmp_path}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr == (
        "gnnexp: the current folder was removed: go to an existing folder\n"
    )
