"""The last word of a rank whose disk accepts none: torchrun shows what ranks write to standard error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RANK = """
import sys
from gnnexp.errors import ConfigError, Problem
from gnnexp.training.rank import as_rank

def work(*_):
    {body}

sys.argv[1:] = [{folder!r}]
sys.exit(as_rank(work))
"""


@pytest.mark.interpreter
@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (
            "raise ConfigError(Problem('seed', -1, 'must be positive', 'seed=0'))",
            2,
            "rank 0 failed: ConfigError: seed=-1",
        ),
        ("return ''", 74, "rank 0 has ended, and could not write how: "),
    ],
)
def test_a_rank_without_room_for_its_last_word_says_it(tmp_path: Path, body: str, code: int, said: str) -> None:
    (tmp_path / "status").write_text("a file in the way of the folder")
    done = subprocess.run(
        [sys.executable, "-c", RANK.format(body=body, folder=str(tmp_path))],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr
