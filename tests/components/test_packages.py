"""A package that is missing is named before anything starts, with the command that installs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from lacking import environment_without

import gnnexp
from gnnexp.cli.main import run_command
from gnnexp.cli.running.prepare import checked_config
from gnnexp.components import packages
from gnnexp.components.packages import EXTRAS, OF_COMMANDS, PLUGINS, REQUIREMENTS, install_command, is_installed
from gnnexp.errors import ConfigError

PROJECT = tomllib.loads((Path(gnnexp.__file__).parents[1] / "pyproject.toml").read_text())["project"]


def _name(requirement: str) -> str:
    found = re.match(r"[\w-]+", requirement)
    assert found is not None
    return found.group()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path_factory.getbasetemp() / "packages-cache"))
    return tmp_path


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)
        for module, found in list(sys.modules.items()):
            if module.startswith("gnnexp.") and hasattr(found, name):  # imported by an earlier test of this process
                monkeypatch.delitem(sys.modules, module)


def test_what_is_said_to_install_is_what_the_project_requires() -> None:
    assert set(REQUIREMENTS.values()) <= set(PROJECT["dependencies"])
    assert set(OF_COMMANDS) <= set(REQUIREMENTS)
    extras = PROJECT["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(extras)
    assert all(name in {_name(line) for line in extras[extra]} for name, extra in EXTRAS.items())


def test_a_folder_of_the_name_is_no_package(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "leftover").mkdir()
    monkeypatch.syspath_prepend(str(place))
    assert not is_installed("leftover")
    assert is_installed("torch") and not is_installed("no_such_package")


@pytest.mark.parametrize(("version", "words"), [((3, 11), "pip install 'gnnexp[dgl]'"), ((3, 13), "Python 3.11")])
def test_dgl_is_not_promised_where_pypi_has_none(
    version: tuple[int, int],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packages.sys, "version_info", (*version, 0, "final", 0))
    assert words in install_command("dgl")


@pytest.mark.parametrize(
    ("package", "overrides", "said"),
    [
        (
            "mlflow",
            [],
            "tracker='mlflow': needs the package mlflow, which is not installed\n"
            "    fix: pip install 'mlflow>=3,<4', or tracker=none",
        ),
        ("dgl", ["sampler=dgl"], "fix: pip install 'gnnexp[dgl]', or sampler=fused"),
        ("dgl", ["paradigm=dgl_reference"], "fix: pip install 'gnnexp[dgl]'"),
        ("pymetis", ["system=gsplit", "hardware.workers=2"], "fix: pip install 'gnnexp[metis]', or partitioner=random"),
        ("pymetis", ["system=gsplit", "hardware.workers=2", "partitioner=metis"], "pip install 'gnnexp[metis]'"),
        ("pymetis", ["system=gsplit", "hardware.workers=2", "partitioner=restream"], "pip install 'gnnexp[metis]'"),
        ("sklearn", [], "fix: pip install 'scikit-learn', or choose another dataset"),
        (
            "matplotlib",
            [],
            "needs the package matplotlib, which is not installed\n    fix: pip install 'matplotlib>=3.8'",
        ),
        ("hydra", [], "needs the package hydra, which is not installed\n    fix: pip install 'hydra-core>=1.3.8,<1.4'"),
        ("rich", [], "needs the package rich, which is not installed\n    fix: pip install 'rich>=13'"),
    ],
)
def test_a_missing_package_is_a_problem_before_launch(
    package: str,
    overrides: list[str],
    said: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if package not in OF_COMMANDS:  # these this process has imported
        without(monkeypatch, package)
    else:
        monkeypatch.setattr(packages, "is_installed", lambda name: name != package)
    assert run_command(["run", "dataset=digits", *overrides]) == 2
    printed = capsys.readouterr()
    assert said in " ".join(printed.err.split(" ")).replace("\n  ", "\n"), printed.err
    assert "Traceback" not in printed.err
    assert "dashboard" not in printed.out and not (place / "runs").exists()


def test_all_that_is_missing_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    without(monkeypatch, "mlflow", "dgl")
    assert run_command(["run", "dataset=digits", "sampler=dgl", "train.epochs=0"]) == 2
    said = capsys.readouterr().err
    assert "3 configuration problems" in said and "tracker=none" in said and "gnnexp[dgl]" in said


def test_one_part_needs_no_metis(monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnexp.cli.running.prepare import checked_config

    without(monkeypatch, "pymetis")
    checked_config(["system=gsplit", "hardware.workers=1"], None)
    checked_config(["dataset=digits", "partitioner=metis", "hardware.workers=2"], None)  # which nothing asks for


@pytest.mark.interpreter
def test_a_bare_core_says_what_commands_need(place: Path) -> None:
    """In a process of its own, in which nothing of them was imported before."""
    for command in (["run", "dataset=digits"], ["info"], ["report"], ["sweep", "quickstart"]):
        done = subprocess.run(
            [sys.executable, "-m", "gnnexp", *command],
            cwd=place,
            capture_output=True,
            text=True,
            env=environment_without(OF_COMMANDS),
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert f"{len(OF_COMMANDS)} configuration problems" in done.stderr and "Traceback" not in done.stderr
        assert all(REQUIREMENTS[name] in done.stderr for name in OF_COMMANDS)


def test_info_prints_extras_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    without(monkeypatch, "dgl", "pymetis", "submitit", "mlflow")
    monkeypatch.setattr("gnnexp.cli.commands.info.library_versions", dict)
    assert run_command(["info"]) == 0
    printed = capsys.readouterr().out
    assert install_command("dgl") in " ".join(printed.split())
    assert {
        f"pip install '{words}'" for words in ("gnnexp[metis]", "gnnexp[slurm]", "mlflow>=3,<4", "scikit-learn")
    } <= set(re.findall(r"pip install '[^']*'", printed))


# --- what a plug-in has now ------------------------------------------------------------------------------------------
def test_a_class_and_a_choice_that_a_plug_in_has_now_name_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package. With it: examples/gconstruct/tests."""
    for name in [*sys.modules, "gnn_gconstruct", "gnn_gconstruct.graphstorm"]:
        if name.partition(".")[0] in PLUGINS:
            monkeypatch.setitem(sys.modules, name, None)
    target = "gnnexp.datasets.formats.graphstorm.GraphStorm"
    for words in (["dataset=graphstorm"], ["dataset=tables", f"dataset._target_={target}"]):
        with pytest.raises(ConfigError) as caught:
            checked_config([*words, "tracker=none"], None)
        assert "needs the package gnn_gconstruct, which is not installed" in str(caught.value)
        assert "pip install examples/gconstruct, in gnnexp's repository" in str(caught.value)
    assert all((Path(gnnexp.__file__).parents[1] / folder / "pyproject.toml").is_file() for folder in PLUGINS.values())


def test_its_data_name_the_plug_in(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "e.csv").write_text("src,dst\n0,1\n")
    edges = {"relation": ["n", "to", "n"], "files": "e.csv", "source_id_col": "src", "dest_id_col": "dst"}
    (place / "conf.json").write_text(json.dumps({"nodes": [], "edges": [edges]}))
    for path in (place, place / "conf.json"):
        assert run_command(["data", str(path)]) == 2
        said = capsys.readouterr().err
        assert "gconstruct" in said and f"gnnexp run dataset=graphstorm dataset.path={path}" in said
