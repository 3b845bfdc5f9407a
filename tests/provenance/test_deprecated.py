"""What is deprecated works with a note that names the release of its removal, and is removed then."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from gnnexp.cli.main import run_command
from gnnexp.provenance.deprecated import ALL, Deprecation, note_moved, tell_user
from gnnexp.provenance.older import MOVED, moved_targets

ROOT = Path(__file__).parents[2]
OLD, NEW = next(iter(MOVED.items()))


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def overdue(version: str) -> list[Deprecation]:
    return [one for one in ALL if number(one.removed) <= number(version)]


def test_nothing_is_overdue() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert overdue(version) == []
    assert {*overdue("99.0")} == {*ALL}
    assert all(number(one.since) < number(one.removed) for one in ALL)


def test_the_page_has_all_of_them() -> None:
    text = (ROOT / "docs/reference/public.md").read_text().partition("## Deprecations")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert rows == [[one.name, one.since, one.removed, one.instead] for one in ALL]


def test_a_note_is_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    tell_user(Deprecation("this", "0.2", "0.3", "use that"))
    said = capsys.readouterr()
    assert said.err == "note: this: deprecated in gnnexp 0.2, removed in 0.3; use that\n" and not said.out


def test_each_class_that_has_moved_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    config = {"dataset": {"_target_": OLD, "parts": [{"_target_": OLD}]}, "model": {"_target_": NEW}, "seed": 0}
    assert moved_targets(config) == {OLD: NEW}
    assert moved_targets({"_target_": "gnnexp.none.None", "a": [None, 1.0, "_target_"]}) == {}
    note_moved(config)
    said = capsys.readouterr()
    assert said.err.count(OLD) == 1 and f"write `_target_: {NEW}`" in said.err and "removed in 0.3" in said.err
    assert not said.out


@pytest.mark.slow  # it prepares two runs
def test_a_run_names_the_new_name_once_and_has_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "cache"))
    common = ["dataset=dcsbm", "dataset.num_nodes=200", "dataset.num_edges=900", "tracker=none", "hardware.workers=1"]
    keys = []
    for number, target in enumerate(("gnnexp.datasets.generated.dcsbm.Dcsbm", "gnnexp.datasets.dcsbm.Dcsbm")):
        words = [*common, f"dataset._target_={target}", f"hydra.run.dir=runs/{number}"]
        assert run_command(["prepare", "--json", *words]) == 0
        said = capsys.readouterr()
        assert said.err.count("removed in 0.3") == number
        assert json.loads(said.out)["run_dir"] == f"runs/{number}"
        keys.append(json.loads(Path(f"runs/{number}/job.json").read_text())["provenance"]["run_key"])
    assert keys[0] == keys[1]
