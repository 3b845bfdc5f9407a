"""Values applied to a choice of groups that was kept are what Hydra makes of the whole line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from gnnexp.config.composition import _composed, composed_by_hydra, composition
from gnnexp.config.folders import find_folders
from gnnexp.errors import ConfigError

# It may add files: the whole line is composed by Hydra itself.
BY_HYDRA = "hydra.searchpath=[]"

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
    calls = [
        (
            _whole(_composed(folders, lines, folders.listing())),
            composition(folders, lines, final=False),
            composition(folders, lines, final=True),
        )
        for _ in range(2)
    ]  # the second call finds the groups kept
    everything = _whole(composed_by_hydra(folders, lines))
    draft, whole = (composition(folders, [*lines, BY_HYDRA], final=final) for final in (False, True))
    for found, drafted, made in calls:
        assert found == everything
        assert drafted == draft
        assert made.config == whole.config and made.choices == whole.choices
        assert made.run_dir.rpartition("-")[2] == whole.run_dir.rpartition("-")[2]


def _whole(composed: DictConfig) -> dict[Any, Any]:
    """With Hydra's own node: overrides, choices, folders, names."""
    contents = OmegaConf.to_container(composed)
    assert isinstance(contents, dict)
    return contents


def test_folders_and_variables_are_those_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "mine.yaml").write_text("# @package _global_\nhydra:\n  job:\n    env_copy: [PLANTED]\n")
    folders = find_folders(str(tmp_path))
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        monkeypatch.chdir(tmp_path / place)
        monkeypatch.setenv("PLANTED", place)
        made = _composed(folders, ["system=mine", "seed=1"], folders.listing())
        assert place == made.hydra.job.env_set.PLANTED and made.hydra.runtime.cwd == str(tmp_path / place)


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    """Also one of the same size and time: some file systems and copies keep them."""
    (tmp_path / "hardware").mkdir()
    folders = find_folders(str(tmp_path))
    for workers in (2, 3):
        (tmp_path / "hardware" / "mine.yaml").write_text(f"workers: {workers}\n")
        os.utime(tmp_path / "hardware" / "mine.yaml", (1, 1))
        assert composition(folders, ["hardware=mine", "seed=1"], final=True).config["hardware"]["workers"] == workers


def test_further_folders_of_a_file_may_have_groups(tmp_path: Path) -> None:
    """`hydra.searchpath` of the file that Hydra starts from: its groups are not among ours."""
    (tmp_path / "more" / "further").mkdir(parents=True)
    (tmp_path / "more" / "further" / "one.yaml").write_text("width: 5\n")
    (tmp_path / "mine.yaml").write_text(
        f"defaults: [base, _self_]\nhydra:\n  searchpath: ['file://{tmp_path / 'more'}']\n"
    )
    folders = find_folders(str(tmp_path), "mine")
    made = composition(folders, ["+further=one", "seed=1"], final=True)
    assert made.config["further"] == {"width": 5} and made.config["seed"] == 1


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
        "# @package _global_\nhydra:\n  run:\n    dir: runs/${hydra:job.override_dirname}\n"
    )
    folders = find_folders(str(tmp_path))
    for more in (["seed=1"], ["seed=2", "train.epochs=3"]):
        made = composition(folders, ["system=mine", *more], final=True)
        assert made.run_dir == f"runs/{','.join(sorted([*more, 'system=mine']))}"
        assert made.config["seed"] == int(more[0][-1])


@pytest.mark.parametrize(
    "line",
    ["feature_store={width:4}", "~train.nothing", "~optimizer.lr=77", "train.nothing=1", "optimizer.lr.deeper=2"],
)
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
