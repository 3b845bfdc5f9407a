"""The views that MLflow's page opens: their form, and that they name figures and tags that runs have."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from gnnexp.trackers.description import OWN_TAGS
from gnnexp.trackers.figures import BREAKDOWN, CUMULATIVE, VALIDATION
from gnnexp.trackers.view import EXPERIMENT_TAGS, FASTEST_KEY, SEEDS_KEY, SWEEPS_KEY, VIEW_KEY

MAIN = {f"main/{name}" for name in ("test", "epoch_s", "sent_MB", "host_MB", "device_MB", "time_to_target_s", "val")}


def state_of(key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(EXPERIMENT_TAGS[f"mlflow.sharedViewState.{key}"])
    if "state" in found:
        packed = found["state"].removeprefix("deflate;")
        return dict(json.loads(zlib.decompress(base64.b64decode(packed))))
    return found


def test_tags_are_short_enough_for_every_version_of_mlflow() -> None:
    assert max(map(len, EXPERIMENT_TAGS.values())) <= 5000


@pytest.mark.parametrize("key", [VIEW_KEY, FASTEST_KEY, SEEDS_KEY, SWEEPS_KEY])
def test_views_name_what_exists(key: str) -> None:
    state = state_of(key)
    metrics = {name[len("metrics.`") : -1] for name in state["selectedColumns"] if name.startswith("metrics.")}
    tags = {name[len("tags.`") : -1] for name in state["selectedColumns"] if name.startswith("tags.")}
    tags |= {key["groupByData"] for key in state.get("groupBy", {}).get("groupByKeys", ())}
    assert [name for name in state["columnOrder"] if name in state["selectedColumns"]] == [*state["selectedColumns"]]
    assert {*state["selectedColumns"]} <= {*state["columnWidths"]}
    charts = state["compareRunCharts"]
    for chart in charts:
        metrics |= {
            name
            for name in (
                chart.get("metricKey"),
                chart.get("selectedXAxisMetricKey"),
                *chart.get("selectedMetricKeys", ()),
            )
            if name
        }
    assert metrics <= MAIN | set(BREAKDOWN) | {CUMULATIVE, VALIDATION}
    assert tags <= OWN_TAGS
    assert {chart["metricSectionId"] for chart in charts} == {one["uuid"] for one in state["compareRunSections"]}
    assert len({chart["uuid"] for chart in charts}) == len(charts)


def test_a_row_begins_with_what_ran_and_how_fast_it_was() -> None:
    """A window of 1280 pixels has room for the first five columns."""
    first = ["tags.`system`", "tags.`dataset`", "tags.`ranks`", "metrics.`main/epoch_s`", "metrics.`main/test`"]
    state = state_of(FASTEST_KEY)
    assert state["selectedColumns"][:5] == first
    assert sum(state["columnWidths"][name] for name in state["columnOrder"][:7]) <= 880
    assert max(one["columns"] for one in state["compareRunSections"]) <= 3, "room for the titles of charts"


def test_a_mean_over_seeds_mixes_no_sweeps_and_no_cases() -> None:
    state = state_of(SEEDS_KEY)
    assert state["groupBy"]["aggregateFunction"] == "average" and "tags.sweep" in state["searchFilter"]
    keys = {(key["mode"], key["groupByData"]) for key in state["groupBy"]["groupByKeys"]}
    assert keys == {("tag", "case"), ("param", "case"), ("tag", "sweep")}


def test_the_installed_mlflow_knows_the_entries() -> None:
    """The form is that of MLflow's page, whose script names each entry. Another version may have another form."""
    import mlflow

    scripts = Path(mlflow.__file__).parent / "server" / "js" / "build" / "static" / "js"
    if not scripts.is_dir():
        pytest.skip("this MLflow has no page")
    text = "".join(file.read_text(encoding="utf-8") for file in scripts.glob("*.js"))
    state = state_of(SEEDS_KEY)
    entries = {
        *state,
        *(name for chart in state["compareRunCharts"] for name in chart),
        *(name for one in state["compareRunSections"] for name in one),
        *state["groupBy"],
        *(name for key in state["groupBy"]["groupByKeys"] for name in key),
    }
    assert not [name for name in entries if name not in text]
    assert "mlflow.sharedViewState." in text and "viewStateShareKey" in text and '"deflate;"' in text
