"""`build` makes what the YAML says, and `node_problems` finds everything wrong with it first."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Literal, Union

import pytest
from components import AnyStore, Cache, Calls, Either, OtherStore, Store
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.components.packages import install_command
from gnnexp.components.schema import HardwareConfig, TrainConfig
from gnnexp.components.signature import describe_annotation, fits, one_of, parameters_of, unknown
from gnnexp.datasets.published.digits import Digits
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build, keys_of
from gnnexp.experiment.shape import field_problems, node_problems
from gnnexp.tasks.decoders import DistMult

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
    with pytest.raises(ConfigError, match=r"must be a components\.Store"):
        build({"_target_": "components.liar"}, Store)


def test_a_module_of_torch_without_a_constructor_takes_no_keys() -> None:
    """`torch.nn.Module.__init__` has `**kwargs`, and refuses each of them."""
    assert parameters_of(DistMult) == {}
    (problem,) = node_problems("task.decoder", {"_target_": "gnnexp.tasks.decoders.DistMult", "layers": 2}, DistMult)
    assert (problem.key, problem.value) == ("task.decoder.layers", 2)


# Whatever these are, they are no stores, or do not say that they make one.
NO_STORES = [
    "components.Calls",
    "components.note_call",
    "components.note_call_of_any",
    "components.note_call_of_store_or_none",
    "components.make_unknown",
    "components.claims",
    "components.raises",
    "torch.utils.collect_env.run",
    "torch.load",
    "numpy.fromfile",
    "gnnexp.experiment.build.locate",
    "gnnexp.experiment.build.build",
    "components.NAME",
]


@pytest.mark.parametrize("target", NO_STORES)
def test_what_is_no_store_is_never_called(target: str, tmp_path: Path) -> None:
    before, marker = Calls.count, tmp_path / "executed"
    node = {"_target_": target, "command": f"touch {marker}", "f": str(marker), "file": str(marker)}
    for attempt in (lambda: build(node, Store), lambda: build({**STORE, "cache": node}, Store)):
        with pytest.raises(ConfigError) as caught:
            attempt()
        (problem,) = caught.value.problems
        assert problem.key.endswith("._target_") and problem.value == target and problem.fix
    assert Calls.count == before and not marker.exists()


@pytest.mark.parametrize("key", ["anything", "thing", "word", "options", "caches", "call", "key"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_no_component_stands_where_no_annotation_names_its_class(key: str, wrapped: bool) -> None:
    """Not in scalars, in lists, in mappings, nor where anything is taken: nobody would have checked its kind."""
    before, inner = Calls.count, {"_target_": "components.Calls"}
    value: Any = [inner] if key == "caches" else {"deep": [inner]} if wrapped else inner
    with pytest.raises(ConfigError) as caught:
        build({"_target_": "components.Open", key: value}, Store)
    (problem,) = caught.value.problems
    assert problem.key.startswith(f"Store.{key}") and Calls.count == before


def test_no_component_goes_through_keys_that_nobody_declares() -> None:
    assert build({"_target_": "components.AnyStore", "x": [1]}, AnyStore).options == {"x": [1]}
    for value in ({"_target_": "components.Cache", "capacity": 1}, [[{"_target_": "components.Calls"}]]):
        with pytest.raises(ConfigError, match="no annotation names its class"):
            build({"_target_": "components.AnyStore", "x": value}, Store)


def test_a_key_may_take_components_of_several_kinds() -> None:
    for part, kind in (({"_target_": "components.Cache", "capacity": 1}, Cache), (STORE, Store)):
        assert isinstance(build({"_target_": "components.Either", "part": part}, Either).part, kind)
    assert build({"_target_": "components.Either", "part": None}, Either).part is None
    with pytest.raises(ConfigError, match=r"components\.Cache or components\.Store"):
        build({"_target_": "components.Either", "part": {"_target_": "components.Calls"}}, Store)


def test_only_classes_that_inherit_are_of_a_kind() -> None:
    """Such a class has what `Hashable` asks for, and that is not what a component is."""
    (problem,) = node_problems("store", STORE, Hashable)
    assert "must be a collections.abc.Hashable" in problem.allowed


@pytest.mark.parametrize("node", [None, 5, "components.Store", [], {}, {"_target_": None}, {"_target_": [1]}])
def test_what_is_no_mapping_of_a_component(node: Any) -> None:
    with pytest.raises(ConfigError, match="must be a mapping with _target_"):
        build(node, Store)


def test_annotations_that_are_no_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are known then, and no component is taken: nobody knows of which class."""
    (tmp_path / "odd_annotations.py").write_text(
        "from components import Store\n\n\nclass Odd(Store):\n"
        "    def __init__(self, width: int = 1, part: 'a store, if you please' = None):\n"
        "        super().__init__(width)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    node = {"_target_": "odd_annotations.Odd", "width": 2}
    assert build(node, Store).width == 2 and set(keys_of(node)) == {"width", "part"}
    (problem,) = node_problems("store", {**node, "part": STORE}, Store)
    assert problem.key == "store.part._target_" and "annotate the parameter" in problem.fix


def test_a_module_that_ends_the_process_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ends_the_process.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    (problem,) = node_problems("store", {"_target_": "ends_the_process.Store"}, Store)
    assert "SystemExit" in problem.allowed


def keys(problems: list[Any]) -> list[str]:
    return [problem.key for problem in problems]


def test_all_problems_of_a_node_at_once() -> None:
    node = {
        "_target_": "components.Store",
        "widht": 3,
        "rate": "fast",
        "flag": 1,
        "cache": {"_target_": "components.Cache", "policy": "lur"},
    }
    problems = node_problems("store", node, Store)
    assert sorted(keys(problems)) == [
        "store.cache.capacity",
        "store.cache.policy",
        "store.flag",
        "store.rate",
        "store.widht",
        "store.width",
    ]
    fixes = {problem.key: problem.fix for problem in problems}
    assert "store.width" in fixes["store.widht"]
    assert "lru" in fixes["store.cache.policy"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("components.Stroe", "components.Store"),
        ("no_such_package.Thing", "PYTHONPATH"),
        ("plain", "dotted"),
        ("", "dotted"),
    ],
)
def test_targets_that_cannot_be_imported(target: str, says: str) -> None:
    (problem,) = node_problems("store", {"_target_": target}, Store)
    assert says in problem.fix


def test_a_module_of_python_is_not_imported() -> None:
    sys.modules.pop("this", None)
    assert node_problems("store", {"_target_": "this.Store"}, Store)
    assert "this" not in sys.modules, "its import prints a poem"


def test_a_missing_optional_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "dgl", None)
    (problem,) = node_problems("sampler", {"_target_": "dgl.Sampler"}, Store)
    assert problem.fix == install_command("dgl")


def test_a_node_must_be_a_mapping_with_a_target() -> None:
    for node in (None, "sage", {"hidden": 3}):
        assert keys(node_problems("model", node, Store)) == ["model"]


def test_any_key_is_right_where_the_target_takes_any() -> None:
    assert node_problems("x", {"_target_": "components.AnyStore", "whatever": [1, {"a": 2}]}, Store) == []


def test_a_subclass_of_a_dataclass_may_have_a_constructor_of_its_own() -> None:
    """As a user's data set or paradigm has that inherits from one of ours."""

    class Fewer(Digits):
        def __init__(self, keep: int = 5) -> None:
            super().__init__(neighbors=keep)

    class More(Digits):
        """Without a constructor."""

    assert set(parameters_of(Fewer) or ()) == {"keep"} and Fewer(7).neighbors == 7
    assert set(parameters_of(More) or ()) == set(parameters_of(Digits) or ()) > {"neighbors", "seed"}


def test_dataclasses_are_checked_like_components() -> None:
    assert field_problems("train", TrainConfig, {"epochs": 3, "batch_size": None, "clip_norm": 1}) == []
    problems = field_problems("train", TrainConfig, {"epocs": 3, "clip_norm": "high", "batch_of": "rnu", "shuffle": 1})
    assert sorted(keys(problems)) == ["train.batch_of", "train.clip_norm", "train.epocs", "train.shuffle"]
    links = {"h2d": "fast", "extra": 1}
    problems = field_problems("hardware", HardwareConfig, {"workers": 2.5, "links": links})
    assert sorted(keys(problems)) == ["hardware.links.extra", "hardware.links.h2d", "hardware.workers"]
    target = {"_target_": "components.Calls"}
    assert keys(field_problems("train", TrainConfig, target)) == ["train._target_"]
    assert keys(field_problems("hardware", HardwareConfig, {"links": target})) == ["hardware.links._target_"]


VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    float: st.floats(),
    str: st.text(),
    bool: st.booleans(),
    type(None): st.none(),
    list[int]: st.lists(st.integers(), min_size=1),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
}


@given(st.sampled_from(list(VALUES)), st.data())
def test_a_value_fits_its_own_type_and_every_union_with_it(hint: Any, data: st.DataObject) -> None:
    value = data.draw(VALUES[hint])
    assert fits(value, hint)
    other = data.draw(st.sampled_from(list(VALUES)))
    assert fits(value, Union[hint, other])  # noqa: UP007  types drawn at run time


# Types that a value of the row's type passes as, in addition to its own type.
PASSES = {(int, float), (str, Literal["a", "b"])}


@given(st.sampled_from(list(VALUES)), st.sampled_from(list(VALUES)), st.data())
def test_a_value_fits_no_other_type(hint: Any, other: Any, data: st.DataObject) -> None:
    value = data.draw(VALUES[hint])
    may = hint == other or (hint, other) in PASSES or (hint == Literal["a", "b"] and other is str)
    if not may:
        assert not fits(value, other), f"{value!r} is no {describe_annotation(other)}"


def test_tuples_have_a_length() -> None:
    assert fits([1, 2], tuple[int, int]) and not fits([1, 2, 3], tuple[int, int])
    assert fits([1, 2, 3], tuple[int, ...]) and not fits("abc", tuple[str, ...])


def test_very_many_names_are_cut_to_the_nearest() -> None:
    names = [f"key_{number:03d}" for number in range(199)] + ["fanouts"]
    problem = unknown("k", "fanout", "fanout", names)
    assert "fanouts" in problem.allowed and problem.allowed.endswith("(200 names)") and len(problem.allowed) < 150
    assert one_of(names[:3], "key") == "allowed: key_000, key_001, key_002"


def test_a_key_that_is_no_slip_is_left_out() -> None:
    slip, foreign = node_problems("store", {"_target_": "components.Store", "widht": 3, "zzzzzzzz": 1}, Store)[:2]
    assert "did you mean store." in slip.fix and foreign.fix == "leave it out: '~store.zzzzzzzz'"


def test_keys_of_a_component() -> None:
    assert set(keys_of(STORE)) == {"width", "rate", "names", "cache", "shape", "flag"}
    assert keys_of({"_target_": "no.such.Thing"}) == ()
