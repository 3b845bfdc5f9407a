"""`build` makes what the YAML says, and `check_node` finds everything wrong with it first."""

from __future__ import annotations

from typing import Any, Literal, Union

import pytest
from components import Cache, OtherStore, Store
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.config.build import build, check_fields, check_node, keys_of
from gnnexp.config.schema import HardwareConfig, TrainConfig
from gnnexp.config.signature import describe, fits, one_of, unknown
from gnnexp.errors import ConfigError

STORE: dict[str, Any] = {"_target_": "components.Store", "width": 3}


def test_builds_nested_components() -> None:
    cache = {"_target_": "components.Cache", "capacity": 7}
    store = build({**STORE, "names": ["a"], "cache": cache, "rate": 1}, Store)
    assert (store.width, store.rate, list(store.names)) == (3, 1, ["a"])
    assert isinstance(store.cache, Cache) and store.cache.capacity == 7


def test_builds_from_functions_and_subclasses() -> None:
    assert build({"_target_": "components.make_store", "width": 2}, Store).width == 2
    assert isinstance(build({"_target_": "components.OtherStore", "width": 2}, Store), OtherStore)
    with pytest.raises(ConfigError, match=r"must be a components\.Cache"):
        build(STORE, Cache)


def keys(problems: list[Any]) -> list[str]:
    return [problem.key for problem in problems]


def test_all_problems_of_a_node_at_once() -> None:
    node = {"_target_": "components.Store", "widht": 3, "rate": "fast", "flag": 1,
            "cache": {"_target_": "components.Cache", "policy": "lur"}}
    problems = check_node("store", node)
    assert sorted(keys(problems)) == [
        "store.cache.capacity", "store.cache.policy", "store.flag", "store.rate", "store.widht", "store.width"]
    mends = {problem.key: problem.mend for problem in problems}
    assert "store.width" in mends["store.widht"]
    assert "lru" in mends["store.cache.policy"]


@pytest.mark.parametrize(("target", "says"), [
    ("components.Stroe", "components.Store"),
    ("no_such_package.Thing", "PYTHONPATH"),
    ("plain", "dotted"),
    ("", "dotted"),
])
def test_targets_that_cannot_be_imported(target: str, says: str) -> None:
    (problem,) = check_node("store", {"_target_": target})
    assert says in problem.mend


def test_a_missing_optional_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "dgl", None)
    (problem,) = check_node("sampler", {"_target_": "dgl.Sampler"})
    assert problem.mend == "pip install 'gnnexp[dgl]'"


def test_a_node_must_be_a_mapping_with_a_target() -> None:
    for node in (None, "sage", {"hidden": 3}):
        assert keys(check_node("model", node)) == ["model"]


def test_any_key_is_right_where_the_target_takes_any() -> None:
    assert check_node("x", {"_target_": "components.anything", "whatever": [1, {"a": 2}]}) == []


def test_dataclasses_are_checked_like_components() -> None:
    assert check_fields("train", TrainConfig, {"epochs": 3, "batch_size": None, "lr": 1}) == []
    problems = check_fields("train", TrainConfig, {"epocs": 3, "lr": "high", "optimizer": "adma", "shuffle": 1})
    assert sorted(keys(problems)) == ["train.epocs", "train.lr", "train.optimizer", "train.shuffle"]
    straggler = {"rank": 0, "phase": "smaple", "seconds": 0.1, "extra": 1}
    problems = check_fields("hardware", HardwareConfig, {"workers": 2.5, "straggler": straggler})
    assert sorted(keys(problems)) == [
        "hardware.straggler.extra", "hardware.straggler.phase", "hardware.workers"]


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(), float: st.floats(), str: st.text(), bool: st.booleans(), type(None): st.none(),
    list[int]: st.lists(st.integers(), min_size=1), Literal["a", "b"]: st.sampled_from(["a", "b"]),
}


@given(st.sampled_from(list(VALUES)), st.data())
def test_a_value_fits_its_own_type_and_every_union_with_it(hint: Any, data: st.DataObject) -> None:
    value = data.draw(VALUES[hint])
    assert fits(value, hint)
    other = data.draw(st.sampled_from(list(VALUES)))
    assert fits(value, Union[hint, other])  # noqa: UP007  types drawn at run time


# What a value of the row's type may pass as, beside itself.
PASSES = {(int, float), (str, Literal["a", "b"])}


@given(st.sampled_from(list(VALUES)), st.sampled_from(list(VALUES)), st.data())
def test_a_value_fits_no_other_type(hint: Any, other: Any, data: st.DataObject) -> None:
    value = data.draw(VALUES[hint])
    may = hint == other or (hint, other) in PASSES or (hint == Literal["a", "b"] and other is str)
    if not may:
        assert not fits(value, other), f"{value!r} is no {describe(other)}"


def test_tuples_have_a_length() -> None:
    assert fits([1, 2], tuple[int, int]) and not fits([1, 2, 3], tuple[int, int])
    assert fits([1, 2, 3], tuple[int, ...]) and not fits("abc", tuple[str, ...])


def test_very_many_names_are_cut_to_the_nearest() -> None:
    names = [f"key_{number:03d}" for number in range(199)] + ["fanouts"]
    problem = unknown("k", "fanout", "fanout", names)
    assert "fanouts" in problem.allowed and problem.allowed.endswith("(200 names)") and len(problem.allowed) < 150
    assert one_of(names[:3], "key") == "allowed: key_000, key_001, key_002"


def test_a_key_that_is_no_slip_is_left_out() -> None:
    slip, foreign = check_node("store", {"_target_": "components.Store", "widht": 3, "zzzzzzzz": 1})[:2]
    assert "did you mean store." in slip.mend and foreign.mend == "leave it out: '~store.zzzzzzzz'"


def test_keys_of_a_component() -> None:
    assert set(keys_of(STORE)) == {"width", "rate", "names", "cache", "shape", "flag"}
    assert keys_of({"_target_": "no.such.Thing"}) == ()
