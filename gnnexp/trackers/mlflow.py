"""Delivery to MLflow: by default to a SQLite file in the current folder, else to `MLFLOW_TRACKING_URI`."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.check import LONGEST_S
from gnnexp.experiment.packages import is_installed, missing_package
from gnnexp.files.disk import locked
from gnnexp.trackers.base import Tracker, TrackingError
from gnnexp.trackers.delivery import Delivery, ReportRecord, RunRecord, delivering, read_delivery, read_report, read_run
from gnnexp.trackers.description import (
    EXPERIMENT_TAGS,
    NOTE_TAG,
    VIEW_KEY,
    dataset_name,
    end_tags,
    main_figures,
    make_params,
    make_tags,
    report_tags,
    run_name,
)
from gnnexp.trackers.limited import Limited
from gnnexp.trackers.model import log_model

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

URI_VARIABLE = "MLFLOW_TRACKING_URI"
# Kinds of stores that MLflow supports (its documentation's list of backend stores).
_STORES = {"", "file", "sqlite", "postgresql", "mysql", "mssql", "http", "https", "databricks"}
_SERVERS = {"http", "https", "databricks"}
_UID_TAG = "gnnexp.uid"
# Making the tables takes 5 s. On a busy machine, several processes that start together wait for each other.
_TABLES_S = 120.0
# Limits of MLflow on the contents of one request.
_MAX_METRICS, _MAX_PARAMS, _MAX_VALUE, _MAX_DIGEST = 1000, 100, 6000, 36
# At most this many runs of one uid are compared: each lost answer makes one more.
_MOST_DOUBLES = 100


class MlflowTracker(Tracker):
    """One MLflow run per run directory.

    Args:
        uri: address of the store; None means `MLFLOW_TRACKING_URI`, else `sqlite:///<cwd>/mlflow.db`.
        experiment: name of the MLflow experiment that contains the runs.
        timeout_s: seconds that one request may take, and that the end of a run waits.
        log_model: whether to store the model of the best validation epoch, which `mlflow.pyfunc.load_model` loads. It
            has the size of a checkpoint.
    """

    def __init__(
        self, uri: str | None = None, experiment: str = "gnnexp", timeout_s: float = 30.0, log_model: bool = False
    ) -> None:
        if uri is not None and urlsplit(uri).password:
            raise ConfigError(Problem("tracker.uri", "(hidden)", "must not carry a password: configs are recorded",
                                      f"set {URI_VARIABLE} and MLFLOW_TRACKING_PASSWORD in the environment"))
        kind = urlsplit(uri or "").scheme.partition("+")[0]
        if kind not in _STORES:
            allowed = f"must start with one of {', '.join(sorted(_STORES - {''}))}, or be a folder"
            raise ConfigError(Problem("tracker.uri", uri, allowed, "tracker.uri=sqlite:///mlflow.db, or null"))
        if not 0 < timeout_s <= LONGEST_S:
            raise ConfigError(Problem("tracker.timeout_s", timeout_s, f"must be positive, and at most {LONGEST_S:,} s",
                                      "tracker.timeout_s=30"))
        self.uri = uri or os.environ.get(URI_VARIABLE) or f"sqlite:///{Path.cwd() / 'mlflow.db'}"
        self.experiment = experiment
        self.timeout_s = timeout_s
        self.log_model = log_model
        self._client: MlflowClient | None = None
        self._experiment_id = ""
        self._compared: set[Path] = set()  # runs whose delivered epochs were compared with the store

    def where(self) -> str:
        """The store's address without credentials."""
        return _public(self.uri)

    def check_here(self) -> list[Problem]:
        """See `Tracker.check_here`."""
        return [] if is_installed("mlflow") else [missing_package("tracker", "mlflow", "mlflow", "tracker=none")]

    def deliver(self, run_dir: Path, *, end: bool = True) -> bool:
        """See `Tracker.deliver`."""
        run_dir = run_dir.resolve()
        if read_delivery(run_dir, self.where()).done:
            return True
        with self._in_words():
            client = self._connect()
            with delivering(run_dir, self.timeout_s):
                return self._deliver(client, run_dir, end=end)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # errors of requests, SQLAlchemy, alembic and MLflow have no common base
            raise TrackingError(f"{self.where()}: {_first_line(error)}") from error

    def _deliver(self, client: MlflowClient, run_dir: Path, *, end: bool) -> bool:
        """Deliver the rest of a run. Only one process does this at a time; an earlier one may have delivered a part."""
        delivery, record = read_delivery(run_dir, self.where()), read_run(run_dir)
        if delivery.done:
            return True
        delivery = self._find_or_create(client, run_dir, record, delivery)
        if record.epochs and run_dir not in self._compared:
            there = _epochs_in_store(client, delivery.run_id, record)
            delivery = replace(delivery, epochs=max(delivery.epochs, there))
            self._compared.add(run_dir)
        delivery = _deliver_epochs(client, run_dir, record, delivery)
        if end and record.result is not None:
            if self.log_model:
                log_model(client, delivery.run_id, run_dir)
            _deliver_end(client, run_dir, record, delivery)
            self._remove_doubles(client, str(record.job["provenance"]["uid"]), delivery.run_id)
            delivery = replace(delivery, done=True)
            delivery.save(run_dir)
        return delivery.done

    def deliver_report(self, folder: Path) -> bool:
        """See `Tracker.deliver_report`. A report is a run of its own, and stays the same run if it is made again."""
        folder = folder.resolve()
        record = read_report(folder)
        if read_delivery(folder, self.where()).digest == record.digest:
            return True
        with self._in_words():
            client = self._connect()
            with delivering(folder, self.timeout_s):
                delivery = read_delivery(folder, self.where())  # another process may have been faster
                if delivery.digest != record.digest:
                    run_id = delivery.run_id or self._report_run(client, record)
                    replace(delivery, run_id=run_id).save(folder)
                    _fill_report_run(client, run_id, folder, record)
                    self._remove_doubles(client, record.uid, run_id)
                    replace(delivery, run_id=run_id, digest=record.digest).save(folder)
        return True

    def view(self, address: str) -> str:
        """The address of the experiment's page on the server at `address`, with the columns that compare runs.

        Raises:
            TrackingError: the store did not answer.
        """
        with self._in_words():
            self._connect()
        return (f"{address.rstrip('/')}/#/experiments/{self._experiment_id}/runs?workflowType=machine_learning"
                f"&viewStateShareKey={VIEW_KEY}")

    def _report_run(self, client: MlflowClient, record: ReportRecord) -> str:
        """The report's run in the store, made here now or earlier."""
        if found := self._runs_of(client, record.uid):
            return str(found[0].info.run_id)
        tags = {**report_tags(record), _UID_TAG: record.uid}
        return str(client.create_run(self._experiment_id, tags=tags, run_name=f"sweep {record.sweep}").info.run_id)

    def _connect(self) -> MlflowClient:
        """The client. Afterwards the store and the experiment exist, also if several launchers start at once."""
        if self._client is not None:
            return self._client
        self._check_file()
        _quiet_environment(self.timeout_s)
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        with self._making_tables():
            client = self._limited(MlflowClient(tracking_uri=self.uri))
            found = client.get_experiment_by_name(self.experiment)
            if found is None:
                try:
                    self._experiment_id = client.create_experiment(
                        self.experiment, self._artifacts(), EXPERIMENT_TAGS)
                except MlflowException:  # another launcher was faster, on a server that we cannot lock
                    found = client.get_experiment_by_name(self.experiment)
                    if found is None:
                        raise
            if found is not None:
                self._experiment_id = found.experiment_id
                _describe_experiment(client, found.experiment_id, found.tags)
        self._client = client
        return client

    def _limited(self, client: MlflowClient) -> MlflowClient:
        """`client` with a limit: for a server, each request ends within `timeout_s`."""
        is_server = self.uri.partition(":")[0] in _SERVERS
        return cast("MlflowClient", Limited(client, self.timeout_s)) if is_server else client

    def _making_tables(self) -> AbstractContextManager[None]:
        """A lock: one process at a time makes the tables of a SQLite store. 7 of 8 together failed (slurm/README)."""
        file = _sqlite_file(self.uri)
        return nullcontext() if file is None else locked(file.with_name(f"{file.name}.lock"), _TABLES_S)

    def _check_file(self) -> None:
        file = _sqlite_file(self.uri)
        if file is not None and not file.parent.is_dir():
            raise FileNotFoundError(f"no folder {file.parent}")

    def _artifacts(self) -> str | None:
        """Where artifacts of a local store go: next to it. A server decides this itself."""
        file = _sqlite_file(self.uri)
        return None if file is None else (file.parent.absolute() / "mlartifacts" / self.experiment).as_uri()

    def _runs_of(self, client: MlflowClient, uid: str) -> list[Run]:
        """The runs in the store that were made for `uid`; those with contents come first."""
        found = client.search_runs([self._experiment_id], f"tags.`{_UID_TAG}` = '{uid}'", max_results=_MOST_DOUBLES)
        return sorted(found, key=_is_empty)

    def _remove_doubles(self, client: MlflowClient, uid: str, run_id: str) -> None:
        """Delete the empty runs that were made for `uid`, except `run_id`.

        MLflow's client repeats a request whose answer was lost, and the server makes a run for each request.
        """
        for run in self._runs_of(client, uid):
            if run.info.run_id != run_id and _is_empty(run):
                client.delete_run(run.info.run_id)

    def _find_or_create(self, client: MlflowClient, run_dir: Path, record: RunRecord, delivery: Delivery) -> Delivery:
        """The run in the store: a new one, or an existing one, also of a process that died before it noted that."""
        if delivery.run_id:
            return _go_on(client, run_dir, delivery) if delivery.reopened else delivery
        uid = str(record.job["provenance"]["uid"])
        if found := self._runs_of(client, uid):
            delivery = replace(delivery, run_id=found[0].info.run_id, epochs=0)
        else:
            tags = {**make_tags(run_dir, record), _UID_TAG: uid}
            created = client.create_run(
                self._experiment_id, start_time=_started(record), tags=tags, run_name=run_name(record)
            )
            delivery = replace(delivery, run_id=created.info.run_id)
        params = [_param(key, value) for key, value in make_params(record).items()]
        for part in _parts(params, _MAX_PARAMS):
            client.log_batch(delivery.run_id, params=part)
        client.log_inputs(delivery.run_id, [_dataset(record)])
        delivery.save(run_dir)
        return delivery


def _is_empty(run: Run) -> bool:
    """Whether a run was only created: it has nothing except its tags."""
    return run.info.status == "RUNNING" and not run.data.params and not run.data.metrics


def _describe_experiment(client: MlflowClient, experiment_id: str, tags: Mapping[str, str]) -> None:
    """Set our tags on an experiment that another version or another program made. A user's description stays."""
    for key, value in EXPERIMENT_TAGS.items():
        if key not in tags or (key != NOTE_TAG and tags[key] != value):
            client.set_experiment_tag(experiment_id, key, value)


def _go_on(client: MlflowClient, run_dir: Path, delivery: Delivery) -> Delivery:
    """Mark the run in the store as running again."""
    client.update_run(delivery.run_id, status="RUNNING")
    client.set_tag(delivery.run_id, "status", "running")
    client.set_tag(delivery.run_id, "reason", "")  # MLflow raises an error if a missing tag is deleted
    delivery = replace(delivery, reopened=False)
    delivery.save(run_dir)
    return delivery


def _deliver_epochs(client: MlflowClient, run_dir: Path, record: RunRecord, delivery: Delivery) -> Delivery:
    """One request per epoch. Times are the record's, so MLflow merges the equal rows of an epoch sent twice."""
    for line in record.epochs[delivery.epochs:]:
        metrics = [_metric(name, value, line) for name, value in line["metrics"].items() if _is_number(value)]
        for part in _parts(metrics, _MAX_METRICS):
            client.log_batch(delivery.run_id, metrics=part)
        delivery = replace(delivery, epochs=delivery.epochs + 1)
        delivery.save(run_dir)
    return delivery


def _epochs_in_store(client: MlflowClient, run_id: str, record: RunRecord) -> int:
    """How many epochs from the first the store has completely. The last metric of each record line shows this."""
    names = [name for name, value in record.epochs[0]["metrics"].items() if _is_number(value)]
    if not names or len(names) > _MAX_METRICS:
        return 0
    steps = {metric.step for metric in client.get_metric_history(run_id, _stored(names[-1]))}
    return next((i for i, line in enumerate(record.epochs) if int(line["epoch"]) not in steps), len(record.epochs))


def _deliver_end(client: MlflowClient, run_dir: Path, record: RunRecord, delivery: Delivery) -> None:
    """Deliver summary, artifacts and the end itself; repeating this does no harm."""
    assert record.result is not None
    last = record.epochs[-1] if record.epochs else {"epoch": 0, "time": 0.0}
    summary = {f"summary/{name}": value for name, value in record.result["summary"].items() if _is_number(value)}
    figures = summary | main_figures(record)
    for part in _parts([_metric(name, value, last) for name, value in figures.items()], _MAX_METRICS):
        client.log_batch(delivery.run_id, metrics=part)
    for file in (run_dir / "config.yaml", run_dir / "result.json"):
        if file.exists():
            client.log_artifact(delivery.run_id, str(file))
    for file in sorted(path for folder in ("logs", "figures") for path in (run_dir / folder).rglob("*")):
        if file.is_file():  # one request for each file, so that each has its own time limit
            client.log_artifact(delivery.run_id, str(file), str(file.parent.relative_to(run_dir)))
    for key, value in end_tags(run_dir, record).items():
        client.set_tag(delivery.run_id, key, value)
    status = "FINISHED" if record.result["status"] == "finished" else "FAILED"
    client.set_terminated(delivery.run_id, status, end_time=_ended(record))


def _fill_report_run(client: MlflowClient, run_id: str, folder: Path, record: ReportRecord) -> None:
    """Write tags, files and the end over those of an earlier report; repeating this does no harm."""
    for key, value in report_tags(record).items():
        client.set_tag(run_id, key, value[:_MAX_VALUE])
    for name in record.files:
        client.log_artifact(run_id, str(folder / name))
    client.set_terminated(run_id, "FINISHED" if record.status == "finished" else "FAILED")


def _started(record: RunRecord) -> int | None:
    """When the run began (not when it was delivered), in ms since 1970; None for now."""
    date = record.job["provenance"].get("date")
    return None if date is None else int(1000 * datetime.fromisoformat(date).timestamp())


def _ended(record: RunRecord) -> int | None:
    """When the run's last epoch was written, in ms since 1970; None for now."""
    return int(1000 * record.epochs[-1]["time"]) if record.epochs else None


def _metric(name: str, value: float, line: Mapping[str, Any]) -> Any:  # noqa: ANN401  mlflow is untyped here
    from mlflow.entities import Metric

    return Metric(_stored(name), float(value), int(line["time"] * 1000), int(line["epoch"]))


def _stored(name: str) -> str:
    """`hits_at_20/val` for `hits@20/val`: MLflow allows no `@` in names."""
    return name.replace("@", "_at_")


def _dataset(record: RunRecord) -> Any:  # noqa: ANN401
    """The data for the dashboard's own column: the dataset's name and content key, and its sizes."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    provenance = record.job["provenance"]
    kind = str(record.job["config"]["dataset"].get("_target_", "gnnexp"))
    return DatasetInput(
        Dataset(name=dataset_name(record), digest=str(provenance.get("dataset_key", ""))[:_MAX_DIGEST] or "unknown",
                source_type="gnnexp", source=json.dumps({"dataset": kind}),
                profile=json.dumps(provenance.get("graph", {}))),
        tags=[InputTag("mlflow.data.context", "training")])


def _param(key: str, value: str) -> Any:  # noqa: ANN401
    from mlflow.entities import Param

    return Param(key, value[:_MAX_VALUE])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)


def _parts(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[start:start + size] for start in range(0, len(items), size))


def _quiet_environment(timeout_s: float) -> None:
    """Set MLflow's variables: no telemetry, and no retries for minutes. A user's own values stay."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(max(1, int(timeout_s / 3))))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")


def _sqlite_file(uri: str) -> Path | None:
    return Path(uri.removeprefix("sqlite:///")) if uri.startswith("sqlite:///") else None


def _public(uri: str) -> str:
    parts = urlsplit(uri)
    return uri.replace(f"{parts.username}:{parts.password}@", "") if parts.password else uri


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[0][:300]
