"""One number of a run by its name: medians after warm-up, sums, counted zeros, and units."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from figure_runs import figure_run

from gnnexp.record.runs import RecordedRun
from gnnexp.reports.metrics import (
    axis_of,
    header_factor,
    metric_problems,
    seconds_to,
    typical_epoch,
    unit_problems,
    unrecorded,
    value_of,
    values_of,
)

EPOCHS = [
    {"time/epoch_s": 9.0, "acc/test": 0.1, "work/a": 1.0, "work/b": 10.0, "comm/bytes_gradients": 5.0},
    {"time/epoch_s": 1.0, "acc/test": 0.3, "work/a": 2.0, "work/b": 40.0, "comm/bytes_gradients": 5.0},
    {"time/epoch_s": 3.0, "acc/test": 0.2, "work/a": 4.0, "work/b": 20.0, "comm/bytes_gradients": 5.0},
    {"time/epoch_s": 2.0, "acc/test": 0.2, "work/a": 8.0, "work/b": 30.0, "comm/bytes_gradients": 5.0},
]


def make_run(epochs: list[dict[str, float]] = EPOCHS) -> RecordedRun:
    return RecordedRun(
        Path("run"), {}, {}, epochs, {"acc/test": 0.3, "time/epoch_s": 7.0}, "finished", quality={"edge_cut": 0.25}
    )


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("time/epoch_s", 2.0),
        ("acc/test", 0.3),
        ("quality/edge_cut", 0.25),
        ("work/a", 4.0),
        ("comm/bytes_features", 0.0),
        ("work/a + work/b", 38.0),
        ("comm/bytes_gradients + comm/rounds_frontier", 5.0),
    ],
)
def test_values(metric: str, value: float) -> None:
    assert value_of(make_run(), metric) == value, "sums are summed epoch by epoch: 42, 24, 38"


def test_what_was_not_recorded_is_no_zero() -> None:
    run = make_run()
    assert all(
        math.isnan(value_of(run, name))
        for name in (
            "work/c",
            "work/a + work/c",
            "acc/val",
            "quality/balance",
            "comm/bytes_skipped",
            "comm/bytes_nonsense",
        )
    )
    assert math.isnan(value_of(make_run([{"time/epoch_s": 1.0}] * 2), "comm/bytes_features")), "nothing was counted"


def test_captions_say_what_is_left_out() -> None:
    run, short, single = make_run(), make_run(EPOCHS[:2]), make_run(EPOCHS[:1])
    assert typical_epoch([run]) == "median of the 3 epochs after the first, which warms up and is left out"
    assert typical_epoch([run, short]).startswith("median of the 1 to 3 epochs after the first")
    assert typical_epoch([short]).startswith("median of the 1 epoch after")
    assert typical_epoch([single]) == "the only epoch, which is not warmed up"
    assert typical_epoch([run, single]).endswith("; runs of one epoch: that one") and typical_epoch([]) == "no epoch"


@pytest.mark.parametrize(
    ("header", "metric", "factor"),
    [
        ("features MB", "comm/bytes_features", 1e-6),
        ("epoch ms", "time/epoch_s", 1e3),
        ("epoch s", "time/epoch_s", 1.0),
        ("peak GB", "memory/device_peak_bytes", 1e-9),
        ("accuracy %", "acc/test", 100.0),
        ("edges M", "work/a", 1e-6),
        ("rounds", "comm/rounds_frontier", 1.0),
    ],
)
def test_units_of_columns(header: str, metric: str, factor: float) -> None:
    assert unit_problems("c", header, metric) == [] and header_factor(header) == factor


@pytest.mark.parametrize(
    ("header", "metric"),
    [
        ("load MB", "time/load_s"),
        ("peak s", "memory/device_peak_bytes"),
        ("all MB", "comm/bytes_features + comm/rounds_features"),
    ],
)
def test_units_that_do_not_fit(header: str, metric: str) -> None:
    (problem,) = unit_problems("c", header, metric)
    assert problem.key == "c"


@pytest.mark.parametrize(
    ("metric", "axis"),
    [
        ("time/epoch_s", ("epoch, seconds", 1.0)),
        ("comm/bytes_features", ("features sent, MB", 1e-6)),
        ("memory/device_peak_bytes", ("device peak, MB", 1e-6)),
        ("acc/test", ("acc/test, %", 100.0)),
        ("loss/train", ("loss/train", 1.0)),
        ("work/a + work/b", ("a + b", 1.0)),
        ("tier/h2d_bytes", ("h2d, MB", 1e-6)),
    ],
)
def test_axes_have_their_unit(metric: str, axis: tuple[str, float]) -> None:
    assert axis_of(metric) == axis


def test_names() -> None:
    known = (
        "time/load_s_mean",
        "time/hidden_sample_s",
        "comm/bytes_skipped",
        "comm/bytes_saved_by_me",
        "hits@20/test",
        "work/a + tier/b",
    )
    assert [metric_problems("y", name) for name in known] == [[]] * len(known)
    for slip, right in (("time/laod_s", "time/load_s"), ("comm/bytes_feature", "comm/bytes_features")):
        (problem,) = metric_problems("y", slip)
        assert right in problem.fix
    (problem,) = metric_problems("y", "memry/peak")
    assert "memory" in problem.fix
    assert all(len(metric_problems("y", name)) == 1 for name in ("epoch_s", "", 3, None, "time/load_s + b"))


def test_names_that_no_run_has_are_told_with_the_nearest() -> None:
    asked = ["work/a + work/aa", "comm/bytes_features", "acc/test", "quality/edge_cuts", "time/epoch", "acc/best"]
    assert unrecorded([make_run()], asked) == [
        "no run has work/aa; work/a?",
        "no run has quality/edge_cuts; quality/edge_cut?",
        "no run has time/epoch; time/epoch_s?",
        "no run has acc/best; acc/test?",
    ]
    assert unrecorded([replace(make_run(), status="failed")], asked) == [], "what failed has recorded nothing"
    assert unrecorded([make_run([]), make_run()], ["work/a"]) == []


def test_seconds_until_a_target_is_reached() -> None:
    run = figure_run("dgl", 2.0)
    values = (0.5, 0.7, 0.9)
    epochs = [
        {**epoch, "acc/val": value, "mse/val": 1 - value} for epoch, value in zip(run.epochs, values, strict=True)
    ]
    rising = replace(run, epochs=epochs, summary={"acc/val": 0.9})
    assert [seconds_to(target, rising) for target in (0.5, 0.6, 0.9)] == [20.0, 22.0, 24.0]
    assert math.isnan(seconds_to(0.95, rising))
    falling = replace(run, epochs=epochs, summary={"mse/val": 0.1})
    assert [seconds_to(target, falling) for target in (0.5, 0.4, 0.15)] == [20.0, 22.0, 24.0]
    assert math.isnan(seconds_to(0.05, falling)) and math.isnan(seconds_to(0.5, run))


def test_an_infinite_value_is_not_drawn() -> None:
    runs = [figure_run("a", seconds) for seconds in (1.0, math.inf, math.nan, 2.0)]
    assert values_of(runs, "time/epoch_s") == [1.0, 2.0]
