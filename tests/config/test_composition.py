"""Values applied to a choice of groups that was kept are what Hydra makes of the whole line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.config.composition import composition
from gnnexp.config.folders import find_folders
from gnnexp.errors import ConfigError

# A value of Hydra's own node: the whole line is composed by Hydra itself.
BY_HYDRA = "hydra.verbose=false"

LINES = (
    [],
    ["system=gsplit", "optimizer.lr=0.5", "sampler.fanouts=[3,2]"],
    ["model=gat", "train=planetoid_gat", "model.heads=2", "+model.mine={a:1,b:[2,3]}"],
    ["optimizer.lr=1", "optimizer.lr=2", "++optimizer.lr=3", "++train.more=4", "+train.most=5"],
    ["~model.dropout", "~optimizer.lr", "+optimizer.lr=${seed}", "seed=7"],
    ["name='a b'", "train.batch_size=null", "++feature_store={_target_:components.Store,width:4}"],
    ["hardware.workers=2", "task.dim=${model.hidden}", "model.hidden=12"],
    ["system=p3", "hydra.run.dir=runs/here", "optimizer.lr=1", "hydra.run.dir='runs/${model.hidden}, so-named'"],
    ["system=p3", "hydra.run.dir=runs/${hydra.job.name}-${hydra:runtime.choices.model}"],
)


@pytest.mark.parametrize("lines", LINES, ids=lambda lines: " ".join(lines) or "default")
def test_as_hydra_composes(lines: list[str]) -> None:
    folders = find_folders(None)
    lines = [f"+{line}" if line.startswith("task.dim") else line for line in lines]
    for _ in range(2):  # the second call finds the groups kept
        assert composition(folders, lines, final=False) == composition(folders, [*lines, BY_HYDRA], final=False)
        made, whole = composition(folders, lines, final=True), composition(folders, [*lines, BY_HYDRA], final=True)
        assert made.config == whole.config and made.choices == whole.choices
        assert made.run_dir.rpartition("-")[2] == whole.run_dir.rpartition("-")[2]


def test_files_may_name_the_run_directory(tmp_path: Path) -> None:
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "mine.yaml").write_text("folder_of_it: ${hydra:run.dir}/mine\n")
    folders = find_folders(str(tmp_path))
    for lines in (["name=a"], ["name=b"], ["hydra.run.dir=runs/c"], ["name=a"]):
        made = composition(folders, ["hardware=mine", *lines], final=True)
        assert made.config["hardware"]["folder_of_it"] == f"{made.run_dir}/mine"


def test_files_may_refer_to_what_was_typed(tmp_path: Path) -> None:
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "mine.yaml").write_text(
        "# @package _global_\nhydra:\n  run:\n    dir: runs/${hydra:job.override_dirname}\n")
    folders = find_folders(str(tmp_path))
    for more in (["seed=1"], ["seed=2", "train.epochs=3"]):
        made = composition(folders, ["system=mine", *more], final=True)
        assert made.run_dir == f"runs/{','.join(sorted([*more, 'system=mine']))}"
        assert made.config["seed"] == int(more[0][-1])


@pytest.mark.parametrize("line", [
    "feature_store={width:4}", "~train.nothing", "~optimizer.lr=77", "train.nothing=1", "optimizer.lr.deeper=2"])
def test_what_hydra_refuses_is_refused(line: str) -> None:
    for more in ([], [BY_HYDRA]):
        with pytest.raises(ConfigError):
            composition(find_folders(None), [line, *more], final=True)


def test_every_composition_has_its_own_time_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = find_folders(None)
    first = composition(folders, [], final=True)
    assert composition(folders, [], final=True).run_dir != first.run_dir
    lines = ["name=${hydra:runtime.cwd}"]
    assert composition(folders, lines, final=True).config["name"] != str(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert composition(folders, lines, final=True).config["name"] == str(tmp_path)
    first.config["optimizer"]["lr"] = "changed"
    assert composition(folders, [], final=True).config["optimizer"]["lr"] != "changed"
