"""What tells runs of a table or a figure apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gnnexp.record.runs import MACHINE, Run
from gnnexp.reports.values.setting import setting_of

# Columns of every table; other labels head a column where they differ.
ALWAYS = ("system", "dataset", "ranks")
# What makes no other setting: names, where records go, what is refused beforehand; the system is a label.
_UNIMPORTANT = ("name", "tracker", "preflight", "system")


def label_runs(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Of every run: those of all tables, and what differs between the runs."""
    named = [_names(run) for run in runs]
    configs = [flat(run.config) for run in runs]
    telling = sorted({key for names, config in zip(named, configs, strict=True)
                      for other_names, other in zip(named, configs, strict=True) if names == other_names
                      for key in config if other.get(key) != config[key]})
    wide = [{**names, **{key: run.value(key) for key in telling}, MACHINE: run.machine}
            for names, run in zip(named, runs, strict=True)]
    shown = [column for column in (wide[0] if wide else ())
             if column in ALWAYS or len({labels[column] for labels in wide}) > 1]
    return [{column: labels[column] for column in shown} for labels in wide]


def _names(run: Run) -> dict[str, str]:
    setting = setting_of(run)
    # Only what was partitioned has a partitioner, whatever the configuration says.
    partitioner = run.value("partitioner") if run.provenance.get("partition") else "–"
    return {"system": run.value("system"), "dataset": setting.dataset, "ranks": str(setting.ranks),
            "task": run.value("task"), "model": run.value("model"), "layers": setting.layers,
            "partitioner": partitioner}


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """By dotted keys, without what is unimportant."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if prefix or key not in _UNIMPORTANT:
            below = isinstance(value, Mapping)
            found |= flat(value, f"{prefix}{key}.") if below else {f"{prefix}{key}": str(value)}
    return found


def said(column: str, value: str) -> str:
    """With its key where it is a bare number, yes or no."""
    return f"{column.rpartition('.')[2]}={value}" if value[:1].isdigit() or value in ("True", "False") else value
