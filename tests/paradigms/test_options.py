"""A paradigm's options are the fields of its dataclass and the keys of its YAML file, with the same defaults."""

from __future__ import annotations

from dataclasses import MISSING, asdict, fields, is_dataclass
from inspect import isabstract
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnnexp.components.locate import locate
from gnnexp.experiment.build import build
from gnnexp.paradigms.base import Method
from gnnexp.paradigms.trainer import Trainer

CONF = Path(__file__).parents[2] / "conf" / "paradigm"
FILES = sorted(path.stem for path in CONF.glob("*.yaml"))
MOST_MEMBERS = 14


def node_of(name: str) -> dict[str, Any]:
    if name.startswith("dgl_"):
        pytest.importorskip("dgl")
    node: dict[str, Any] = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    return node


def plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@pytest.mark.parametrize("name", FILES)
def test_names_types_and_defaults_are_those_of_the_yaml_file(name: str) -> None:
    node = node_of(name)
    cls: Any = locate(node.pop("_target_"))
    assert is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    options = {field.name: field.default for field in fields(cls)}
    assert MISSING not in options.values(), "every option has a default"
    assert {key: plain(value) for key, value in options.items()} == node
    assert build({"_target_": f"{cls.__module__}.{cls.__qualname__}", **node}, Method) == cls()


@pytest.mark.parametrize("name", FILES)
def test_a_paradigm_is_hashable_and_unchangeable(name: str) -> None:
    paradigm = build(node_of(name), Method)
    assert hash(paradigm) == hash(build(node_of(name), Method))
    with pytest.raises(AttributeError):
        paradigm.assign = "other"  # type: ignore[attr-defined]


def test_a_trainer_has_few_members() -> None:
    members = [name for name in vars(Trainer) if not name.startswith("_")]
    assert len(members) <= MOST_MEMBERS and isabstract(Trainer), members
