"""The key of a run: equal keys, equal results; no key changes for a move, a new name, or a new option."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from gnnexp.components.locate import locate
from gnnexp.config.compose import compose
from gnnexp.datasets.base import Dataset
from gnnexp.datasets.generated.rmat import Rmat
from gnnexp.experiment.build import build
from gnnexp.experiment.run_key import component_in_key, keyed, run_key
from gnnexp.models.gat import GATOptions
from gnnexp.models.model import ModelOptions
from gnnexp.models.sage import SAGEOptions
from gnnexp.provenance import names, older
from gnnexp.provenance.code import RunCode, modules_of
from gnnexp.provenance.names import name_of, version_of

CONF = Path(__file__).parents[2] / "conf"
NONE = RunCode({})


def key_of(*overrides: str, code: RunCode = NONE, data: str = "k", inputs: Mapping[str, str] | None = None) -> str:
    return run_key(compose([*overrides, "tracker=none"]).config, data, code, inputs)


def changed(config: Mapping[str, Any], key: str, value: object) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(dict(config))
    *groups, last = key.split(".")
    node = made
    for group in groups:
        node = node[group]
    node[last] = value
    return made


def test_the_key_ignores_where_things_are_and_what_describes_the_machine() -> None:
    config = compose(["dataset=rmat"]).config
    same = [
        ("name", "x"),
        ("tracker", None),
        ("preflight", "off"),
        ("hardware.launcher", {"_target_": "gone.Away"}),
        ("hardware.timeout_s", 1.0),
        ("hardware.flops_tf32", 4e12),
        ("hardware.links.d2h", 2e9),
        ("train.checkpoint_every", 5),
        ("train.checkpoints_kept", 1),
    ]
    assert {run_key(changed(config, key, value), "k", NONE) for key, value in same} == {run_key(config, "k", NONE)}
    assert run_key(dict(reversed(config.items())), "k", NONE) == run_key(config, "k", NONE)


def test_everything_else_is_a_part_of_it() -> None:
    lines = (
        [],
        ["seed=1"],
        ["model.hidden=8"],
        ["model=gcn"],
        ["hardware.workers=3"],
        ["train.dtype=float64"],
        ["optimizer.lr=0.5"],
        ["optimizer=sgd"],
        ["scheduler=cosine"],
        ["sampler.fanouts=[1,1,1]"],
        ["measure=free"],
        ["trace=1"],
        ["feature_store=cached"],
        ["feature_store=cached", "feature_store.cache.capacity=7"],
        ["system=gsplit"],
        ["task=link_prediction"],
        ["dataset=rmat"],
        ["hardware.links.h2d=2e9"],
    )
    keys = [key_of(*line) for line in lines]
    keys += [
        key_of(data="others"),
        key_of(code=RunCode({"mine": "1"})),
        key_of(code=RunCode({"mine": "2"})),
        key_of(inputs={"partitioner": "1"}),
    ]
    assert len({*keys}) == len(keys)


def test_gnnexps_own_code_is_no_part_of_it() -> None:
    assert key_of(code=RunCode({"mine": "1"}, "a")) == key_of(code=RunCode({"mine": "1"}, "b"))


def test_the_name_of_a_choice_is_none_where_its_options_say_all() -> None:
    """`cached` chooses the class of `local`: the same options are the same run."""
    cached = compose(["feature_store=cached"]).config["feature_store"]
    local = changed(compose([]).config, "feature_store.cache", cached["cache"])
    assert keyed(local)["feature_store"] == keyed(compose(["feature_store=cached"]).config)["feature_store"]
    assert component_in_key(cached)["name"] == "feature_store/local"
    assert component_in_key(cached["cache"])["name"] == "feature_store/cached.cache"


class Renamed(Rmat):
    """`Rmat` as if it had been moved and renamed."""


def test_a_moved_and_renamed_class_changes_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The YAML files name the new class; old configurations name the old one."""
    config, before = compose(["dataset=rmat"]).config, f"{Rmat.__module__}.{Rmat.__qualname__}"
    today = f"{Renamed.__module__}.{Renamed.__qualname__}"
    data, key, node = build(config["dataset"], Dataset).key(), run_key(config, "k", NONE), keyed(config)["dataset"]
    found = {target: name for target, name in names._names().items() if target != before} | {today: "dataset/rmat"}
    monkeypatch.setattr(names, "_names", lambda: found)
    monkeypatch.setattr(older, "MOVED", {"gnnexp.once.here.Rmat": today})
    for target in (today, "gnnexp.once.here.Rmat"):
        moved = changed(config, "dataset._target_", target)
        assert name_of(target) == "dataset/rmat" and locate(target) is Renamed
        assert keyed(moved)["dataset"] == node and run_key(moved, "k", NONE) == key
        made = build({**moved["dataset"], "_target_": today}, Dataset)
        monkeypatch.setattr("gnnexp.datasets.base.code_key", lambda cls: "")  # a test's own class is a user's
        assert made.key() == data
    assert name_of(before) != "dataset/rmat", "this name belongs to nothing any more"
    assert modules_of({"dataset": {"_target_": "gnnexp.once.here.Rmat"}}) == [Renamed.__module__]


class Base(ModelOptions):
    """A base with a version."""

    version: ClassVar[int] = 5


class Sub(Base):
    """It has its own."""

    version: ClassVar[int] = 2


def test_a_raised_version_of_a_base_raises_those_of_all_that_inherit(monkeypatch: pytest.MonkeyPatch) -> None:
    own = version_of(ModelOptions)
    assert own >= 1 and version_of(Base) == own + 5 and version_of(Sub) == own + 7 and version_of(len) == 0
    before = {system: key_of(f"model={system}") for system in ("gat", "sage", "gcn")}
    monkeypatch.setattr(GATOptions, "version", 2, raising=False)
    assert key_of("model=gat") != before["gat"] and key_of("model=sage") == before["sage"]
    monkeypatch.setattr(ModelOptions, "version", ModelOptions.version + 1)
    assert key_of("model=sage") != before["sage"] and key_of("model=gcn") != before["gcn"]


def test_an_option_with_its_default_changes_no_key() -> None:
    node = {"_target_": f"{SAGEOptions.__module__}.SAGEOptions", "hidden": 8}
    assert component_in_key(node) == component_in_key({**node, "dropout": 0.5, "bias": True, "kernel": "auto"})
    assert component_in_key(node) != component_in_key({**node, "dropout": 0.25})
    assert component_in_key({**node, "bias": 1})["options"] == {"hidden": 8, "bias": 1}, "`1` is not `true`"
    config = compose(["dataset=rmat"]).config
    assert run_key(changed(config, "train", {"epochs": 10}), "k", NONE) == run_key(config, "k", NONE)


def test_every_class_that_conf_names_has_a_name_of_conf() -> None:
    """By a parser of YAML, where the product reads lines."""
    found: dict[str, set[str]] = {}
    for file in CONF.glob("*/*.yaml"):
        if file.parent.name in ("hardware", "system", "experiment", "tracker"):
            continue
        waiting = [yaml.safe_load(file.read_text())]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Mapping):
                if str(node.get("_target_")).startswith("gnnexp."):
                    found.setdefault(node["_target_"], set()).add(f"{file.parent.name}/{file.stem}")
                waiting += node.values()
            elif isinstance(node, list):
                waiting += node
    wrong = {target: name_of(target) for target, files in found.items() if name_of(target).split(".")[0] not in files}
    assert len({*map(name_of, found)}) == len(found)
    assert len(found) > 60 and wrong == {}
    assert name_of("gnnexp.tasks.decoders.Dot") == "Dot" and name_of("mine.model.Mine") == "mine.model.Mine"
