"""Sweeps: expansion, overrides on top, and their labels."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.cli.sweeping import definition
from gnnexp.cli.sweeping.definition import Sweep, last_of_each_key, load_sweep
from gnnexp.errors import ConfigError


def write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return str(file)


def combinations(sweep: Sweep) -> list[tuple[str, ...]]:
    return [case.overrides for case in sweep.cases]


def test_axes_are_multiplied_in_order(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path, "fixed: [a=1]\naxes: {b: [x, null, true], sampler.fanouts: [[5, 5], [10]]}"))
    assert sweep.name == "mine"
    values = itertools.product(["x", "null", "true"], ["[5,5]", "[10]"])
    assert combinations(sweep) == [("a=1", f"b={b}", f"sampler.fanouts={fanouts}") for b, fanouts in values]
    assert sweep.cases[0].label == "b=x sampler.fanouts=[5,5]"


def test_cases_are_multiplied_with_axes(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path, "axes: {seed: [0, 1]}\ncases: [{overrides: [m=p, n=q]}, {overrides: [m=r]}]"))
    assert combinations(sweep) == [
        ("seed=0", "m=p", "n=q"),
        ("seed=0", "m=r"),
        ("seed=1", "m=p", "n=q"),
        ("seed=1", "m=r"),
    ], "seed by seed"


def test_a_case_may_have_axes_of_its_own(tmp_path: Path) -> None:
    file = write(tmp_path, "axes: {seed: [0, 1]}\ncases: [{overrides: [m=p]}, {overrides: [m=q, 'seed=1,2', n=7]}]")
    assert combinations(load_sweep(file)) == [
        ("seed=0", "m=p"),
        ("seed=1", "m=p"),
        ("seed=1", "m=q", "n=7"),
        ("seed=2", "m=q", "n=7"),
    ]
    with pytest.raises(ConfigError, match="at most"):
        load_sweep(write(tmp_path, "cases: [{overrides: ['a=range(100)', 'b=range(101)']}]"))


def test_typed_overrides_win_and_may_be_axes(tmp_path: Path) -> None:
    file = write(tmp_path, "fixed: [a=1]\naxes: {b: [x, y]}")
    assert combinations(load_sweep(file, ["b=z"])) == [("a=1", "b=z")], "an axis that is fixed leaves one case"
    assert combinations(load_sweep(file, ["a=3,4"])) == [
        (f"a={a}", f"b={b}") for b, a in itertools.product("xy", (3, 4))
    ]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("fixd: [a=1]", "fixd"),
        ("axes: [1]", "axes"),
        ("axes: {b: 3}", "axes.b"),
        ("axes: {b: []}", "axes.b"),
        ("report: {rows: system}", "report.rows"),
        ("report: {row: [system]}", "report.row"),
        ("cases: [{override: [a=1]}]", "cases"),
        ("- 1", "yaml"),
        ("a: [", "yaml"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_sweep(write(tmp_path, text))
    (problem,) = caught.value.problems
    assert key in problem.key


def test_the_papers_size_comes_after_the_case_and_before_what_is_typed(tmp_path: Path) -> None:
    text = "fixed: [size=1]\ncases: [{overrides: [a=p, batch=2]}, {overrides: [a=q]}]\nfull: [size=100, batch=200]"
    file = write(tmp_path, text)
    assert combinations(load_sweep(file)) == [("size=1", "a=p", "batch=2"), ("size=1", "a=q")]
    sweep = load_sweep(file, ["size=50"], full=True)
    assert sweep.name == "mine_full"
    assert [dict(line.split("=") for line in lines) for lines in combinations(sweep)] == [
        {"size": "50", "a": "p", "batch": "200"},
        {"size": "50", "a": "q", "batch": "200"},
    ]
    with_graphs = write(tmp_path, text + "\nfull_cases: [{overrides: [a=r]}]")
    assert combinations(load_sweep(with_graphs)) == [("size=1", "a=p", "batch=2"), ("size=1", "a=q")]
    assert [set(lines) for lines in combinations(load_sweep(with_graphs, full=True))] == [
        {"size=100", "a=r", "batch=200"}
    ]
    with pytest.raises(ConfigError, match="full_cases"):
        load_sweep(write(tmp_path, "full_cases: [{overrides: [a=r]}]"))
    with pytest.raises(ConfigError, match="one size only"):
        load_sweep(write(tmp_path, "fixed: [size=1]"), full=True)


@pytest.mark.parametrize(
    ("published", "named"),
    [
        ("{paper: gsplid, source: Table 3, columns: {epoch_s: time/epoch_s}}", "gsplit"),
        ("{paper: gsplit, source: Table 33, columns: {epoch_s: time/epoch_s}}", "Table 3"),
        ("gsplit", "must be a mapping"),
    ],
)
def test_what_stands_beside_is_checked(tmp_path: Path, published: str, named: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"report: {{published: {published}}}")
    with pytest.raises(ConfigError, match=named):
        load_sweep(str(file))


def test_an_unknown_sweep_has_a_nearest_one() -> None:
    with pytest.raises(ConfigError, match="quickstart"):
        load_sweep("quikstart")
    with pytest.raises(ConfigError, match="No such file"):
        load_sweep("nowhere/x.yaml")


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=8))
def test_the_last_override_of_a_key_is_the_one(pairs: list[tuple[str, int]]) -> None:
    kept = last_of_each_key([f"{key}={value}" for key, value in pairs])
    assert dict(line.split("=") for line in kept) == {key: str(value) for key, value in dict(pairs).items()}
    assert len(kept) == len({key for key, _ in pairs})


def test_where_a_package_is_missing_another_value_takes_the_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = write(tmp_path, "axes: {system: [dgl_reference, dgl]}\nwithout: {dgl: {system=dgl_reference: system=p3}}")
    monkeypatch.setattr(definition, "is_installed", lambda package: package != "dgl")
    sweep = load_sweep(file)
    assert combinations(sweep) == [("system=p3",), ("system=dgl",)]
    assert "system=p3 takes the place of system=dgl_reference" in sweep.notes[0] and len(sweep.notes) == 1
    assert combinations(load_sweep(file, ["system=gsplit"])) == [("system=gsplit",)], "what is typed wins"
    monkeypatch.setattr(definition, "is_installed", lambda package: True)
    sweep = load_sweep(file)
    assert combinations(sweep) == [("system=dgl_reference",), ("system=dgl",)] and sweep.notes == ()


@pytest.mark.parametrize(
    "without",
    [
        "{dgl: [a]}",
        "{dgl: {}}",
        "{dgl: {a=3: a=1}}",
        "{dgl: {a=1: b=1}}",
        "{dgl: {a: a=1}}",
    ],
)
def test_only_values_of_axes_have_a_substitute(tmp_path: Path, without: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_sweep(write(tmp_path, f"axes: {{a: [1, 2]}}\nwithout: {without}"))
    assert caught.value.problems[0].key.endswith("without.dgl")
