"""Any name of a file or a column comes back from composing unchanged, in overrides and in YAML files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from examples import few
from gnnexp.cli.running.origin import _changes
from gnnexp.components.texts import hydra_text, hydra_value, is_hydra_key, yaml_of
from gnnexp.config.compose import compose
from gnnexp.errors import ConfigError

# Words that Hydra, OmegaConf or YAML read as something else, and signs that are special to them.
WORDS = [
    "${oc.env:HOME}",
    "\\${oc.env:HOME}",
    "\\\\${a}",
    "a${a}b${b}'",
    "${",
    "${a",
    "$\\{",
    "${${a}}",
    "\\",
    "\\'",
    "'",
    '"',
    "null",
    "Null",
    "TRUE",
    "false",
    "nan",
    "-inf",
    "1",
    "1.10",
    "1e3",
    "0x1f",
    "1_0",
    "é.csv",
    "",
    " a ",
    "a, b",
    "[a]",
    "{a: 1}",
    "a=b",
    "a:b",
    "~",
    "#",
    "?",
    "*",
    "@",
    "a\nb",
    "\t",
    "choice(a,b)",
    "a,b",
    "range(1,3)",
    "+1",
    ".5",
    "!x",
    "%",
    "日本",
    "None",
    "yes",
    "<<",
    "- a",
    "2020-01-01",
]
NAMES = st.one_of(st.sampled_from(WORDS), st.text(max_size=12), st.text("\\${}'\"ae.:_ -1,()[]", max_size=10)).filter(
    lambda text: text != "???"
)


@few(15)  # each composes a configuration
@given(st.lists(NAMES, min_size=4, max_size=8))
@example(WORDS)
def test_names_come_back_from_composing(names: list[str]) -> None:
    first, second, third, fourth = names[:4]
    edges = {"a": {"table": first, "source": second, "destination": None}, "b": third}
    made = compose(
        [
            "dataset=tables",
            f"dataset.path={hydra_text(first)}",
            f"dataset.id={hydra_text(second)}",
            f"dataset.label={hydra_text(third)}",
            f"dataset.as_text={hydra_value(names)}",
            f"dataset.edges={{a: {{table: {hydra_text(first)}, source: {hydra_text(second)}, destination: null}}, "
            f"b: {hydra_text(third)}}}",
            f"dataset.name={hydra_text(fourth or 'x')}",
        ]
    ).config["dataset"]
    assert (made["path"], made["id"], made["label"], made["as_text"], made["edges"], made["name"]) == (
        first,
        second,
        third,
        names,
        edges,
        fourth or "x",
    )


@given(st.lists(NAMES, min_size=1, max_size=30))
@example(WORDS)
def test_names_come_back_from_yaml(names: list[str]) -> None:
    wanted = {"path": names[0], "as_text": names, "nodes": {"a": names[-1]}, "none": None, "number": 1.5}
    assert OmegaConf.to_container(OmegaConf.create(yaml_of(wanted)), resolve=True) == wanted


def test_names_come_back_from_a_record_and_from_a_saved_choice(tmp_path: Path) -> None:
    """As `gnnexp run --from` of an imported run takes them, and as `gnnexp data --save` writes them."""
    base = compose(["dataset=tables", "dataset.path=x"]).config["dataset"]
    wanted: dict[str, Any] = {**base, "path": WORDS[0], "as_text": WORDS, "nodes": {"a": WORDS[-1]}}
    again = compose(["dataset=tables", *_changes({"dataset": wanted}, {"dataset": base})])
    assert again.config["dataset"] == wanted
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "mine.yaml").write_text(yaml_of(wanted), encoding="utf-8")
    assert compose(["dataset=mine"], str(tmp_path)).config["dataset"] == wanted


@pytest.mark.parametrize("keys", [["a b", "a:b,c", "${oc.env:HOME}", "a\\b", "x (y) [z] = 1"], ["papers"]])
def test_keys_come_back_if_hydra_has_a_form_for_them(keys: list[str]) -> None:
    wanted = dict.fromkeys(keys, "a.csv")
    assert compose(["dataset=tables", f"dataset.nodes={hydra_value(wanted)}"]).config["dataset"]["nodes"] == wanted


@pytest.mark.parametrize(
    ("text", "is_key"),
    [
        ("papers", True),
        ("a_1", True),
        ("null", False),
        ("True", False),
        ("12", False),
        ("1e3", False),
        ("a b", False),
        ("é", False),
        ("", False),
    ],
)
def test_what_is_a_key_without_backslashes(text: str, is_key: bool) -> None:
    assert is_hydra_key(text) is is_key


def test_the_sign_of_a_missing_value_can_be_no_name() -> None:
    with pytest.raises(ConfigError, match="means a missing value in configurations"):
        hydra_text("???")


def test_keys_that_are_no_texts_are_refused() -> None:
    from gnnexp.datasets.tables.dataset import Tables
    from gnnexp.experiment.build import build

    with pytest.raises(ConfigError, match="must be a text or a mapping of names or null"):
        build(compose(["dataset=tables", "dataset.nodes={12: a.csv}"]).config["dataset"], Tables)
