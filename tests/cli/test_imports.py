"""What commands import: seconds of a start are modules, and modules can be counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "numba", "scipy", "mlflow", "matplotlib", "hydra", "omegaconf", "sklearn", "duckdb", "pandas", "dgl")
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
