"""The notebook runs from its first cell to its last, without Jupyter: in a `__main__` that has no file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "compare.ipynb"
RUNNER = """
import json, sys
for cell in json.load(sys.stdin)["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]))
"""


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "GNNEXP_CACHE": str(tmp_path / "cache"), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=NOTEBOOK.read_text(encoding="utf-8"),
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch ") > 5 and "test vertices" in done.stdout


def test_it_is_stored_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
