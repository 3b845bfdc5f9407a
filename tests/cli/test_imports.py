"""What commands import: seconds of a start are modules, and modules can be counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch._dynamo", "torch", "numba", "scipy", "mlflow", "matplotlib", "hydra", "omegaconf", "sklearn", "duckdb",
         "pandas", "dgl")
DIGITS = ("dataset=digits", "train.epochs=1", "model.hidden=8", "tracker=none", "hydra.run.dir=run")
PLACE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
         "MASTER_PORT": "29501"}
RANK = f"""
import sys
from gnnexp import worker
worker.preload()
code = worker.main()
print("heavy:", *(name for name in {HEAVY!r} if name in sys.modules))
sys.exit(code)
"""
SCRIPT = f"""
import sys
from gnnexp.cli.main import run_command
code = run_command(sys.argv[1:])
print("heavy:", *(name for name in {HEAVY!r} if name in sys.modules))
sys.exit(code)
"""


@pytest.mark.parametrize("words", [["list"], ["list", "systems"], ["list", "runs"]], ids=" ".join)
@pytest.mark.interpreter
def test_a_command_that_only_lists_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], cwd=tmp_path, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy:"


def test_a_run_is_launched_without_figures_and_without_the_compiler_of_torch(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, "run", *DIGITS], cwd=tmp_path, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()[-1].split()[1:]) == {"torch", "numba", "scipy", "hydra", "omegaconf"}
    assert [file.name for file in (tmp_path / "run" / "figures").iterdir()] == ["breakdown.csv"]


def test_a_rank_trains_without_the_compiler_of_torch(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "gnnexp", "prepare", *DIGITS], cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run([sys.executable, "-c", RANK, "run"], cwd=tmp_path, env=os.environ | PLACE,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: torch numba scipy"
