"""What the dashboard shows when `gnnexp ui` opens it: columns, charts, and the description of the experiment.

MLflow keeps a view as a tag of the experiment. Its content is the state of MLflow's own page of runs, in the form of
MLflow 3.17 (`compareRunCharts`, `compareRunSections`). A page that does not know an entry ignores it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from gnnexp.trackers.figures import BREAKDOWN, CUMULATIVE, VALIDATION

NOTE_TAG = "mlflow.note.content"
# The view that `gnnexp ui` opens, and the one with a list that is sorted by seconds.
VIEW_KEY, FASTEST_KEY = "gnnexp", "gnnexp-fastest"
EXPERIMENT_NOTE = """Runs of gnnexp. There is a run here for each run directory (`tags.kind = 'run'`), and for each
sweep, with its report (`tags.kind = 'sweep'`). The runs of a sweep are below it. The views `Views > fastest first` and
the charts (the second button at the left of the filter) compare them.

Filter: `tags.system = 'gsplit'`, `tags.dataset = 'cora'`, `tags.model`, `tags.host`, `tags.gpu`, `tags.device = 'cpu'`,
`tags.paradigm`, `tags.sweep`, `tags.exact = 'true'`, `tags.status = 'failed'`, `params.ranks = '4'`,
`metrics.`main/epoch_s` < 0.1`.

- `main/*`: test metric at the best validation epoch, median epoch seconds after the first, peak memory, MB sent per
  epoch, validation metric by epoch.
- `time/*_mean`: seconds in each phase of an epoch, mean over the ranks; they add up to `time/epoch_s`.
- `time/cumulative_s`: training time so far, without evaluation and checkpoints.
- `throughput/*`, `comm/*`, `memory/*`, `loss/*`: by epoch.
- Everything that was recorded is in the artifacts `epochs.jsonl` and `result.json`.
"""

_COLUMNS = (
    *(f"metrics.`main/{name}`" for name in ("epoch_s", "test", "time_to_target_s", "sent_MB", "host_MB", "device_MB")),
    *(f"tags.`{name}`" for name in ("sweep", "status", "exact", "host", "gpu", "device")),
    *(f"params.`{name}`" for name in ("system", "dataset", "model", "paradigm", "partitioner", "ranks", "seed")),
)
_SPEED, _REST = "gnnexp-speed", "gnnexp-differences"


def _bars(name: str, *metrics: str) -> dict[str, Any]:
    return {"type": "BAR", "metricKey": metrics[0], **({"selectedMetricKeys": metrics} if metrics[1:] else {}),
            "displayName": name, "runsCountToCompare": 20}


def _lines(name: str, metric: str, by: str) -> dict[str, Any]:
    return {"type": "LINE", "metricKey": metric, "selectedMetricKeys": [metric], "displayName": name,
            "xAxisKey": "metric", "selectedXAxisMetricKey": by, "useGlobalXaxisKey": False, "yAxisKey": "metric",
            "scaleType": "linear", "xAxisScaleType": "linear", "lineSmoothness": 0, "useGlobalLineSmoothing": False,
            "range": {}, "yAxisExpressions": [], "ignoreOutliers": False, "runsCountToCompare": 20}


def _charts() -> list[dict[str, Any]]:
    """The charts in their order: which run is fastest, how accurate it is by time, why, and what differs."""
    speed = [
        _bars("seconds per epoch (median)", "main/epoch_s"),
        _bars("test metric at the best validation epoch", "main/test"),
        _lines("validation metric by seconds of training", VALIDATION, CUMULATIVE),
        _bars("seconds in each phase", *BREAKDOWN),
    ]
    differences = {"type": "DIFFERENCE", "compareGroups": ["Parameters", "Tags"], "chartName": "what differs",
                   "showChangeFromBaseline": True, "showDifferencesOnly": True, "baselineColumnUuid": "",
                   "runsCountToCompare": 10}
    placed = [*((one, _SPEED) for one in speed), (differences, _REST)]
    return [{"uuid": f"gnnexp-chart-{number}", "metricSectionId": section, "deleted": False, "isGenerated": False,
             **one} for number, (one, section) in enumerate(placed)]


def _state(**more: object) -> dict[str, Any]:
    sections = ((_SPEED, "Speed and accuracy"), (_REST, "What differs between the runs"))
    return {
        "selectedColumns": _COLUMNS, "runsHiddenMode": "FIRST_20_RUNS", "isAccordionReordered": True,
        "compareRunCharts": _charts(),
        "compareRunSections": [{"uuid": uuid, "name": name, "display": True, "isReordered": True, "deleted": False,
                                "isGenerated": False} for uuid, name in sections],
        **more}


def _named(name: str, state: Mapping[str, Any]) -> str:
    """A view with a name, for MLflow's list of views (from 3.15 on). Compressed, since a tag has at most 5000 letters.

    The dates are fixed, so that the tag changes only if the view does.
    """
    packed = base64.b64encode(zlib.compress(_text(state).encode(), 9)).decode()
    return _text({"name": name, "createdAt": 1_795_000_000_000, "updatedAt": 1_795_000_000_000,
                  "state": f"deflate;{packed}"})


def _text(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


EXPERIMENT_TAGS = {
    NOTE_TAG: EXPERIMENT_NOTE,
    f"mlflow.sharedViewState.{VIEW_KEY}": _text(_state()),
    f"mlflow.sharedViewState.{FASTEST_KEY}": _named("fastest first", _state(
        searchFilter="tags.kind = 'run' and tags.status = 'finished'", orderByKey="metrics.`main/epoch_s`",
        orderByAsc=True)),
}
