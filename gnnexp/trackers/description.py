"""Descriptions of runs and reports for a store: the tags, parameters, figures and texts that a dashboard shows."""

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
from gnnexp.trackers.delivery import ReportRecord, RunRecord, flatten

# Tag names that MLflow defines.
NOTE_TAG, _USER_TAG, _SOURCE_TAG, _COMMIT_TAG = (
    "mlflow.note.content", "mlflow.user", "mlflow.source.name", "mlflow.source.git.commit")
_GROUPS = ("model", "paradigm", "partitioner", "sampler", "feature_store", "hardware", "task")
_MOST_CHARACTERS = 5000  # most characters of a reason in a tag: MLflow accepts 8000
EXPERIMENT_NOTE = """Runs of gnnexp. There is a run here for each run directory (`tags.kind = 'run'`), and for each
sweep, with its report (`tags.kind = 'sweep'`).

Filter: `tags.system = 'gsplit'`, `tags.dataset = 'cora'`, `tags.model`,
`tags.paradigm`, `tags.sweep`, `tags.exact = 'true'`, `tags.status = 'failed'`, `params.ranks = '4'`,
`metrics.`main/epoch_s` < 0.1`.

- `main/*`: test metric at the best validation epoch, median epoch seconds after the first, peak memory, MB sent per
  epoch.
- `summary/*`: every metric at the best validation epoch.
- `time/*`, `comm/*`, `work/*`, `memory/*`, `loss/*`: by epoch.
"""

# The columns of the experiment when `gnnexp ui` opens it. MLflow shares views in this way, as a tag of the experiment.
VIEW_KEY = "gnnexp"
_VIEW = {"selectedColumns": [
    *(f"metrics.`main/{name}`" for name in ("test", "epoch_s", "sent_MB", "host_MB", "device_MB")),
    *(f"params.`{name}`" for name in ("system", "dataset", "model", "paradigm", "partitioner", "ranks", "seed")),
    *(f"tags.`{name}`" for name in ("status", "exact", "sweep")),
]}
EXPERIMENT_TAGS = {NOTE_TAG: EXPERIMENT_NOTE, f"mlflow.sharedViewState.{VIEW_KEY}": json.dumps(_VIEW)}


def dataset_name(record: RunRecord) -> str:
    """The dataset's own name, such as `cora`, or the name of the choice."""
    named = record.job["config"]["dataset"].get("name")
    return str(named or _choices(record).get("dataset"))


def num_ranks(record: RunRecord) -> int:
    """The number of processes that train."""
    hardware = record.job["config"]["hardware"]
    return int(hardware.get("nodes", 1)) * int(hardware.get("workers", 1))


def system_name(record: RunRecord) -> str:
    """The name of the preset, or of the paradigm for a run without a preset."""
    return str(record.job["config"].get("system") or _choices(record).get("paradigm"))


def _choices(record: RunRecord) -> Mapping[str, Any]:
    found: Mapping[str, Any] = record.job["provenance"].get("choices", {})
    return found


def run_name(record: RunRecord) -> str:
    """`gsplit digits sage, 4 ranks, seed 0`, after the user's own name for the run, if there is one."""
    config = record.job["config"]
    words = (config.get("name"), system_name(record), dataset_name(record), _choices(record).get("model"))
    ranks = num_ranks(record)
    return (" ".join(str(word) for word in words if word)
            + f", {ranks} rank{'s' if ranks > 1 else ''}, seed {config.get('seed', 0)}")


def make_params(record: RunRecord) -> dict[str, str]:
    """The whole configuration by dotted keys, and the main choices that distinguish runs, without a prefix."""
    choices = _choices(record)
    top = {group: str(choices[group]) for group in _GROUPS if group in choices}
    return {**flatten(record.job["config"]), **top, "dataset": dataset_name(record), "system": system_name(record),
            "ranks": str(num_ranks(record))}


def make_tags(run_dir: Path, record: RunRecord) -> dict[str, str]:
    """The tags by which the dashboard finds and groups runs, known from the start."""
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
    """The tags known at the end: how the run ended, and whether it trained exactly."""
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
    """The figures by which runs are compared, with the same names for every task; only those that were recorded.

    `main/test` is the test metric at the best validation epoch (0 to 1). The others are medians over the epochs after
    the first, which warms up. They are `epoch_s`, `sent_MB` per epoch by all ranks, and the memory peaks `host_MB` and
    `device_MB` (10^6 bytes). Names are short because a column of the dashboard shows some 14 characters.
    """
    assert record.result is not None
    epochs = [line["metrics"] for line in record.epochs]
    found = {
        "test": _test_figure(record)[1],
        "epoch_s": warm_median(epochs, "time/epoch_s"),
        "sent_MB": _sent_bytes(record, epochs) / 1e6,
        "host_MB": warm_median(epochs, "memory/host_peak_bytes") / 1e6,
        "device_MB": warm_median(epochs, "memory/device_peak_bytes") / 1e6,
    }
    return {f"main/{name}": value for name, value in found.items() if not math.isnan(value)}


def _sent_bytes(record: RunRecord, epochs: Sequence[Mapping[str, float]]) -> float:
    """Bytes that all ranks sent in an epoch: 0 if none is recorded, as a tag without traffic is not.

    NaN without an epoch, and for an external system that reported none.
    """
    medians = [warm_median(epochs, name) for name in sorted({name for epoch in epochs for name in epoch})
               if name.startswith("comm/bytes_")]
    facts = (record.result or {}).get("paradigm") or {}
    if not epochs or ("external" in facts and not medians):
        return math.nan
    return math.fsum(value for value in medians if not math.isnan(value))


def _test_figure(record: RunRecord) -> tuple[str, float]:
    assert record.result is not None
    chosen = str(record.job["config"].get("task", {}).get("metric"))
    return figure_of_merit(record.result["summary"], "test", chosen)


def make_note(run_dir: Path, record: RunRecord) -> str:
    """The run in Markdown: how it ended, its main figures, and the command that reproduces it."""
    provenance = record.job["provenance"]
    parts = [] if record.result is None else [_ending(record), _figures_table(record)]
    return "\n\n".join(filter(None, [
        *parts, f"Reproduce it with\n\n```\n{provenance.get('reproduce', '')}\n```",
        f"gnnexp {provenance.get('code_version')}, run directory `{run_dir}`."]))


def _ending(record: RunRecord) -> str:
    assert record.result is not None
    if record.result["status"] != "finished":
        return f"**{record.result['status']}**: {record.result.get('reason') or 'unknown reason'}"
    facts = record.result.get("paradigm") or {}
    if facts.get("exact", True):
        return "Exact: the gradients of serial training on the same batches." if facts else ""
    return f"Not exact: {facts.get('approximates')}."


def _figures_table(record: RunRecord) -> str:
    """The main figures in readable units."""
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
    """The tags of a sweep's report, which is a run of its own in the store."""
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
