"""The key of a run: equal keys, equal results."""

from __future__ import annotations

from typing import Any

import pytest

from gnnexp.datasets.gnnexp_format import GnnexpFormat
from gnnexp.provenance import code as code_module
from gnnexp.provenance.code import Code
from gnnexp.provenance.run_key import as_executed, recorded_key, run_key

CONFIG: dict[str, Any] = {
    "dataset": {"_target_": "D", "path": "/a"}, "model": {"hidden": 1}, "seed": 0, "name": "x",
    "tracker": {"_target_": "T"}, "hardware": {"workers": 2, "launcher": {"_target_": "L"}}, "train": {"lr": 0.1},
}
NO_CODE = Code({}, {})
MINE = Code({}, {"mine": "1" * 16})
EDITED = Code({}, {"mine": "2" * 16})


def test_the_key_ignores_where_things_are_and_nothing_else() -> None:
    key = run_key(CONFIG, "k", NO_CODE)
    same = [
        {**CONFIG, "name": None}, {**CONFIG, "tracker": None}, {**CONFIG, "dataset": {"_target_": "D", "path": "/b"}},
        {**CONFIG, "hardware": {"workers": 2}}, dict(reversed(CONFIG.items())),
    ]
    assert {run_key(config, "k", NO_CODE) for config in same} == {key}
    other = [
        {**CONFIG, "seed": 1}, {**CONFIG, "model": {"hidden": 2}}, {**CONFIG, "hardware": {"workers": 3}},
        {**CONFIG, "dataset": {"_target_": "E", "path": "/a"}}, {**CONFIG, "train": {"lr": 0.2}},
    ]
    keys = {run_key(config, "k", NO_CODE) for config in other}
    codes = {run_key(CONFIG, "k", code) for code in (MINE, EDITED, Code({"gnnexp.training.train": "3" * 16}, {}))}
    assert len(keys | codes | {key, run_key(CONFIG, "changed data", NO_CODE)}) == len(other) + len(codes) + 2


def test_runs_made_before_code_was_a_part_of_it_keep_their_key() -> None:
    assert run_key(CONFIG, "k", NO_CODE) == "c550135b4c3d6c70aaef66b2808b6850"


def test_figures_that_only_describe_a_machine_change_no_key() -> None:
    """Profiles made before these figures were there, and those that have them since, are of the same runs."""
    before: dict[str, Any] = {"workers": 1, "flops": 1e12, "links": {"h2d": 1e9, "d2d": None, "network": None}}
    figures = {"flops_tf32": 4e12, "l2": 5e12, "launch_s": 3e-6}
    links = {**before["links"], "d2h": 2e9, "duplex": None, "h2d_gather": 1e8}
    keys = {run_key({**CONFIG, "hardware": hardware}, "k", NO_CODE)
            for hardware in (before, {**before, **figures}, {**before, **figures, "links": links})}
    assert len(keys) == 1
    other = {**before, "links": {**links, "h2d": 2e9}}
    assert run_key({**CONFIG, "hardware": other}, "k", NO_CODE) not in keys


def test_runs_made_when_a_rank_could_be_slow_keep_their_key() -> None:
    before: dict[str, Any] = {"workers": 2, "straggler": None, "throttle": None}
    keys = [run_key({**CONFIG, "hardware": hardware}, "k", NO_CODE)
            for hardware in (before, {"workers": 2, "throttle": None})]
    assert keys == ["f372e108a36ba739ce1e9d0accdd27f4"] * 2
    slowed = {**before, "straggler": {"rank": 0, "phase": "load", "seconds": 1.0}}
    assert run_key({**CONFIG, "hardware": slowed}, "k", NO_CODE) not in keys


def provenance(code: Code) -> dict[str, Any]:
    return {"dataset_key": "k", "code": code.to_json(), "run_key": run_key(CONFIG, "k", code)}


def test_a_result_of_several_codes_has_no_key() -> None:
    prepared = provenance(MINE)
    assert as_executed(prepared, [MINE.to_json()]) == prepared
    of_none = {"code": EDITED.to_json(), "earlier_code": [MINE.to_json()], "run_key": ""}
    assert as_executed(prepared, [EDITED.to_json()]) == prepared | of_none, "edited after the partition was made"
    assert as_executed(prepared, [MINE.to_json(), EDITED.to_json()]) == prepared | of_none, "edited between attempts"
    gone_on = {**provenance(EDITED), "run_key": ""}
    assert as_executed(gone_on, [MINE.to_json(), EDITED.to_json()]) == gone_on | of_none, "resumed with --changed-code"
    assert as_executed(prepared, []) == prepared, "records that do not say what was executed"
    assert as_executed({**prepared, "run_key": ""}, [MINE.to_json()])["run_key"] == ""


def test_a_change_that_is_found_to_give_the_same_results_gives_the_old_key(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Code({"gnnexp.training.train": "3" * 16}, {"mine": "1" * 16})
    recorded = provenance(changed)
    assert recorded_key(CONFIG, recorded) == recorded["run_key"]
    monkeypatch.setattr(code_module, "known_results", lambda: {("gnnexp.training.train", "3" * 16): "2"})
    assert recorded_key(CONFIG, recorded) == run_key(CONFIG, "k", MINE)
    assert recorded_key(CONFIG, {**recorded, "run_key": ""}) == "", "a result of several codes stays nobody's"


def test_a_dataset_option_that_came_later_changes_no_key_where_it_changes_nothing() -> None:
    before = {"_target_": "gnnexp.datasets.gnnexp_format.GnnexpFormat", "path": "/a", "name": None}
    keys = [run_key({**CONFIG, "dataset": dataset}, "k", NO_CODE)
            for dataset in (before, {**before, "weights": True}, {**before, "weights": False})]
    assert keys[0] == keys[1] != keys[2]
    kept, dropped = (GnnexpFormat(path="a", weights=weights).options() for weights in (True, False))
    assert "weights" not in kept and "weights" in dropped


def test_an_option_of_a_cache_that_came_later_changes_no_key_where_it_changes_nothing() -> None:
    cache = {"_target_": "gnnexp.feature_stores.sharded_cache.ShardedCache", "capacity": 0.1}
    keys = [run_key({**CONFIG, "feature_store": {"_target_": "gnnexp.feature_stores.local.LocalStore", "cache": node}},
                    "k", NO_CODE) for node in (cache, {**cache, "access": "auto"}, {**cache, "access": "collective"})]
    assert keys[0] == keys[1] != keys[2]
