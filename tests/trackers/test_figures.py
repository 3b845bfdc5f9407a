"""Which figures of a run a store gets, and those that follow from the record."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from run_folder import metrics_of, write_epochs, write_job, write_result

from gnnexp.measure.ledger import TAGS
from gnnexp.measure.record import TIME_NAMES, TRAFFIC_NAMES
from gnnexp.trackers.delivery import RunRecord, read_run_record
from gnnexp.trackers.figures import epoch_figures, main_figures, phase_figures

GRAPH = {"num_train": 1000, "num_links": 0}


def record_of(folder: Path, epochs: int = 3, config: dict[str, Any] | None = None, **provenance: object) -> RunRecord:
    write_job(folder, graph=GRAPH, **provenance)
    job = json.loads((folder / "job.json").read_text())
    job["config"] |= config or {}
    (folder / "job.json").write_text(json.dumps(job))
    write_epochs(folder, epochs)
    write_result(folder)
    return read_run_record(folder)


def changed(record: RunRecord, *metrics: dict[str, float | None]) -> RunRecord:
    """The record with other metrics in its epochs; None removes one."""
    lines = [
        {**line, "metrics": {name: value for name, value in (line["metrics"] | new).items() if value is not None}}
        for line, new in zip(record.epochs, metrics, strict=True)
    ]
    return RunRecord(record.job, lines, record.result)


def test_no_run_has_more_than_forty_metrics_by_default(tmp_path: Path) -> None:
    record = record_of(tmp_path)
    everything = dict.fromkeys(
        [
            *TIME_NAMES,
            *TRAFFIC_NAMES,
            "tier/h2d_bytes",
            "tier/d2h_bytes",
            "eval/seconds",
            "memory/host_peak_bytes",
            "memory/device_peak_bytes",
            "work/edges_computed",
            *(f"{name}/{split}" for name in ("acc", "macro_f1", "mrr", "hits@20", "loss") for split in ("val", "test")),
        ],
        1.0,
    )
    found = changed(record, *[everything] * 3)
    names = {name for figures in epoch_figures(found, "main") for name in figures}
    names |= set(main_figures(found, 0.5)) | set(phase_figures(found))
    assert len(names) <= 40
    assert {"loss/train", "acc/val", "acc/test", "main/val", "time/cumulative_s", "time/epoch_s"} <= names
    assert not any(name.endswith("_min") for name in names)
    assert sum("sample" in name for name in names) == 1, "one figure for each phase"
    full = {name for figures in epoch_figures(found, "full") for name in figures}
    assert full >= set(everything) | {name for name in names if not name.startswith(("main/", "phase/"))}


def test_phases_are_those_of_the_breakdown(tmp_path: Path) -> None:
    epochs = [{"time/sample_s_mean": seconds, "time/epoch_s": 1.0} for seconds in (9.0, 0.2, 0.4, 0.3)]
    assert phase_figures(changed(record_of(tmp_path, 4), *epochs)) == {"phase/sample_s": 0.3}


def test_every_payload_of_training_is_sent(tmp_path: Path) -> None:
    sent = dict.fromkeys([f"comm/bytes_{tag}" for tag in TAGS], 1.0)
    (figures,) = epoch_figures(changed(record_of(tmp_path, 1), sent), "main")
    assert set(sent) - set(figures) == {"comm/bytes_sizes", "comm/bytes_evaluation"}, "a new tag needs a decision"


def test_time_so_far_is_the_sum_of_the_epochs(tmp_path: Path) -> None:
    figures = epoch_figures(record_of(tmp_path), "main")
    assert [one["time/cumulative_s"] for one in figures] == pytest.approx([8.0, 8.8, 9.6])
    assert all(list(one)[-1] == "time/cumulative_s" for one in figures), "it marks a complete epoch"


def test_time_so_far_ends_where_an_epoch_has_no_time(tmp_path: Path) -> None:
    found = epoch_figures(changed(record_of(tmp_path), {}, {"time/epoch_s": None}, {}), "full")
    assert ["time/cumulative_s" in one for one in found] == [True, False, False]
    assert all("throughput/targets_per_s" in one for one in (found[0], found[2]))


def test_throughput(tmp_path: Path) -> None:
    record = changed(record_of(tmp_path, 1), {"work/edges_computed": 400.0, "time/epoch_s": 0.5})
    (figures,) = epoch_figures(record, "main")
    assert figures["throughput/targets_per_s"] == 2000 and figures["throughput/edges_per_s"] == 800
    (stopped,) = epoch_figures(changed(record, {"time/epoch_s": 0.0}), "main")
    assert not any(name.startswith("throughput") for name in stopped)


@pytest.mark.parametrize("shorter", [{"train": {"steps_per_epoch": 2}}, None])
def test_targets_that_the_record_does_not_count(tmp_path: Path, shorter: dict[str, Any] | None) -> None:
    choices = {} if shorter else {"choices": {"task": "link_prediction"}}
    (figures,) = epoch_figures(record_of(tmp_path, 1, shorter, **choices), "main")
    assert "throughput/targets_per_s" not in figures


def test_seconds_to_the_target(tmp_path: Path) -> None:
    record = record_of(tmp_path)
    assert metrics_of(1)["acc/val"] < 0.82 <= metrics_of(2)["acc/val"]
    assert main_figures(record, 0.82)["main/time_to_target_s"] == pytest.approx(9.6)
    assert main_figures(record, 0.1)["main/time_to_target_s"] == pytest.approx(8.0)
    assert "main/time_to_target_s" not in main_figures(record, 0.99) | main_figures(record)


def test_the_validation_metric_is_the_chosen_one(tmp_path: Path) -> None:
    record = record_of(tmp_path, config={"task": {"metric": "macro_f1"}})
    record = changed(record, {"macro_f1/val": 0.3}, {"macro_f1/val": math.nan}, {})
    assert ["main/val" in one for one in epoch_figures(record, "main")] == [True, False, True]
    assert epoch_figures(record, "main")[0]["main/val"] == 0.3


def test_a_run_without_epochs(tmp_path: Path) -> None:
    record = record_of(tmp_path, 0)
    assert epoch_figures(record, "main") == [] and main_figures(record, 0.5) == {}
