"""The first answer at a glance: settings as rows, systems next to each other, the best marked, speed-ups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from figure_runs import figure_run

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.paired.fastest import setting_answers
from gnnexp.reports.paired.settings import settings_table
from gnnexp.reports.paired.verdicts import Margins
from gnnexp.reports.tables.groups import group_runs
from gnnexp.reports.tables.table import ReportTable

KEYS = ("dataset", "hardware.workers", "system")


def run_of(system: str, workers: int, seconds: float, acc: float = 0.5, dataset: str = "cora") -> RecordedRun:
    run = figure_run(system, seconds, dataset=dataset)
    config: Mapping[str, Any] = {**run.config, "hardware": {**run.config.get("hardware", {}), "workers": workers}}
    return replace(run, config=config, summary={"acc/test": acc, "acc/val": acc})


def dated(run: RecordedRun, seed: int, place: int) -> RecordedRun:
    """One of the runs of a seed, which come before those of the next seed."""
    provenance = {"date": f"2026-01-01T00:{4 * seed + place:02d}", "dataset_key": "cora"}
    return replace(run, config={**run.config, "seed": seed}, provenance=provenance)


def table_of(runs: Sequence[RecordedRun], keys: Sequence[str] = KEYS) -> ReportTable | None:
    groups = group_runs(runs, keys)
    return settings_table(setting_answers(groups, keys, Margins()), groups, keys, "Fastest: a.")


def told(runs: Sequence[RecordedRun], keys: Sequence[str] = KEYS) -> list[dict[str, str]]:
    table = table_of(runs, keys)
    assert table is not None and table.heading == "Fastest: a."
    return [dict(zip(table.header, texts, strict=True)) for texts in table.texts]


def test_epochs_accuracies_and_speed_ups_stand_next_to_each_other() -> None:
    runs = [
        run_of("a", 1, 1.0, 0.8),
        run_of("b", 1, 2.0, 0.9),
        run_of("a", 2, 0.8, 0.8),
        run_of("b", 2, 0.5, 0.9),
        run_of("a", 4, 0.4, 0.7),
    ]
    table = table_of(runs)
    assert table is not None
    first, second, third = told(runs)
    names = [
        "workers",
        "fastest",
        "next takes",
        "a epoch s",
        "b epoch s",
        "a acc %",
        "b acc %",
        "a speed-up",
        "b speed-up",
    ]
    assert list(first) == names
    assert [*first.values()] == ["1", "a, not proven", "b 2.00x", "1.0000", "2.0000", "80.00", "90.00", "–", "–"]
    assert [*second.values()] == ["2", "b, not proven", "a 1.60x", "0.8000", "0.5000", "80.00", "90.00", "1.25", "4.00"]
    assert [*third.values()] == ["4", "–", "–", "0.4000", "–", "70.00", "–", "2.50", "–"]
    assert table.best == frozenset(), "a single pair proves nothing"


def test_several_data_sets_have_speed_ups_of_their_own() -> None:
    runs = [
        run_of("a", workers, seconds, dataset=dataset)
        for dataset, workers, seconds in (("cora", 2, 1.0), ("cora", 8, 0.5), ("pubmed", 4, 3.0), ("pubmed", 8, 1.0))
    ]
    assert [row["a speed-up"] for row in told(runs)] == ["–", "2.00", "–", "3.00"]


def test_what_is_proven_is_bold_and_failures_have_their_reason() -> None:
    runs = [
        dated(run_of(system, workers, seconds + seed / 1000), seed, "ab".index(system))
        for seed in range(3)
        for system, workers, seconds in (("a", 1, 1.0), ("b", 1, 2.0), ("a", 2, 1.0 + 0.1 * seed), ("b", 2, 1.1))
    ]
    table = table_of(runs)
    assert table is not None and table.best == {(0, 3)}, "in the second row it is undecided"
    first, second = told(runs)
    assert first["fastest"] == "a" and first["next takes"] == "b 2.00x (2.00 to 2.00)"
    assert second["fastest"] == "undecided"
    out = replace(run_of("b", 2, 1.0), status="failed", kind="out of memory")
    rows = told([run_of("a", 1, 1.0), run_of("b", 1, 1.1), run_of("a", 2, 1.0), out])
    assert rows[1]["b epoch s"] == "OOM" and rows[1]["b speed-up"] == "–" and rows[1]["fastest"] == "–"


def test_a_system_that_lacks_settings_has_dashes_there_and_a_speed_up_of_its_own_base() -> None:
    runs = [
        run_of(name, workers, 1.0 / workers, dataset=data)
        for data in ("cora", "x")
        for name in "ab"
        for workers in (1, 2)
    ]
    runs += [run_of("c", workers, 4.0 / workers) for workers in (2, 4)]
    rows = {(row["dataset"], row["workers"]): row["c speed-up"] for row in told(runs)}
    assert rows["cora", "4"] == "2.00" and set(rows.values()) == {"–", "2.00"}
    out = [
        replace(run, status="failed", kind="out of memory") if run.value("hardware.workers") == "1" else run
        for run in runs
    ]
    assert {row["a speed-up"] for row in told(out)} == {"–"}, "it finished with one number of workers"


def test_the_caption_explains_only_what_is_there() -> None:
    few = table_of([run_of(f"s{k}", workers, 1.0 + k) for k in range(2) for workers in (1, 2)])
    many = table_of([run_of(f"s{k}", workers, 1.0 + k) for k in range(7) for workers in (1, 2)])
    assert few is not None and many is not None
    assert "bold" in few.caption and "bold" not in many.caption and "Speed-up" not in many.caption


def test_many_systems_get_no_columns_of_their_own() -> None:
    runs = [run_of(f"s{k}", workers, 1.0 + k) for k in range(7) for workers in (1, 2)]
    assert [*told(runs)[0]] == ["workers", "fastest", "next takes"]


def test_no_speed_up_without_several_numbers_of_workers() -> None:
    runs = [run_of(system, 1, 1.0, dataset=dataset) for system in "ab" for dataset in ("cora", "pubmed")]
    keys = ("dataset", "system")
    assert list(told(runs, keys)[0]) == [
        "dataset",
        "fastest",
        "next takes",
        "a epoch s",
        "b epoch s",
        "a acc %",
        "b acc %",
    ]
    table = table_of(runs, keys)
    assert table is not None and "Speed-up" not in table.caption


def test_runs_that_were_not_evaluated_have_no_columns_of_accuracy() -> None:
    runs = [replace(run_of(system, workers, 1.0), summary={}) for system in "ab" for workers in (1, 2)]
    assert [*told(runs)[0]] == [
        "workers",
        "fastest",
        "next takes",
        "a epoch s",
        "b epoch s",
        "a speed-up",
        "b speed-up",
    ]


def test_records_without_a_number_of_workers_have_no_speed_up() -> None:
    unknown = [
        replace(run, config={**run.config, "hardware": {}}) for run in (run_of("a", 1, 1.0), run_of("b", 1, 1.0))
    ]
    rows = told([*unknown, run_of("a", 2, 1.0), run_of("b", 2, 1.5)])
    assert [row["workers"] for row in rows] == ["null", "2"] and "a speed-up" not in rows[0]


def test_one_setting_needs_no_table_of_settings() -> None:
    runs = [run_of(system, 1, 1.0) for system in "ab"]
    assert table_of(runs, ("system",)) is None
