"""How runs and reports are described to a store: the tags, parameters, figures and words that a dashboard shows."""

from __future__ import annotations

import getpass
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gnnexp.record.records import figure_of_merit, warm_median
from gnnexp.trackers.delivery import RunRecord, flatten
from gnnexp.trackers.report_record import ReportRecord

# MLflow's own names.
NOTE_TAG, _USER_TAG, _SOURCE_TAG, _COMMIT_TAG = (
    "mlflow.note.content", "mlflow.user", "mlflow.source.name", "mlflow.source.git.commit")
_GROUPS = ("model", "paradigm", "partitioner", "sampler", "feature_store", "hardware", "task")
_MOST_CHARACTERS = 5000  # of a reason in a tag: MLflow takes 8000
EXPERIMENT_NOTE = """Runs of gnnexp: one here per run directory (`tags.kind = 'run'`), and one per sweep, with its
report (`tags.kind = 'sweep'`).

Filter: `tags.system = 'gsplit'`, `tags.dataset = 'cora'`, `tags.model`,
`tags.paradigm`, `tags.sweep`, `tags.exact = 'true'`, `tags.status = 'failed'`, `params.ranks = '4'`,
`metrics.`main/epoch_s` < 0.1`.

`main/*`: test metric at the best validation epoch, median epoch seconds after the first, peak memory, MB sent per
epoch. `summary/*`: every metric, so. `time/*`, `comm/*`, `work/*`, `memory/*`, `loss/*`: by epoch.
"""

# The columns that `gnnexp ui` opens the experiment with: MLflow's own way to share a view, a tag of the experiment.
VIEW_KEY = "gnnexp"
_VIEW = {"selectedColumns": [
    *(f"metrics.`main/{name}`" for name in ("test", "epoch_s", "sent_MB", "host_MB", "device_MB")),
    *(f"params.`{name}`" for name in ("system", "dataset", "model", "paradigm", "partitioner", "ranks", "seed")),
    *(f"tags.`{name}`" for name in ("status", "exact", "sweep")),
]}
EXPERIMENT_TAGS = {NOTE_TAG: EXPERIMENT_NOTE, f"mlflow.sharedViewState.{VIEW_KEY}": json.dumps(_VIEW)}


def dataset_name(record: RunRecord) -> str:
    """`cora`, or the choice where the dataset has no name of its own."""
    named = record.job["config"]["dataset"].get("name")
    return str(named or _choices(record).get("dataset"))


def num_ranks(record: RunRecord) -> int:
    """Processes that train."""
    hardware = record.job["config"]["hardware"]
    return int(hardware.get("nodes", 1)) * int(hardware.get("workers", 1))


def system_name(record: RunRecord) -> str:
    """The preset, or the paradigm of a run without one."""
    return str(record.job["config"].get("system") or _choices(record).get("paradigm"))


def _choices(record: RunRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] = record.job["provenance"].get("choices", {})
    return found


def run_name(record: RunRecord) -> str:
    """`gsplit digits sage, 4 ranks, seed 0`, after the name that the user gave, if any."""
    config = record.job["config"]
    words = (config.get("name"), system_name(record), dataset_name(record), _choices(record).get("model"))
    ranks = num_ranks(record)
    return (" ".join(str(word) for word in words if word)
            + f", {ranks} rank{'s' if ranks > 1 else ''}, seed {config.get('seed', 0)}")


def make_params(record: RunRecord) -> dict[str, str]:
    """The whole configuration by dotted keys, and what runs are told apart by at its top."""
    choices = _choices(record)
    top = {group: str(choices[group]) for group in _GROUPS if group in choices}
    return {**flatten(record.job["config"]), **top, "dataset": dataset_name(record), "system": system_name(record),
            "ranks": str(num_ranks(record))}


def make_tags(run_dir: Path, record: RunRecord) -> dict[str, str]:
    """What runs are found and grouped by in the dashboard, from the start."""
    provenance, config = record.job["provenance"], record.job["config"]
    choices = _choices(record)
    version = str(provenance.get("code_version"))
    tags = {
        **{group: str(choices[group]) for group in _GROUPS if group in choices},
        "kind": "run",
        "dataset": dataset_name(record),
        "system": system_name(record),
        "ranks": str(num_ranks(record)),
        "workers": str(config["hardware"].get("workers", 1)),
        "seed": str(config.get("seed")),
        "code_version": version,
        "run_dir": str(run_dir),
        "status": "running",
        NOTE_TAG: make_note(run_dir, record),
        _USER_TAG: _user(),
        _SOURCE_TAG: "gnnexp",
    }
    if provenance.get("sweep"):
        tags["sweep"] = str(provenance["sweep"])
    if commit := version.partition("+")[2].removesuffix("-dirty"):
        tags[_COMMIT_TAG] = commit
    return tags


def _user() -> str:
    with suppress(KeyError, OSError):  # a container's user may have no name
        return getpass.getuser()
    return str(os.getuid())


def end_tags(run_dir: Path, record: RunRecord) -> dict[str, str]:
    """What is known at the end: how it ended, and whether it trained exactly."""
    assert record.result is not None
    tags = {"status": str(record.result["status"]), NOTE_TAG: make_note(run_dir, record)}
    facts = record.result.get("paradigm") or {}
    if "exact" in facts:
        tags["exact"] = str(bool(facts["exact"])).lower()
    if facts.get("approximates"):
        tags["approximates"] = str(facts["approximates"])
    if record.result.get("reason"):
        tags["reason"] = str(record.result["reason"])[:_MOST_CHARACTERS]
    return tags


def main_figures(record: RunRecord) -> dict[str, float]:
    """The figures to compare runs by, under the same names for every task; those that were recorded.

    `main/test` at the best validation epoch (0 to 1), the others medians over the epochs after the first, which
    warms up: `epoch_s`, `sent_MB` per epoch by all ranks, peaks of memory `host_MB` and `device_MB` (10^6 bytes).
    Short names: a column of the dashboard shows some 14 characters.
    """
    assert record.result is not None
    epochs = [line["metrics"] for line in record.epochs]
    found = {
        "test": _test_figure(record)[1],
        "epoch_s": warm_median(epochs, "time/epoch_s"),
        "sent_MB": _sum_of_medians(epochs, "comm/bytes_") / 1e6 if epochs else math.nan,
        "host_MB": warm_median(epochs, "memory/host_peak_bytes") / 1e6,
        "device_MB": warm_median(epochs, "memory/device_peak_bytes") / 1e6,
    }
    return {f"main/{name}": value for name, value in found.items() if not math.isnan(value)}


def _sum_of_medians(epochs: Sequence[Mapping[str, float]], prefix: str) -> float:
    """Over the metrics that begin so; none is 0, as a purpose without traffic is not recorded."""
    medians = [warm_median(epochs, name) for name in sorted({name for epoch in epochs for name in epoch})
               if name.startswith(prefix)]
    return math.fsum(value for value in medians if not math.isnan(value))


def _test_figure(record: RunRecord) -> tuple[str, float]:
    assert record.result is not None
    chosen = str(record.job["config"].get("task", {}).get("metric"))
    return figure_of_merit(record.result["summary"], "test", chosen)


def make_note(run_dir: Path, record: RunRecord) -> str:
    """Markdown: how it ended, its main figures, and the command that makes it again."""
    provenance = record.job["provenance"]
    parts = [] if record.result is None else [_ending(record), _figures_table(record)]
    return "\n\n".join(filter(None, [
        *parts, f"Made again by\n\n```\n{provenance.get('reproduce', '')}\n```",
        f"gnnexp {provenance.get('code_version')}, run directory `{run_dir}`."]))


def _ending(record: RunRecord) -> str:
    assert record.result is not None
    if record.result["status"] != "finished":
        return f"**{record.result['status']}**: {record.result.get('reason') or 'nobody knows why'}"
    facts = record.result.get("paradigm") or {}
    if facts.get("exact", True):
        return "Exact: the gradients of serial training on the same batches." if facts else ""
    return f"Not exact: {facts.get('approximates')}."


def _figures_table(record: RunRecord) -> str:
    """The main figures in units to be read."""
    figures = main_figures(record)
    units = {"test": (100, f"{_test_figure(record)[0]} %", ".2f"), "epoch_s": (1, "epoch s (median)", ".4f"),
             "sent_MB": (1, "sent MB per epoch", ".3f"), "host_MB": (1, "host peak MB", ".1f"),
             "device_MB": (1, "device peak MB", ".1f")}
    shown = [(label, f"{factor * figures[f'main/{name}']:{form}}") for name, (factor, label, form) in units.items()
             if f"main/{name}" in figures]
    if not shown:
        return ""
    head, row = zip(*shown, strict=True)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ("---:",) * len(head), row))


def report_tags(record: ReportRecord) -> dict[str, str]:
    """Of a sweep's report, a run of its own in the store."""
    return {
        "kind": "sweep",
        "sweep": record.sweep,
        "gnnexp.sweep": record.sweep,
        "status": record.status,
        "code_version": record.code_version,
        NOTE_TAG: record.note,
        _USER_TAG: _user(),
        _SOURCE_TAG: "gnnexp",
    }
