"""Results, counts and defaults of before: a change of them needs a raised version, or finished runs would be taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from frozen_results import NEED_DGL, SYSTEMS, components, differences, measured, read, unraised

from gnnexp.testing.ranks import RankPools

WRITE = "python tests/support/frozen_results.py"


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_preset_computes_and_counts_as_before(system: str, ranks: RankPools, tmp_path: Path) -> None:
    if system in NEED_DGL:
        pytest.importorskip("dgl")
    before, now = read("presets")[system], measured(system, ranks, tmp_path)
    found = differences(before, now)
    if now["versions"] == before["versions"]:
        assert not found, "raise the `version` of the component that changed, or RESULT_VERSION (CONTRIBUTING.md)"
    assert (now["versions"], found) == (before["versions"], []), f"a version was raised: {WRITE}"


def test_every_preset_is_frozen() -> None:
    assert sorted(read("presets")) == SYSTEMS, WRITE


def test_a_changed_default_raises_a_version() -> None:
    before, now = read("components"), components()
    assert not unraised(before, now), "raise the `version` of the class, or RESULT_VERSION for train and hardware"
    assert now == before, f"an option or a class is new: {WRITE}"


def test_it_sees_a_default_a_name_a_loss_and_a_count_that_change() -> None:
    one = {"model/gat": {"version": 1, "defaults": {"heads": "4"}}}
    more = {"version": 1, "defaults": {"heads": "4", "new": "0"}}
    assert not unraised(one, {"model/gat": more, "model/new": more})
    assert unraised(one, {"model/gat": {"version": 1, "defaults": {"heads": "8"}}})
    assert not unraised(one, {"model/gat": {"version": 2, "defaults": {"heads": "8"}}})
    assert unraised(one, {"model/attention": one["model/gat"]})
    before = {"losses": [[1.0, 0.5]], "counts": [{"comm/bytes_features": 8.0, "work/ratio": 1 / 3}]}
    assert not differences(before, {"losses": [[1.0, 0.5 + 1e-12]], "counts": before["counts"]})
    assert differences(before, {**before, "losses": [[1.0, 0.5 + 1e-9]]})
    assert differences(before, {**before, "counts": [{"comm/bytes_features": 16.0, "work/ratio": 1 / 3}]})
    assert differences(before, {**before, "counts": [{"comm/bytes_features": 8.0}]})
