"""What commands import: seconds of a start are modules, and modules can be counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_folder import write_epochs, write_job, write_result

HEAVY = (
    "torch._dynamo",
    "torch",
    "numba",
    "scipy",
    "mlflow",
    "matplotlib",
    "hydra",
    "omegaconf",
    "sklearn",
    "duckdb",
    "pandas",
    "dgl",
)
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

# Commands one after another, and what has been imported after each.
SCRIPT = f"""
import json, sys
from gnnexp.cli.main import run_command
for words in json.loads(sys.argv[1]):
    code = run_command(words)
    print("heavy:", code, *(name for name in {HEAVY!r} if name in sys.modules))
"""


def heavy(folder: Path, *commands: list[str]) -> list[set[str]]:
    """The heavy modules that are there after each of the commands, in one interpreter."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(commands)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    said = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("heavy: ")]
    assert [code for code, *_ in said] == ["0"] * len(commands), done.stderr
    return [set(names) for _, *names in said]


def test_commands_that_read_records_import_nothing_heavy(tmp_path: Path) -> None:
    """Only a report with figures needs matplotlib."""
    made_run(tmp_path / "runs" / "one")
    commands = (
        "list",
        "list systems",
        "list runs",
        "status",
        "status runs/one",
        "logs runs/one",
        "report",
        "report runs/one",
    )
    found = heavy(tmp_path, *(words.split() for words in commands))
    assert dict(zip(commands, found, strict=True)) == {
        **{words: set() for words in commands},
        "report runs/one": {"matplotlib"},
    }


def made_run(folder: Path) -> None:
    write_job(folder, date="2026-01-01T00:00:00")
    write_epochs(folder, 2)
    write_result(folder)


def test_a_run_and_a_sweep_start_a_process_each_and_import_what_they_need(tmp_path: Path) -> None:
    """A run draws no figures, no rank imports torch's compiler, and all cases of a sweep share what ranks import."""
    (tmp_path / "telling_worker.py").write_text(RANK)
    (tmp_path / "sitecustomize.py").write_text(f"print(1, file=open({str(tmp_path / 'started')!r}, 'a'))\n")
    (tmp_path / "two.yaml").write_text(
        json.dumps(
            {
                "description": "two cases",
                "fixed": list(DIGITS[:-1]),
                "axes": {"seed": [0, 1]},
                "report": {"figures": []},
            }
        )
    )
    of_the_run, _ = heavy(
        tmp_path, ["run", *DIGITS, "hardware.launcher.worker_module=telling_worker"], ["sweep", "two.yaml"]
    )
    assert of_the_run == {"torch", "numba", "scipy", "hydra", "omegaconf"}
    assert (tmp_path / "of_the_rank").read_text() == "torch numba scipy"
    assert [file.name for file in (tmp_path / "run" / "figures").iterdir()] == ["breakdown.csv"]
    assert (tmp_path / "started").read_text().count("1") == 3, "the commands, and a starter of ranks for each"
