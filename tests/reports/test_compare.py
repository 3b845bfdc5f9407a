"""Two runs explained: only what differs, phases that add up, the largest difference first, one sentence above."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gnnexp.errors import DataError
from gnnexp.record.runs import RecordedRun
from gnnexp.reports.compare import comparison_of
from gnnexp.reports.tables.markdown import markdown_of

FIRST = {
    "time/epoch_s_mean": 10.0,
    "time/sample_s_mean": 2.0,
    "time/load_s_mean": 6.0,
    "time/forward_s_mean": 2.0,
    "comm/bytes_features": 500.0,
    "comm/rounds_features": 4.0,
    "work/edges_computed": 70.0,
    "memory/device_peak_bytes": 100.0,
    "time/comm_s": 3.0,
}
SECOND = {
    "time/epoch_s_mean": 5.0,
    "time/sample_s_mean": 1.0,
    "time/load_s_mean": 1.0,
    "time/forward_s_mean": 3.0,
    "comm/bytes_activations": 200.0,
    "comm/rounds_activations": 6.0,
    "work/edges_computed": 70.0,
    "memory/device_peak_bytes": 50.0,
    "time/comm_s": 1.0,
}


def make_run(name: str, metrics: dict[str, float], hidden: int = 8) -> RecordedRun:
    config = {"system": name, "model": {"hidden": hidden, "layers": 2}, "tracker": {"uri": name}, "name": name}
    return RecordedRun(
        Path(name),
        config,
        {"code_version": "0.1.0"},
        [{"time/epoch_s_mean": 99.0}, metrics, metrics],
        {"acc/test": 0.5 if name == "a" else 0.75},
        "finished",
    )


def rows_of(first: RecordedRun, second: RecordedRun, part: str) -> list[tuple[str, ...]]:
    return [row[1:] for row in comparison_of(first, second).rows if row[0] == part]


def test_only_settings_that_differ() -> None:
    assert rows_of(make_run("a", FIRST), make_run("b", SECOND, 16), "setting") == [
        ("system", "a", "b", "", "", ""),
        ("model.hidden", "8", "16", "", "", ""),
    ]
    older = replace(make_run("a", FIRST), provenance={"code_version": "0.0.9"})
    assert rows_of(make_run("a", FIRST), older, "setting") == [("code version", "0.1.0", "0.0.9", "", "", "")]


def test_phases_add_up_and_the_largest_difference_is_first() -> None:
    first, second = make_run("a", FIRST), make_run("b", SECOND)
    assert rows_of(first, second, "phases") == [
        ("time/load_s", "6", "1", "-5", "0.167", "100.0"),
        ("time/forward_s", "2", "3", "+1", "1.500", "-20.0"),
        ("time/sample_s", "2", "1", "-1", "0.500", "20.0"),
    ]
    assert rows_of(first, second, "epoch") == [("time/epoch_s", "10", "5", "-5", "0.500", "100.0")]
    assert rows_of(first, second, "within phases") == [("time/comm_s", "3", "1", "-2", "0.333", "")]


def test_a_phase_that_only_one_run_tells_apart_explains_nothing() -> None:
    """DDP waits inside of backward."""
    first = make_run("a", {"time/epoch_s_mean": 1.0, "time/backward_s_mean": 0.5, "time/wait_s_mean": 0.5})
    second = make_run("b", {"time/epoch_s_mean": 1.2, "time/backward_s_mean": 1.2})
    assert rows_of(first, second, "phases") == [
        ("time/backward_s", "0.5", "1.2", "+0.7", "2.400", "350.0"),
        ("time/wait_s", "0.5", "–", "–", "–", ""),
    ]
    assert "wait" not in comparison_of(first, second).heading


def test_bytes_work_memory_and_the_metric() -> None:
    first, second = make_run("a", FIRST), make_run("b", SECOND)
    assert rows_of(first, second, "bytes") == [
        ("comm/bytes_features", "500", "0", "-500", "0.000", ""),
        ("comm/bytes_activations", "0", "200", "+200", "–", ""),
    ]
    assert [row[0] for row in rows_of(first, second, "rounds")] == ["comm/rounds_activations", "comm/rounds_features"]
    assert rows_of(first, second, "work") == [("work/edges_computed", "70", "70", "+0", "1.000", "")]
    assert rows_of(first, second, "memory")[0][1:3] == ("100", "50")
    assert rows_of(first, second, "metric") == [("acc/test", "0.5", "0.75", "+0.25", "1.500", "")]


def test_the_sentence_names_what_explains_the_difference() -> None:
    table = comparison_of(make_run("a", FIRST), make_run("b", SECOND))
    assert table.heading == (
        "B's epoch is 5 s shorter than A's (5 s, 10 s: x 0.5), mainly by load -5 s (100 % of the difference)."
    )
    other = comparison_of(make_run("a", SECOND), make_run("b", FIRST)).heading
    assert other.startswith("B's epoch is 5 s longer than A's (10 s, 5 s: x 2), mainly by load +5 s (100 %")
    worse = {**SECOND, "time/epoch_s_mean": 6.0, "time/forward_s_mean": 4.0}
    assert comparison_of(make_run("a", FIRST), make_run("b", worse)).heading.endswith(", against forward +2 s.")
    assert comparison_of(make_run("a", FIRST), make_run("b", {**FIRST, "time/epoch_s_mean": 10.1})).heading == (
        "Both take equally long: 10 s an epoch and 10.1 s."
    )
    assert comparison_of(make_run("a", {}), make_run("b", {})).heading == "One of the runs has no epoch time."
    assert markdown_of(table).startswith(table.heading)


def test_runs_that_did_not_finish_are_refused_both_at_once() -> None:
    failed = replace(make_run("a", FIRST), status="failed", reason="rank 0 died")
    with pytest.raises(DataError) as caught:
        comparison_of(failed, replace(failed, path=Path("b")))
    assert [problem.key for problem in caught.value.problems] == ["a", "b"] and "rank 0 died" in str(caught.value)
