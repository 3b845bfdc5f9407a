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
# The view that `gnnexp ui` opens, the same for MLflow's list of views, and the one with runs below their sweeps.
VIEW_KEY, FASTEST_KEY, SEEDS_KEY, SWEEPS_KEY = "gnnexp", "gnnexp-fastest", "gnnexp-seeds", "gnnexp-sweeps"
EXPERIMENT_NOTE = """`Views`: fastest first, mean over seeds, sweeps with their answers. Left of the filter: charts.

There is a run here for each run directory (`tags.kind = 'run'`), and for each sweep, with its report
(`tags.kind = 'sweep'`). Its tags have the answers: `fastest`, and a verdict for each quantity of `report.against`.

Filter: `tags.system = 'gsplit'`, `tags.dataset = 'cora'`, `tags.model`, `tags.host`, `tags.gpu`, `tags.device = 'cpu'`,
`tags.paradigm`, `tags.sweep`, `tags.exact = 'true'`, `tags.status = 'failed'`, `params.ranks = '4'`,
`metrics.`main/epoch_s` < 0.1`.

- `main/*`: test metric at the best validation epoch, median epoch seconds after the first, peak memory, MB sent per
  epoch, validation metric by epoch.
- `phase/*`: seconds in each phase of an epoch, mean over the ranks. `wait` is waiting for slower ranks.
- `time/cumulative_s`: training time so far, without evaluation and checkpoints.
- `throughput/*`, `comm/*`, `memory/*`, `loss/*`: by epoch.
- Everything that was recorded is in the artifacts `epochs.jsonl` and `result.json`.
"""

_COLUMNS = (
    *(f"tags.`{name}`" for name in ("system", "dataset", "ranks")),
    *(f"metrics.`main/{name}`" for name in ("epoch_s", "test", "time_to_target_s", "sent_MB", "host_MB", "device_MB")),
    *(f"tags.`{name}`" for name in ("exact", "sweep", "status", "host", "cpu", "gpu")),
    *(f"params.`{name}`" for name in ("model", "paradigm", "partitioner", "seed")),
)
_ANSWER = "tags.`fastest`"
# MLflow's names of two more columns, and widths in pixels. The list has the order of the names here.
_NAME, _CREATED = "attributes.`Run Name`", "runDateAndNestInfo"
_WIDTHS = {
    _NAME: 240,
    _CREATED: 130,
    **dict.fromkeys(_COLUMNS, 110),
    "metrics.`main/time_to_target_s`": 160,
    "tags.`ranks`": 70,
    "tags.`cpu`": 150,
    _ANSWER: 560,
}
# Phases that take time in most runs.
_SHOWN = [name for name in BREAKDOWN if not name.startswith(("phase/negatives", "phase/decode", "phase/loss"))]


def _bars(metric: str) -> dict[str, Any]:
    return {"type": "BAR", "metricKey": metric, "runsCountToCompare": 20}


def _lines(metric: str, by: str) -> dict[str, Any]:
    """A metric by another one, or by epoch if `by` is empty: a mean over runs has no seconds of its own."""
    return {
        "type": "LINE",
        "metricKey": metric,
        "selectedMetricKeys": [metric],
        "xAxisKey": "metric" if by else "step",
        "selectedXAxisMetricKey": by,
        "useGlobalXaxisKey": False,
        "yAxisKey": "metric",
        "scaleType": "linear",
        "xAxisScaleType": "log" if by else "linear",
        "lineSmoothness": 0,
        "useGlobalLineSmoothing": False,
        "range": {},
        "yAxisExpressions": [],
        "ignoreOutliers": False,
        "runsCountToCompare": 20,
    }


Section = tuple[str, int, int, Sequence[Mapping[str, Any]]]


def _sections(by: str) -> Sequence[Section]:
    """The charts by section, with the number of columns and the height of a card in pixels.

    MLflow names charts by metrics: a third of a window of 1280 pixels has room for 11 characters, a quarter for 4.
    """
    return (
        ("Fastest, at what accuracy", 3, 340, (_bars("main/epoch_s"), _bars("main/test"), _lines(VALIDATION, by))),
        ("Why: phases of an epoch", 3, 300, tuple(map(_bars, _SHOWN))),
        ("What differs between the runs", 1, 480, (_DIFFERENCES,)),
    )


_DIFFERENCES = {
    "type": "DIFFERENCE",
    "compareGroups": ["Parameters", "Tags"],
    "chartName": "what differs",
    "showChangeFromBaseline": False,
    "showDifferencesOnly": True,
    "baselineColumnUuid": "",
    "runsCountToCompare": 10,
}


def _state(by: str = CUMULATIVE, **more: object) -> dict[str, Any]:
    sections, charts = [], []
    for number, (name, columns, height, cards) in enumerate(_sections(by)):
        uuid = f"gnnexp-{number}"
        sections.append(
            {
                "uuid": uuid,
                "name": name,
                "display": True,
                "isReordered": True,
                "deleted": False,
                "isGenerated": False,
                "columns": columns,
                "cardHeight": height,
            }
        )
        charts += [
            {"uuid": f"{uuid}-{place}", "metricSectionId": uuid, "deleted": False, "isGenerated": False, **card}
            for place, card in enumerate(cards)
        ]
    return {
        "selectedColumns": _COLUMNS,
        "columnOrder": [_NAME, _CREATED, *_COLUMNS],
        "columnWidths": _WIDTHS,
        "runsHiddenMode": "FIRST_20_RUNS",
        "isAccordionReordered": True,
        "compareRunCharts": charts,
        "compareRunSections": sections,
        **more,
    }


def _named(name: str, state: Mapping[str, Any]) -> str:
    """A view with a name, for MLflow's list of views (from 3.15 on). Compressed, since a tag has at most 5000 letters.

    The dates are fixed, so that the tag changes only if the view does.
    """
    packed = base64.b64encode(zlib.compress(_text(state).encode(), 9)).decode()
    return _text(
        {"name": name, "createdAt": 1_795_000_000_000, "updatedAt": 1_795_000_000_000, "state": f"deflate;{packed}"}
    )


def _text(value: Mapping[str, Any] | Sequence[Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


# MLflow shows runs below their sweeps only in a list by date without a filter, and the sweeps are closed at first.
_ORDERED: Mapping[str, Any] = {
    "searchFilter": "tags.kind = 'run'",
    "orderByKey": "metrics.`main/epoch_s`",
    "orderByAsc": True,
}
_FASTEST = _state(**_ORDERED)
# Runs of a sweep that differ in their seeds only are one row, and one bar of a chart, named by their case. Older runs
# lack the tag: the parameter tells their cases apart.
_FIRST = tuple(name for name in _COLUMNS if name.startswith("metrics."))
_SEEDS_COLUMNS = (*_FIRST, *(name for name in _COLUMNS if name not in _FIRST))
_SEEDS = _state(
    by="",
    runListHidden=True,
    **{**_ORDERED, "searchFilter": "tags.kind = 'run' and tags.sweep LIKE '%'"},
    selectedColumns=_SEEDS_COLUMNS,
    columnOrder=(_NAME, _CREATED, *_SEEDS_COLUMNS),
    columnWidths=_WIDTHS | {_NAME: 420},
    groupBy={
        "aggregateFunction": "average",
        "groupByKeys": [
            {"mode": mode, "groupByData": name} for mode, name in (("tag", "case"), ("param", "case"), ("tag", "sweep"))
        ],
    },
)
_SWEEPS = _state(selectedColumns=(_ANSWER, *_COLUMNS), columnOrder=(_NAME, _CREATED, _ANSWER, *_COLUMNS))
EXPERIMENT_TAGS = {
    NOTE_TAG: EXPERIMENT_NOTE,
    f"mlflow.sharedViewState.{VIEW_KEY}": _text(_FASTEST),
    f"mlflow.sharedViewState.{FASTEST_KEY}": _named("fastest first", _FASTEST),
    f"mlflow.sharedViewState.{SEEDS_KEY}": _named("mean over seeds", _SEEDS),
    f"mlflow.sharedViewState.{SWEEPS_KEY}": _named("sweeps", _SWEEPS),
}
