"""Plug-ins that are installed: their choices, what is wrong with some, and that the others work."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from installing import Install, installing

from gnnexp.cli.main import run_command
from gnnexp.cli.running.prepare import checked_config
from gnnexp.config.compose import compose
from gnnexp.config.folders import find_folders
from gnnexp.config.plugins import GROUP
from gnnexp.errors import ConfigError
from gnnexp.experiment.run_key import run_key
from gnnexp.provenance.code import code_of_config

MODULE = """
from dataclasses import dataclass
from gnnexp.models.sage import SAGEOptions


@dataclass(frozen=True)
class Mine(SAGEOptions):
    "A model."
"""
YAML = "# My model.\n_target_: {}.Mine\nlayers: 3\n"
DIGITS = ("dataset=digits", "tracker=none")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs plug-ins. The packages `good` and `other` have `model=good` and `model=other`; `bad` has a file more."""
    install = installing(tmp_path, monkeypatch, GROUP)
    for name in ("good", "other", "bad"):
        write(tmp_path, name, f"model/{name}", YAML.format(f"{name}.mine"))
        (tmp_path / "site" / name / "__init__.py").write_text("")
        (tmp_path / "site" / name / "mine.py").write_text(MODULE)
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delitem(sys.modules, f"{name}.mine", raising=False)
    return install


def write(tmp_path: Path, package: str, choice: str, text: str) -> Path:
    file = tmp_path / "site" / package / "conf" / f"{choice}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def refusal_of(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        checked_config((*DIGITS, *overrides), None)
    assert len(caught.value.problems) == 1
    return str(caught.value)


def test_a_choice_is_listed_with_its_package_and_imported_only_if_it_is_chosen(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("good-models", good="good")
    assert run_command(["list", "models", "--json"]) == 0
    choices = {line["name"]: line for line in json.loads(capsys.readouterr().out)["choices"]}
    assert choices["good"]["about"] == "My model." and choices["good"]["package"] == "good-models 1.0"
    assert choices["gcn"]["package"] == choices["gcn"]["file"] == ""
    assert "did you mean model=good?" in refusal_of("model=godo") and "good" not in sys.modules
    assert checked_config((*DIGITS, "model=good"), None).composed.config["model"]["_target_"] == "good.mine.Mine"
    assert "good.mine" in sys.modules


def test_a_users_file_comes_before_a_plug_ins(install: Install, tmp_path: Path) -> None:
    install("good-models", good="good")
    own = Path("conf/model/good.yaml")
    own.parent.mkdir(parents=True)
    own.write_text(YAML.format("good.mine").replace("3", "5"))
    assert compose(["model=good"]).config["model"]["layers"] == 5


def test_the_key_of_a_run_has_the_code_of_the_plug_in(install: Install, tmp_path: Path) -> None:
    def key() -> str:
        config = compose([*DIGITS, "model=good"]).config
        code = code_of_config(config)
        assert list(code.own) == ["good-models==1.0"]
        return run_key(config, "a data set", code)

    install("good-models", good="good")
    before = key()
    assert key() == before
    (tmp_path / "site" / "good" / "mine.py").write_text(MODULE + "\n\nMORE = 1\n")
    assert key() != before


BAD = {
    "yaml": ("bad/conf/model/worse.yaml", "a: [", "is not YAML"),
    "group": ("bad/conf/modle/worse.yaml", "a: 1", "must be in a folder of a group"),
    "no group": ("bad/conf/worse.yaml", "a: 1", "must be in a folder of a group"),
    "taken": ("bad/conf/model/gcn.yaml", "a: 1", "gnnexp has model/gcn.yaml itself"),
    "start": ("bad/conf/config.yaml", "a: 1", "must be in a folder of a group"),
    "aliases": ("bad/conf/model/worse.yaml", "a: &a [*a]", "inside of itself"),
    "another has it": ("other/conf/model/bad.yaml", "a: 1", "has model/bad.yaml, too"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_leaves_its_plug_in_out_and_the_rest_works(
    install: Install, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, text, says = BAD[case]
    package, _, choice = name.removesuffix(".yaml").partition("/conf/")
    file = write(tmp_path, package, choice, text)
    install("bad-models", bad="bad")
    install("other-models", other="other")
    install("good-models", good="good")
    said = refusal_of("model=bad")
    assert "bad-models 1.0" in said and says in said and said.count("fix:") == 1
    assert "pip uninstall bad-models" in said and (str(file) in said or case == "another has it")
    assert not capsys.readouterr().err, "what is refused is not noted, too"
    assert checked_config((*DIGITS, "model=good"), None).composed.config["model"]["_target_"] == "good.mine.Mine"
    checked_config((*DIGITS, "model=gcn"), None)
    notes = capsys.readouterr().err
    assert notes.count("note: left out: plug-in bad ") == 1 and says in notes
    assert ("plug-in other" in notes) == (case == "another has it")


@pytest.mark.parametrize("value", ["not_there", "good.nothing", "json", "good:Mine", "no reference!", ""])
def test_an_entry_point_without_a_folder_is_named(
    install: Install, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install("bad-models", bad=value)
    install("other-models", other="other")
    assert run_command(["list", "models", "--json"]) == 0
    printed = capsys.readouterr()
    assert f"plug-in bad (bad-models 1.0)='{value}': must be an installed package with a folder conf/" in printed.err
    assert "pip uninstall bad-models" in printed.err and '"other"' in printed.out


def test_two_plug_ins_of_one_name_are_left_out(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("good-models", mine="good")
    install("other-models", mine="other")
    assert "good-models, other-models several installed packages have plug-ins of this name" in refusal_of("model=good")
    checked_config((*DIGITS, "model=gcn"), None)
    assert capsys.readouterr().err.count("several installed packages") == 1


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("bad.gone.Mine", "module bad.gone does not exist"),
        ("bad.mine.Gone", "has no class or function Gone"),
        ("bad.raising.Mine", "importing it raised"),
        ("collections.Counter", "standard library"),
    ],
)
def test_a_class_that_cannot_be_imported_is_named_with_package_and_file(
    install: Install, tmp_path: Path, target: str, says: str
) -> None:
    (tmp_path / "site" / "bad" / "raising.py").write_text("raise SystemExit\n")
    file = write(tmp_path, "bad", "model/bad", f"_target_: {target}\n")
    install("bad-models", bad="bad")
    said = refusal_of("model=bad")
    assert f"model._target_='{target}'" in said and says in said and said.count("fix:") == 1
    assert f"plug-in bad (bad-models 1.0), {file}" in said and "pip uninstall bad-models" in said
    checked_config((*DIGITS, "model=gcn"), None)


def test_a_file_that_names_a_lost_choice_says_where_it_is(install: Install, tmp_path: Path) -> None:
    """Hydra reports that a file of a defaults list is missing. The plug-in that has it is left out."""
    write(tmp_path, "bad", "modle/worse", "a: 1")
    install("bad-models", bad="bad")
    system = Path("conf/system/ours.yaml")
    system.parent.mkdir(parents=True)
    system.write_text("# @package _global_\ndefaults:\n  - override /model: bad\n")
    with pytest.raises(ConfigError) as caught:
        checked_config((*DIGITS, "system=ours"), None)
    assert "is in the plug-in bad (bad-models 1.0), which is left out" in str(caught.value)


def test_metadata_in_the_current_folder_are_ignored(install: Install, tmp_path: Path) -> None:
    install("good-models", tmp_path / "here", good="good")
    assert "good" not in find_folders(None).choices("model")


def test_a_plug_in_that_is_found_twice_is_one(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editable installation may stand next to an earlier one."""
    install("good-models", good="good")
    install("good-models", tmp_path, good="an_older")
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    assert [plugin.conf.parent.name for plugin in find_folders(None).plugins.working] == ["good"]


def test_a_run_whose_plugin_is_uninstalled_says_how_it_goes_on(
    tmp_path: Path, install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Resumed, it names the distribution with its version; a new run names the package."""
    install("good-models", good="good")
    assert run_command(["prepare", *DIGITS, "model=good", "hydra.run.dir=begun"]) == 0
    (tmp_path / "site").rename(tmp_path / "gone")
    for name in ("good", "good.mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    capsys.readouterr()
    assert run_command(["resume", "begun"]) == 2
    said = capsys.readouterr().err
    assert "module good.mine does not exist" in said or "module good does not exist" in said
    assert "fix: install the package that has good, put it on PYTHONPATH, or correct the name" in said
    assert "it began with good-models==1.0, which Python does not find any more" in said
    assert "install that again from where you had it, then: gnnexp resume begun" in said and "pip" not in said
    assert "start a new run" not in said
    assert run_command(["run", *DIGITS, "model._target_=good.mine.Mine"]) == 2
    assert "install the package that has good, put it on PYTHONPATH, or correct the name" in capsys.readouterr().err
    (tmp_path / "gone").rename(tmp_path / "site")
    run_command(["resume", "begun", "hardware.launcher.worker_module=pretending_worker"])
    assert "going on with begun" in capsys.readouterr().out
