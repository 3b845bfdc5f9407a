"""What commands import: seconds of a start are modules, and modules can be counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_folder import write_epochs, write_job, write_result

HEAVY = ("torch._dynamo", "torch", "numba", "scipy", "mlflow", "matplotlib", "hydra", "omegaconf", "sklearn", "duckdb",
         "pandas", "dgl")
DIGITS = ("dataset=digits", "train.epochs=1", "model.hidden=8", "tracker=none", "hydra.run.dir=run")
# The program of a rank, which says at its end what it has imported.
RANK = f"""
import sys
from pathlib import Path
from gnnexp import worker
from gnnexp.worker import learn, lesson, preload

def main():
    code = worker.main()
    Path(__file__).with_name("of_the_rank").write_text(" ".join(name for name in {HEAVY!r} if name in sys.modules))
    return code
"""
pytestmark = pytest.mark.interpreter

SCRIPT = f"""
import sys
from gnnexp.cli.main import run_command
code = run_command(sys.argv[1:])
print("heavy:", *(name for name in {HEAVY!r} if name in sys.modules))
sys.exit(code)
"""


def with_path(folder: Path) -> dict[str, str]:
    """The environment in which Python finds modules of `folder`."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}


def heavy(folder: Path, *words: str) -> set[str]:
    """The heavy modules that a command imports."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], cwd=folder, capture_output=True, text=True,
                          env=with_path(folder), check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("words", ["list", "list systems", "list runs", "status", "status runs/one", "logs runs/one"])
def test_a_command_that_reads_records_imports_nothing_heavy(words: str, tmp_path: Path) -> None:
    made_run(tmp_path / "runs" / "one")
    assert heavy(tmp_path, *words.split()) == set()


@pytest.mark.parametrize(("words", "imported"), [
    ("report", set()), ("report runs/one", {"matplotlib"})])
def test_a_report_reads_records_without_torch(words: str, imported: set[str], tmp_path: Path) -> None:
    made_run(tmp_path / "runs" / "one")
    assert heavy(tmp_path, *words.split()) == imported


def made_run(folder: Path) -> None:
    write_job(folder, date="2026-01-01T00:00:00")
    write_epochs(folder, 2)
    write_result(folder)


def test_a_run_is_launched_without_figures_and_trained_without_the_compiler_of_torch(tmp_path: Path) -> None:
    (tmp_path / "telling_worker.py").write_text(RANK)
    found = heavy(tmp_path, "run", *DIGITS, "hardware.launcher.worker_module=telling_worker")
    assert found == {"torch", "numba", "scipy", "hydra", "omegaconf"}
    assert (tmp_path / "of_the_rank").read_text() == "torch numba scipy"
    assert [file.name for file in (tmp_path / "run" / "figures").iterdir()] == ["breakdown.csv"]


def test_a_sweep_starts_one_process_for_the_ranks_of_all_its_cases(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"print(1, file=open({str(tmp_path / 'started')!r}, 'a'))\n")
    (tmp_path / "two.yaml").write_text(json.dumps({
        "description": "two cases", "fixed": list(DIGITS[:-1]), "axes": {"seed": [0, 1]}, "report": {"figures": []}}))
    subprocess.run([sys.executable, "-m", "gnnexp", "sweep", "two.yaml"], cwd=tmp_path, check=True, capture_output=True,
                   env=with_path(tmp_path))
    assert (tmp_path / "started").read_text().count("1") == 2, "the command, and the starter of its ranks"

