"""Delivery to MLflow: by default a SQLite file in the current folder, or whatever `MLFLOW_TRACKING_URI` names."""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gnnexp.errors import ConfigError, Problem
from gnnexp.trackers.base import Tracker, TrackingError
from gnnexp.trackers.delivery import Delivery, RunRecord, flatten, read_delivery, read_run

if TYPE_CHECKING:
    from mlflow import MlflowClient

URI_VARIABLE = "MLFLOW_TRACKING_URI"
# What MLflow can store in (its documentation's list of backend stores).
_STORES = {"", "file", "sqlite", "postgresql", "mysql", "mssql", "http", "https", "databricks"}
_UID_TAG = "gnnexp.uid"
# What one request may carry (MLflow's own limits).
_MAX_METRICS, _MAX_PARAMS, _MAX_VALUE = 1000, 100, 6000


class MlflowTracker(Tracker):
    """One MLflow run per run directory.

    Args:
        uri: of the store; None takes `MLFLOW_TRACKING_URI`, else `sqlite:///<cwd>/mlflow.db`.
        experiment: name that the runs are gathered under.
        timeout_s: how long one request may take, and how long the end of a run waits.
    """

    def __init__(self, uri: str | None = None, experiment: str = "gnnexp", timeout_s: float = 30.0) -> None:
        if uri is not None and urlsplit(uri).password:
            raise ConfigError(Problem("tracker.uri", "(hidden)", "must not carry a password: configs are recorded",
                                      f"set {URI_VARIABLE} and MLFLOW_TRACKING_PASSWORD in the environment"))
        kind = urlsplit(uri or "").scheme.partition("+")[0]
        if kind not in _STORES:
            allowed = f"must start with one of {', '.join(sorted(_STORES - {''}))}, or be a folder"
            raise ConfigError(Problem("tracker.uri", uri, allowed, "tracker.uri=sqlite:///mlflow.db, or null"))
        self.uri = uri or os.environ.get(URI_VARIABLE) or f"sqlite:///{Path.cwd() / 'mlflow.db'}"
        self.experiment = experiment
        self.timeout_s = timeout_s
        self._client: MlflowClient | None = None
        self._experiment_id = ""
        self._compared: set[Path] = set()  # runs whose bookkeeping has been compared with the store

    def where(self) -> str:
        """The store's address without credentials."""
        return _public(self.uri)

    def deliver(self, run_dir: Path, *, end: bool = True) -> bool:
        """See `Tracker.deliver`."""
        run_dir = run_dir.resolve()
        delivery = read_delivery(run_dir, self.where())
        if delivery.done:
            return True
        record = read_run(run_dir)
        try:
            client = self._connect()
            delivery = self._find_or_create(client, run_dir, record, delivery)
            if record.epochs and run_dir not in self._compared:
                there = _epochs_in_store(client, delivery.run_id, record)
                delivery = replace(delivery, epochs=max(delivery.epochs, there))
                self._compared.add(run_dir)
            delivery = _deliver_epochs(client, run_dir, record, delivery)
            if end and record.result is not None:
                _deliver_end(client, run_dir, record, delivery)
                delivery = replace(delivery, done=True)
                delivery.save(run_dir)
        except Exception as error:  # requests', SQLAlchemy's, alembic's and MLflow's own trees have no common base
            raise TrackingError(f"{self.where()}: {_first_line(error)}") from error
        return delivery.done

    def _connect(self) -> MlflowClient:
        """The client; the store and the experiment exist afterwards, however many launchers start at once."""
        if self._client is not None:
            return self._client
        self._check_file()
        _quiet_environment(self.timeout_s)
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        with _alone(_sqlite_file(self.uri)):
            client = MlflowClient(tracking_uri=self.uri)
            found = client.get_experiment_by_name(self.experiment)
            if found is None:
                try:
                    self._experiment_id = client.create_experiment(self.experiment, self._artifacts())
                except MlflowException:  # another launcher was faster, on a server that we cannot lock
                    found = client.get_experiment_by_name(self.experiment)
                    if found is None:
                        raise
            if found is not None:
                self._experiment_id = found.experiment_id
        self._client = client
        return client

    def _check_file(self) -> None:
        file = _sqlite_file(self.uri)
        if file is not None and not file.parent.is_dir():
            raise FileNotFoundError(f"no folder {file.parent}")

    def _artifacts(self) -> str | None:
        """Where artifacts of a local store go: beside it. A server decides for itself."""
        file = _sqlite_file(self.uri)
        return None if file is None else (file.parent / "mlartifacts" / self.experiment).as_uri()

    def _find_or_create(
        self, client: MlflowClient, run_dir: Path, record: RunRecord, delivery: Delivery
    ) -> Delivery:
        """The run in the store: made here before, by a process that died before it could note that, or now."""
        if delivery.run_id:
            return _go_on(client, run_dir, delivery) if delivery.reopened else delivery
        uid = str(record.job["provenance"]["uid"])
        found = client.search_runs([self._experiment_id], f"tags.`{_UID_TAG}` = '{uid}'", max_results=1)
        if found:
            delivery = replace(delivery, run_id=found[0].info.run_id, epochs=0)
        else:
            tags = {**make_tags(run_dir, record), _UID_TAG: uid}
            created = client.create_run(
                self._experiment_id, start_time=_started(record), tags=tags, run_name=_run_name(record)
            )
            delivery = replace(delivery, run_id=created.info.run_id)
        params = [_param(key, value) for key, value in flatten(record.job["config"]).items()]
        for part in _parts(params, _MAX_PARAMS):
            client.log_batch(delivery.run_id, params=part)
        delivery.save(run_dir)
        return delivery


def _go_on(client: MlflowClient, run_dir: Path, delivery: Delivery) -> Delivery:
    """The same run in the store, running again."""
    client.update_run(delivery.run_id, status="RUNNING")
    client.set_tag(delivery.run_id, "status", "running")
    client.set_tag(delivery.run_id, "reason", "")  # deleting a tag that is not there is an error to MLflow
    delivery = replace(delivery, reopened=False)
    delivery.save(run_dir)
    return delivery


def _deliver_epochs(client: MlflowClient, run_dir: Path, record: RunRecord, delivery: Delivery) -> Delivery:
    """One request per epoch. Times are the record's, so an epoch sent twice is the same rows, which MLflow merges."""
    for line in record.epochs[delivery.epochs:]:
        metrics = [_metric(name, value, line) for name, value in line["metrics"].items() if _is_number(value)]
        for part in _parts(metrics, _MAX_METRICS):
            client.log_batch(delivery.run_id, metrics=part)
        delivery = replace(delivery, epochs=delivery.epochs + 1)
        delivery.save(run_dir)
    return delivery


def _epochs_in_store(client: MlflowClient, run_id: str, record: RunRecord) -> int:
    """How many leading epochs the store has whole: asked for the last metric of the record's lines."""
    names = [name for name, value in record.epochs[0]["metrics"].items() if _is_number(value)]
    if not names or len(names) > _MAX_METRICS:
        return 0
    steps = {metric.step for metric in client.get_metric_history(run_id, _stored(names[-1]))}
    return next((i for i, line in enumerate(record.epochs) if int(line["epoch"]) not in steps), len(record.epochs))


def _deliver_end(client: MlflowClient, run_dir: Path, record: RunRecord, delivery: Delivery) -> None:
    """Summary, artifacts and the end itself; all of it may be repeated."""
    assert record.result is not None
    last = record.epochs[-1] if record.epochs else {"epoch": 0, "time": 0.0}
    summary = {f"summary/{name}": value for name, value in record.result["summary"].items() if _is_number(value)}
    for part in _parts([_metric(name, value, last) for name, value in summary.items()], _MAX_METRICS):
        client.log_batch(delivery.run_id, metrics=part)
    for file in (run_dir / "config.yaml", run_dir / "result.json"):
        if file.exists():
            client.log_artifact(delivery.run_id, str(file))
    for folder in ("logs", "figures"):
        if (run_dir / folder).is_dir():
            client.log_artifacts(delivery.run_id, str(run_dir / folder), folder)
    status = str(record.result["status"])
    client.set_tag(delivery.run_id, "status", status)
    if record.result.get("reason"):
        client.set_tag(delivery.run_id, "reason", str(record.result["reason"])[:_MAX_VALUE])
    client.set_terminated(delivery.run_id, "FINISHED" if status == "finished" else "FAILED", end_time=_ended(record))


def _started(record: RunRecord) -> int | None:
    """When the run began, not when it was delivered: ms since 1970, None for now."""
    date = record.job["provenance"].get("date")
    return None if date is None else int(1000 * datetime.fromisoformat(date).timestamp())


def _ended(record: RunRecord) -> int | None:
    """When its last epoch was written, ms since 1970, None for now."""
    return int(1000 * record.epochs[-1]["time"]) if record.epochs else None


def make_tags(run_dir: Path, record: RunRecord) -> dict[str, str]:
    """What runs are found and grouped by in the dashboard."""
    provenance, config = record.job["provenance"], record.job["config"]
    choices: Mapping[str, Any] = provenance.get("choices", {})
    groups = ("dataset", "model", "paradigm", "partitioner", "sampler", "hardware", "task")
    tags = {group: str(choices.get(group)) for group in groups}
    dataset = config["dataset"].get("name")
    return tags | {
        "dataset": str(dataset or tags["dataset"]),
        "system": str(config.get("system")),
        "workers": str(config["hardware"].get("workers", 1)),
        "sweep": str(provenance.get("sweep")),
        "code_version": str(provenance.get("code_version")),
        "run_dir": str(run_dir),
        "status": "running",
        "mlflow.note.content": f"`{provenance.get('reproduce', '')}`",
    }


def _run_name(record: RunRecord) -> str:
    config, choices = record.job["config"], record.job["provenance"].get("choices", {})
    parts = (config.get("name"), config.get("system") or choices.get("paradigm"), choices.get("dataset"),
             choices.get("model"))
    return "-".join(str(part) for part in parts if part)


def _metric(name: str, value: float, line: Mapping[str, Any]) -> Any:  # noqa: ANN401  mlflow is untyped here
    from mlflow.entities import Metric

    return Metric(_stored(name), float(value), int(line["time"] * 1000), int(line["epoch"]))


def _stored(name: str) -> str:
    """`hits_at_20/val` for `hits@20/val`: MLflow allows no `@` in names."""
    return name.replace("@", "_at_")


def _param(key: str, value: str) -> Any:  # noqa: ANN401
    from mlflow.entities import Param

    return Param(key, value[:_MAX_VALUE])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start:start + size] for start in range(0, len(items), size))


def _quiet_environment(timeout_s: float) -> None:
    """MLflow is told by environment variables only: no telemetry, and no retrying for minutes (a user's own stay)."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(max(1, int(timeout_s / 3))))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")


def _sqlite_file(uri: str) -> Path | None:
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


@contextmanager
def _alone(file: Path | None) -> Iterator[None]:
    """One process at a time creates the tables of a SQLite store: 7 of 8 that tried together failed (slurm/README)."""
    if file is None:
        yield
        return
    with file.with_name(f"{file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _public(uri: str) -> str:
    parts = urlsplit(uri)
    return uri.replace(f"{parts.username}:{parts.password}@", "") if parts.password else uri


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[0][:300]
