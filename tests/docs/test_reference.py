"""The made reference has every choice, every key and every command, each with what it means."""

from __future__ import annotations

import pytest
import yaml
from command_page import commands_page
from config_files import ConfigFile, value_text
from config_pages import config_pages, files
from meanings import entries, meanings
from site_pages import ROOT
from sweep_page import sweeps_page

from gnnexp.cli.main import make_parser
from gnnexp.config.folders import product_sweeps

GROUPS = sorted(folder.name for folder in (ROOT / "conf").iterdir() if folder.is_dir())
PAGES = config_pages()


def rows(group: str) -> list[list[str]]:
    """Cells of a group's tables of keys."""
    lines = [line.replace("\\|", "/") for line in PAGES[f"reference/config/{group}.md"].splitlines()]
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]


def test_every_group_has_a_page() -> None:
    assert {f"reference/config/{group}.md" for group in GROUPS} | {"reference/config/index.md"} == set(PAGES)


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_and_its_keys_are_there(group: str) -> None:
    sections = dict(part.split("\n", 1) for part in PAGES[f"reference/config/{group}.md"].split("\n## ")[1:])
    assert set(sections) == {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}
    for choice, text in sections.items():
        content = yaml.safe_load((ROOT / "conf" / group / f"{choice}.yaml").read_text(encoding="utf-8"))
        for key in set(content) - {"defaults", "_target_", "_partial_"}:
            assert f"`{key}" in text or f"`{group}.{key}" in text, (choice, key)
        assert "_target_" not in content or content["_target_"] in text


@pytest.mark.parametrize("group", [group for group in GROUPS if group != "system"])
def test_every_key_is_explained(group: str) -> None:
    """By a docstring or a comment: a new key without either fails here."""
    own = [row for row in rows(group) if len(row) == 4 or (row[0].count("`") == 2 and len(row) == 3)]
    silent = [row[0] for row in own if len(row) < 4 or not row[3]]
    known = {"`dataset.name`"} if group == "dataset" else set()
    assert set(silent) - known - {row[0] for row in rows(group) if len(row) == 2} == set()


def test_defaults_are_those_of_the_files() -> None:
    found = {row[0]: row[1] for row in rows("tracker")}
    written = yaml.safe_load((ROOT / "conf" / "tracker" / "mlflow.yaml").read_text(encoding="utf-8"))
    expected = {f"`tracker.{key}`": f"`{value_text(value)}`" for key, value in written.items() if key != "_target_"}
    assert expected.items() <= found.items()


def test_every_command_and_sweep_is_there() -> None:
    commands, sweeps = commands_page(), sweeps_page()
    parser = make_parser()
    (verbs,) = (action.choices for action in parser._actions if action.choices)
    assert all(f"## gnnexp {verb}\n" in commands for verb in verbs)
    assert all(f"| `{name}` |" in sweeps for name in product_sweeps())


def test_docstrings_are_read() -> None:
    text = "A thing.\n\nArgs:\n    a: one,\n        going on.\n    b, c: both.\n\nRaises:\n    E: not this.\n"
    assert entries(text) == {"a": "one, going on.", "b": "both.", "c": "both."}


class Base:
    """One.

    Args:
        a: of the base.
        b: of the base.
    """


class Derived(Base):
    """Two.

    Args:
        b: its own.
        dropout: as in `gnnexp.models.gin.GINOptions`.
    """


def test_classes_inherit_what_is_said() -> None:
    assert meanings(Derived) == {
        "a": "of the base.",
        "b": "its own.",
        "dropout": "probability on the inputs of all layers but the first.",
    }


def test_comments_are_read(tmp_path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text('# What it is,\n# on two lines.\ncomments: "#"\nsize: 3  # rows\nlinks:\n  d2d: 1  # bytes\n')
    file = ConfigFile(path)
    assert file.purpose == "What it is, on two lines."
    assert file.comments == {("size",): "rows", ("links", "d2d"): "bytes"}
    assert file.content == {"comments": "#", "size": 3, "links": {"d2d": 1}}


def test_choices_are_sorted() -> None:
    assert [file.path.stem for file in files("task")] == ["link_prediction", "node_classification", "node_regression"]
