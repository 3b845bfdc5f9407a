"""The setting of a run, and the labels that distinguish the runs of a table or a figure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnexp.experiment.build import global_batch_size
from gnnexp.record.runs import MACHINE, RecordedRun


@dataclass(frozen=True, order=True)
class SharedSetting:
    """The setting that runs must share for their counters to be compared.

    Attributes:
        dataset: name, shape and scale, as readable text.
        ranks: number of ranks that train.
        fanouts: fanouts of the sampler.
        batch: number of targets of a global batch, for any `train.batch_of`.
        layers: number of layers of the model.
        shape: shape of the dataset, `null` if it has none.
        data: all options of the dataset except for its location.
        model: name of the model; some models add self loops.
        sampler: name of the sampler.
    """

    dataset: str
    ranks: int
    fanouts: str
    batch: str
    layers: str
    shape: str
    data: str
    model: str = "None"
    sampler: str = "None"

    def __str__(self) -> str:
        """The setting as text for a caption."""
        ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        return f"{self.dataset} on {ranks} (fanouts {self.fanouts}, batch {self.batch}, {self.layers} layers)"


def setting_of(run: RecordedRun) -> SharedSetting:
    """The setting of `run`, from its configuration."""
    dataset, hardware = run.config["dataset"], run.config["hardware"]
    data = {key: value for key, value in dataset.items() if key not in ("path", "buffer_bytes")}
    words = (
        run.value("dataset"),
        dataset.get("shape"),
        f"x{dataset['scale']}" if "scale" in dataset else "",
        f"{dataset['num_nodes']} nodes" if dataset.get("num_nodes") else "",
    )
    return SharedSetting(
        " ".join(filter(None, words)),
        int(hardware.get("nodes", 1) * hardware["workers"]),
        run.value("sampler.fanouts"),
        _global_batch(run),
        run.value("model.layers"),
        run.value("dataset.shape"),
        json.dumps(data, sort_keys=True),
        run.value("model"),
        run.value("sampler"),
    )


def _global_batch(run: RecordedRun) -> str:
    if run.value("train.batch_of") in ("null", "run"):
        return run.value("train.batch_size")
    return str(global_batch_size(run.config))


# Columns of every table; other labels have a column only if their values differ.
ALWAYS = ("system", "dataset", "ranks")
# Keys that do not change the setting: names, where records go, what preflight refuses. The system is a label already.
_UNIMPORTANT = ("name", "tracker", "preflight", "system")


def label_runs(runs: Sequence[RecordedRun]) -> list[dict[str, str]]:
    """The labels of every run: the columns of every table, and the settings in which runs differ."""
    named = [_names(run) for run in runs]
    configs = [flat_values(run.config) for run in runs]
    alike: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for names, config in zip(named, configs, strict=True):
        alike.setdefault(tuple(names.values()), []).append(config)
    telling = sorted({key for of_names in alike.values() for key in differing_keys(of_names)})
    wide = [
        {**names, **{key: run.value(key) for key in telling}, MACHINE: run.machine}
        for names, run in zip(named, runs, strict=True)
    ]
    shown = [
        column
        for column in (wide[0] if wide else ())
        if column in ALWAYS or len({labels[column] for labels in wide}) > 1
    ]
    return [{column: labels[column] for column in shown} for labels in wide]


def _names(run: RecordedRun) -> dict[str, str]:
    setting = setting_of(run)
    # The configuration always names a partitioner, but only a run with a partition used it.
    partitioner = run.value("partitioner") if run.provenance.get("partition") else "–"
    return {
        "system": run.value("system"),
        "dataset": setting.dataset,
        "ranks": str(setting.ranks),
        "task": run.value("task"),
        "model": run.value("model"),
        "layers": setting.layers,
        "partitioner": partitioner,
    }


def flat_values(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The values of a configuration by dotted key, without the unimportant keys."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if prefix or key not in _UNIMPORTANT:
            below = isinstance(value, Mapping)
            found |= flat_values(value, f"{prefix}{key}.") if below else {f"{prefix}{key}": str(value)}
    return found


def said(column: str, value: str) -> str:
    """The value, with its key if it is a bare number, yes or no."""
    return f"{column.rpartition('.')[2]}={value}" if value[:1].isdigit() or value in ("True", "False") else value


def differing_keys(configs: Sequence[Mapping[str, str]]) -> set[str]:
    """Keys that not all of these have with one value. One pass: there may be thousands of runs."""
    counts = Counter(key for config in configs for key in config)
    values: dict[str, set[str]] = {}
    for config in configs:
        for key, value in config.items():
            values.setdefault(key, set()).add(value)
    return {key for key in values if len(values[key]) > 1 or counts[key] < len(configs)}
