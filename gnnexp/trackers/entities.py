"""Values of MLflow that are made of a run's record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gnnexp.trackers.delivery import RunRecord
from gnnexp.trackers.description import dataset_name

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, Metric, Param

# Limits of MLflow on the contents of one request.
MAX_METRICS, MAX_PARAMS, MAX_VALUE = 1000, 100, 6000
# MLflow keeps one dataset for each name and digest. Those of earlier versions, with 36 characters, have a source that
# `mlflow.data` does not know.
_DIGEST = 32


def metric_entities(figures: Mapping[str, float], line: Mapping[str, Any]) -> list[Metric]:
    """Figures as metrics, with epoch and time of a line of the record."""
    from mlflow.entities import Metric

    return [
        Metric(stored(name), float(value), int(line["time"] * 1000), int(line["epoch"]))
        for name, value in figures.items()
    ]


def stored(name: str) -> str:
    """`hits_at_20/val` for `hits@20/val`: MLflow allows no `@` in names."""
    return name.replace("@", "_at_")


def params_of(params: Mapping[str, str]) -> list[Param]:
    """Parameters, whose values are cut to the length that MLflow allows."""
    from mlflow.entities import Param

    return [Param(key, value[:MAX_VALUE]) for key, value in params.items()]


def dataset_of(record: RunRecord) -> DatasetInput:
    """The data for the dashboard's own column: name, content key and sizes.

    Its source is the prepared graph on disk (`mlflow.data.get_source(…).load()` gives the folder). If nothing was
    prepared, it is the class of the dataset.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    provenance, folder = record.job["provenance"], record.job.get("graph")
    kind = str(record.job["config"]["dataset"].get("_target_", "gnnexp"))
    source = {"uri": str(folder)} if folder else {"tags": {"mlflow.source.name": kind}}
    return DatasetInput(
        Dataset(
            name=dataset_name(record),
            digest=str(provenance.get("dataset_key", ""))[:_DIGEST] or "unknown",
            source_type="local" if folder else "code",
            source=json.dumps(source),
            profile=json.dumps(provenance.get("graph", {})),
        ),
        tags=[InputTag("mlflow.data.context", "training")],
    )


def pieces_of(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """`items` in pieces of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


def started(record: RunRecord) -> int | None:
    """When the run began (not when it was delivered), in ms since 1970; None for now."""
    date = record.job["provenance"].get("date")
    return None if date is None else int(1000 * datetime.fromisoformat(date).timestamp())


def ended_ms(record: RunRecord) -> int | None:
    """When the run's last epoch was written, in ms since 1970; None for now.

    A clock that was set back meanwhile may say that this was before the run began: then the run has no duration.
    """
    return max(int(1000 * record.epochs[-1]["time"]), started(record) or 0) if record.epochs else None
