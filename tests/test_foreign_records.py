"""Records are read and never executed: nothing that they name is called, and none of it is imported."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from other_user import NOBODY, needs_root
from run_folder import write_epochs, write_job, write_result

from gnnexp.cli.main import run_command
from gnnexp.datasets.base import Dataset
from gnnexp.experiment.build import build

# A package that a record's author can hope for: importing it is seen, and so is making one of its classes.
HOSTILE = """
from pathlib import Path
from gnnexp.datasets.published.digits import Digits
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
    ["report"],
    ["report", "gift"],
    ["report", "runs/gift/one"],
    ["report", "runs/gift"],
    ["report", "--sync"],
    ["report", "compare", "runs/gift/one", "runs/gift/two"],
    ["report", "balance"],
    ["report", "gift", "--rows", "model"],
    ["status", "runs/gift/one"],
    ["logs", "runs/gift/one"],
    ["claims", "gsplit"],
    ["export", "gift", "--out", "out.parquet"],
    ["plan", "gift", "--hardware", "laptop"],
    ["resume", "runs/gift/one"],
    ["cancel", "runs/gift/one"],
    ["list", "runs"],
    ["status"],
    ["status", "gift"],
    ["sweep", "mine.yaml", "--dry-run"],
    ["sweep", "mine.yaml", "--dry-run", "--accept-foreign", "--changed-code"],
    ["rekey"],
    ["rekey", "--dry-run", "runs/gift"],
]
# These do what the record says, if it is the user's own.
ACTING = [
    ["resume", "runs/gift/one"],
    ["cancel", "runs/gift/one"],
    ["run", "--from", "runs/gift/one"],
    ["run", "--from", "runs/gift/one", "--cfg"],
    ["finalize", "runs/gift/one"],
    ["predict", "runs/gift/one"],
    ["export", "runs/gift/one", "--to", "pyg"],
]


@pytest.fixture
def gift(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sweep of two finished runs whose records name what is there and must not be executed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as for `python -m`
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    Path("hostile_package.py").write_text(HOSTILE)
    Path("mine.yaml").write_text("fixed: [dataset=digits, tracker=none]\naxes: {seed: [0]}\n")
    cases = []
    for name in ("one", "two"):
        folder = Path("runs/gift") / name
        write_job(folder, uid=name, dataset_key="of digits", run_key="of 0.1")
        job = json.loads((folder / "job.json").read_text())
        job["config"] |= _targets(job["config"])
        (folder / "job.json").write_text(json.dumps(job))
        write_epochs(folder, 2)
        write_result(folder)
        (folder / "inside.py").write_text(HOSTILE)
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
        "dataset": data,
        "tracker": SHELL,
        "hardware": {"workers": 2, "launcher": launcher},
        **{group: {**config.get(group, {}), "_target_": f"hostile_package.{group}", "x": [SHELL]} for group in groups},
        "scheduler": {"_target_": "runs.gift.one.inside.Data"},
    }


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_on_records(gift: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """That they may end in a problem with the tracker is another matter."""
    assert run_command(words) in (0, 1, 2)
    assert_nothing_of_it_was_imported(gift)
    assert "Traceback" not in capsys.readouterr().err


def assert_nothing_of_it_was_imported(gift: Path) -> None:
    assert not list(gift.rglob("executed*")) and not {"hostile_package", "runs.gift.one.inside"} & sys.modules.keys()


@needs_root
@pytest.mark.parametrize("words", ACTING, ids=" ".join)
def test_commands_that_act_refuse_the_records_of_another_user(
    gift: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (gift / "runs" / "gift").rglob("*"):
        os.chown(path, NOBODY, -1)
    assert run_command(words) == 2
    assert "belongs to nobody" in " ".join(capsys.readouterr().err.split())
    assert_nothing_of_it_was_imported(gift)


@pytest.mark.slow
def test_a_sweep_goes_on_with_its_own_configuration(gift: Path) -> None:
    """What a begun run of the same key names instead is neither imported nor called."""
    Path("mine.yaml").write_text("fixed: [dataset=digits, tracker=none, train.epochs=2]\naxes: {seed: [0]}\n")
    assert run_command(["sweep", "mine.yaml"]) == 0
    (run,) = Path("runs/mine").iterdir()
    (run / "result.json").unlink()
    job = json.loads((run / "job.json").read_text())
    hostile = _targets(job["config"])
    job["config"] |= {group: hostile[group] for group in ("tracker", "hardware")}
    (run / "job.json").write_text(json.dumps(job))
    assert run_command(["sweep", "mine.yaml"]) == 0
    assert json.loads((run / "result.json").read_text())["status"] == "finished"
    assert [path.name for path in Path("runs/mine").iterdir()] == [run.name]
    assert_nothing_of_it_was_imported(gift)


def test_what_a_record_names_is_seen_when_it_is_executed(gift: Path) -> None:
    """The same names in a configuration of one's own are imported and made: the tests above could fail."""
    build({"_target_": "hostile_package.Data"}, Dataset)
    del sys.modules["hostile_package"]
    assert {path.name for path in gift.glob("executed*")} == {"executed-import", "executed-class"}
