"""Records are read and never executed: nothing that they name is called, and none of it is imported."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.datasets.base import Dataset
from gnnexp.experiment.build import build

# A package that a record's author can hope for: importing it is seen, and so is making one of its classes.
HOSTILE = """
from pathlib import Path
from gnnexp.datasets.digits import Digits
from gnnexp.launchers.local import LocalLauncher
Path("executed-import").touch()

class Data(Digits):
    def __init__(self, **options):
        Path("executed-class").touch()

class Launcher(LocalLauncher):
    def __init__(self, **options):
        Path("executed-class").touch()
"""
SHELL = {"_target_": "torch.utils.collect_env.run", "command": "touch executed-function"}
COMMANDS = [
    ["report"], ["report", "gift"], ["report", "runs/gift/one"], ["report", "runs/gift"], ["report", "--sync"],
    ["report", "compare", "runs/gift/one", "runs/gift/two"], ["report", "balance"],
    ["report", "gift", "--rows", "model"],
    ["status", "runs/gift/one"], ["logs", "runs/gift/one"], ["claims", "gsplit"],
    ["export", "gift", "--out", "out.tar.xz"], ["plan", "gift", "--hardware", "laptop"],
    ["resume", "runs/gift/one"], ["cancel", "runs/gift/one"],
]


@pytest.fixture
def gift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep of two finished runs whose records name what is there and must not be executed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    Path("hostile_package.py").write_text(HOSTILE)
    cases = []
    for name in ("one", "two"):
        folder = Path("runs/gift") / name
        write_job(folder, uid=name, dataset_key="of digits")
        job = json.loads((folder / "job.json").read_text())
        job["config"] |= _targets(job["config"])
        (folder / "job.json").write_text(json.dumps(job))
        write_epochs(folder, 2)
        write_result(folder)
        cases.append({"label": name, "run_dir": str(folder), "status": "finished", "reason": "", "key": name})
    Path("runs/sweeps").mkdir()
    state = {"schema": 1, "name": "gift", "description": "", "command": "", "report": {}, "cases": cases}
    Path("runs/sweeps/gift.json").write_text(json.dumps(state))
    return tmp_path


def _targets(config: dict[str, Any]) -> dict[str, Any]:
    data = {"_target_": "hostile_package.Data", "name": "digits", "seed": SHELL}
    launcher = {"_target_": "hostile_package.Launcher", "parameters": SHELL}
    groups = ("partitioner", "sampler", "feature_store", "model", "task", "paradigm")
    return {
        "dataset": data, "tracker": SHELL, "hardware": {"workers": 2, "launcher": launcher},
        **{group: {**config.get(group, {}), "_target_": f"hostile_package.{group}", "x": [SHELL]} for group in groups},
    }


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_on_records(gift: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """That they may end in a problem with the tracker is another matter."""
    assert run_command(words) in (0, 1, 2)
    assert not list(gift.rglob("executed*")) and "hostile_package" not in sys.modules, words
    assert "Traceback" not in capsys.readouterr().err


def test_what_a_record_names_is_seen_when_it_is_executed(gift: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same names in a configuration of one's own are imported and made: the tests above could fail."""
    monkeypatch.syspath_prepend(gift)
    build({"_target_": "hostile_package.Data"}, Dataset)
    del sys.modules["hostile_package"]
    assert {path.name for path in gift.glob("executed*")} == {"executed-import", "executed-class"}
