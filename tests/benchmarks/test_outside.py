"""`benchmarks/outside.py`: no file names a path of the machine where it was made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "outside.py"


def found(*files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *map(str, files)], capture_output=True, text=True, check=False)


@pytest.mark.interpreter
def test_this_repository_points_nowhere_outside() -> None:
    done = found()
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "line",
    [
        '"cwd": "/tmp/bench",',
        "see ../shared/layer_contract.md",
        "GNNEXP_DATA=/work/data gnnexp run",
        "open('/home/me/x.csv')",
    ],
)
@pytest.mark.interpreter
def test_a_path_of_one_machine_is_found(tmp_path: Path, line: str) -> None:
    file = tmp_path / "some.md"
    file.write_text(f"first\n{line}\n")
    done = found(file)
    assert done.returncode == 1 and f"{file}:2: " in done.stdout


@pytest.mark.parametrize("line", ["$HOME/work/x", "https://a.org/home/x", "a/tmp/x", "/dev/shm/x", "{folder}/tmp/x"])
@pytest.mark.interpreter
def test_other_paths_are_not(tmp_path: Path, line: str) -> None:
    file = tmp_path / "some.md"
    file.write_text(line)
    assert found(file).returncode == 0, found(file).stdout
