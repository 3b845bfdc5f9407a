"""`gnnexp info` composes nothing where all packages are installed, and says the same as if it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnexp.cli.commands import info
from gnnexp.cli.main import run_command
from gnnexp.components.packages import OF_SYSTEMS, is_installed
from gnnexp.config.folders import find_folders
from gnnexp.errors import Refusal

SYSTEMS = sorted(find_folders(None).choices("system"))


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_runs_where_all_packages_are_installed(system: str) -> None:
    if not all(map(is_installed, OF_SYSTEMS)):
        pytest.skip("a package that systems need is not installed")
    assert info._refusal_of(system) is None


def test_nothing_is_composed_then(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(info, "_refusal_of", asked.append)
    monkeypatch.setattr(info, "is_installed", lambda package: True)
    assert info._systems() == dict.fromkeys(SYSTEMS) and asked == []


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(info, "is_installed", lambda package: package != "dgl")
    monkeypatch.setattr(info, "_refusal_of", lambda system: Refusal("needs dgl") if "dgl" in system else None)
    found = info._systems()
    assert found["dgl_full_graph"] == Refusal("needs dgl") and found["gsplit"] is None


def test_all_systems_are_composed_where_a_user_has_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the user may take the place of one that a system of gnnexp names."""
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "mine.yaml").write_text("# @package _global_\n# mine\n")
    monkeypatch.setenv("GNNEXP_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr(info, "_refusal_of", lambda system: f"problem of {system}")
    assert info._systems() == {system: f"problem of {system}" for system in sorted([*SYSTEMS, "mine"])}


def test_it_says_what_is_installed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["info"]) == 0
    said = capsys.readouterr().out
    assert "torch" in said and "gsplit" in said and str(tmp_path / ".gnnexp") in said.replace("\n", "")
