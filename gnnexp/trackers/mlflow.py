"""Delivery to MLflow: by default to a SQLite file in the current folder, else to `MLFLOW_TRACKING_URI`."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gnnexp.components.packages import is_installed, missing_package
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.check import LONGEST_TIMEOUT_S
from gnnexp.files.disk import file_lock, one_line, refusal
from gnnexp.measure.machine_load import PERIOD_S, sample
from gnnexp.record.records import EPOCHS_FILE
from gnnexp.trackers.base import AwayError, Tracker, TrackingError
from gnnexp.trackers.delivery import (
    VERDICT,
    Delivery,
    ReportRecord,
    RunRecord,
    delivering,
    read_delivery,
    read_report,
    read_run_record,
)
from gnnexp.trackers.description import (
    LONGEST_NAME,
    OWN_TAGS,
    end_tags,
    is_local,
    make_params,
    make_tags,
    parent_tags,
    parent_uid,
    report_tags,
    run_name,
)
from gnnexp.trackers.entities import (
    MAX_METRICS,
    MAX_PARAMS,
    MAX_VALUE,
    dataset_of,
    ended_ms,
    metric_entities,
    params_of,
    pieces_of,
    started,
    stored,
)
from gnnexp.trackers.figures import Detail, end_figures, epoch_figures
from gnnexp.trackers.limited import TimeLimited
from gnnexp.trackers.making import HeldError, lock_of, make_complete
from gnnexp.trackers.model import log_model
from gnnexp.trackers.store import (
    PARENT_TAG,
    UID_TAG,
    URI_VARIABLE,
    address_problems,
    file_problems,
    network_problems,
    public,
    remove_doubles,
    runs_for_uid,
    server_refusal,
    sqlite_file,
)
from gnnexp.trackers.view import EXPERIMENT_TAGS, NOTE_TAG, VIEW_KEY

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT_VARIABLE = "MLFLOW_EXPERIMENT_NAME"
_SERVERS = {"http", "https", "databricks"}
_DATABASES = ("postgresql", "mysql", "mssql")
# On a busy machine, several processes that start together wait for each other.
_ALONE_S = 120.0
_TAG_NAME = re.compile(r"\w[\w. -]{0,199}")


class MlflowTracker(Tracker):
    """One MLflow run per run directory. The runs of a sweep are below the run of the sweep, which has its report.

    Args:
        uri: address of the store; None means `MLFLOW_TRACKING_URI`, else `sqlite:///<cwd>/mlflow.db`.
        experiment: name of the MLflow experiment that contains the runs; None means `MLFLOW_EXPERIMENT_NAME`, else
            `gnnexp`.
        timeout_s: seconds that one request may take, and that the end of a run waits.
        detail: `main` sends at most 40 metrics of a run, `full` all that were recorded. The record is always among the
            artifacts.
        target: value of the validation metric, for `main/time_to_target_s`: the seconds of training until the metric
            first reached it.
        tags: your own tags for all runs, by name.
        system: whether to sample the load of processors and graphics cards every 5 s, for `system/*`. Only runs on the
            machine that launches them are sampled.
        log_model: whether to store the best model, for `mlflow.pyfunc.load_model`. It has the size of a checkpoint.
    """

    def __init__(
        self,
        uri: str | None = None,
        experiment: str | None = None,
        timeout_s: float = 30.0,
        detail: Detail = "main",
        target: float | None = None,
        tags: Mapping[str, Any] | None = None,
        system: bool = False,
        log_model: bool = False,
    ) -> None:
        ConfigError.raise_all(
            [*address_problems(uri), *_number_problems(timeout_s, target), *_tag_problems(tags or {})]
        )
        self.uri = uri or os.environ.get(URI_VARIABLE) or f"sqlite:///{Path.cwd() / 'mlflow.db'}"
        self.experiment = experiment or os.environ.get(EXPERIMENT_VARIABLE) or "gnnexp"
        self.timeout_s = timeout_s
        self.detail, self.target, self.system, self.log_model = detail, target, system, log_model
        self.tags = {str(name): value for name, value in (tags or {}).items()}
        self._client: MlflowClient | None = None
        self._experiment_id = ""
        self._compared: set[Path] = set()  # runs whose delivered epochs were compared with the store
        self._sampled: float | None = None  # when the load was last sampled

    def where(self) -> str:
        """The store's address without credentials."""
        return public(self.uri)

    def check_here(self) -> list[Problem]:
        """See `Tracker.check_here`."""
        if not is_installed("mlflow"):
            missing = missing_package("tracker", "mlflow", "mlflow", "tracker=none")
            return [missing, *network_problems(self.uri)]
        return network_problems(self.uri) or file_problems(self.uri)

    def prepare(self, tell: Callable[[str], None], folders: Sequence[Path] = (), *, make: bool = True) -> bool:
        """See `Tracker.prepare`. A server makes its tables itself. A file that another process holds is left alone."""
        file = sqlite_file(self.uri)
        if file is not None and (make or file.exists()):
            try:
                with self._in_words():
                    make_complete(file, tell, folders)
            except HeldError:
                return False
        return True

    def deliver(self, run_dir: Path, *, end: bool = True) -> bool:
        """See `Tracker.deliver`."""
        run_dir = run_dir.resolve()
        if read_delivery(run_dir, self.where()).done:
            return True
        with self._in_words():
            client = self._reached()
            with delivering(run_dir, self.timeout_s):
                return self._deliver(client, run_dir, end=end)

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except (HeldError, AwayError):
            raise
        except Exception as error:  # errors of requests, SQLAlchemy, alembic and MLflow have no common base
            raise TrackingError(f"{self.where()}: {_first_line(error)}") from error

    def _deliver(self, client: MlflowClient, run_dir: Path, *, end: bool) -> bool:
        """Deliver the rest of a run. Only one process does this at a time; an earlier one may have delivered a part."""
        delivery, record = read_delivery(run_dir, self.where()), read_run_record(run_dir)
        if delivery.done:
            return True
        delivery = self._find_or_create(client, run_dir, record, delivery)
        figures = epoch_figures(record, self.detail)
        if figures and run_dir not in self._compared:
            num_stored = _epochs_in_store(client, delivery.run_id, figures)
            # A run that an earlier version began lacks what that version did not send.
            delivery = delivery if num_stored is None else replace(delivery, epochs=num_stored)
            self._compared.add(run_dir)
        for number in range(delivery.epochs, len(figures)):  # one request per epoch
            _send(client, delivery.run_id, figures[number], record.epochs[number])
            delivery = replace(delivery, epochs=number + 1)
            delivery.save(run_dir)
        if self.system and not end and is_local(record):
            self._sample(client, delivery.run_id, record)
        if end and record.result is not None:
            self._deliver_end(client, run_dir, record, delivery)
            delivery = replace(delivery, done=True)
            delivery.save(run_dir)
        return delivery.done

    def deliver_report(self, folder: Path) -> bool:
        """See `Tracker.deliver_report`. The report is in the run of its sweep, also if it is made again."""
        folder = folder.resolve()
        record = read_report(folder)
        if read_delivery(folder, self.where()).digest == record.digest:
            return True
        with self._in_words():
            client = self._reached()
            with delivering(folder, self.timeout_s):
                delivery = read_delivery(folder, self.where())  # another process may have been faster
                if delivery.digest != record.digest:
                    run_id = delivery.run_id or self._sweep_run(client, record.uid, report_tags(record))
                    replace(delivery, run_id=run_id).save(folder)
                    _fill_report_run(client, run_id, folder, record)
                    remove_doubles(client, self._experiment_id, record.uid, run_id)
                    replace(delivery, run_id=run_id, digest=record.digest).save(folder)
        return True

    def view(self, address: str, *, charts: bool = False) -> str:
        """The address of the experiment's page on the server at `address`: the list of runs, or their charts.

        Raises:
            TrackingError: the store did not answer.
        """
        with self._in_words():
            self._connect()
        return (
            f"{address.rstrip('/')}/#/experiments/{self._experiment_id}/runs?workflowType=machine_learning"
            f"&viewStateShareKey={VIEW_KEY}{'&compareRunsMode=CHART' if charts else ''}"
        )

    def with_experiment(self, name: str) -> MlflowTracker:
        """The same tracker for another experiment in the same store."""
        other = copy(self)
        other.experiment, other._client = name, None
        return other

    def experiments(self) -> list[str]:
        """The names of the experiments in the store.

        Raises:
            TrackingError: the store did not answer.
        """
        with self._in_words():
            return [str(one.name) for one in self._connect().search_experiments()]

    def _sweep_run(self, client: MlflowClient, uid: str, tags: Mapping[str, str]) -> str:
        """The run of a sweep in the store, made here now or earlier.

        A server cannot be locked, so two processes may both make one. `remove_doubles` joins them.
        """
        if sweep_runs := runs_for_uid(client, self._experiment_id, uid):
            return str(sweep_runs[0].info.run_id)
        with self._alone():
            if not (sweep_runs := runs_for_uid(client, self._experiment_id, uid)):
                created = client.create_run(
                    self._experiment_id,
                    tags={**self.tags, **tags, UID_TAG: uid},
                    run_name=f"sweep {tags['sweep']}"[:LONGEST_NAME],
                )
                sweep_runs = runs_for_uid(client, self._experiment_id, uid) or [created]
        return str(sweep_runs[0].info.run_id)

    def _parent(self, client: MlflowClient, record: RunRecord) -> dict[str, str]:
        """The tag that places a run below its sweep; empty without a sweep."""
        uid = parent_uid(record)
        return {PARENT_TAG: self._sweep_run(client, uid, parent_tags(record))} if uid else {}

    def _sample(self, client: MlflowClient, run_id: str, record: RunRecord) -> None:
        """Send the load of this machine, at most every `PERIOD_S`. The first call only begins to measure."""
        now = time.monotonic()
        if self._sampled is not None and now - self._sampled < PERIOD_S:
            return
        load, begun = sample(), self._sampled is not None
        self._sampled = now
        if begun:
            seconds = time.time()
            _send(client, run_id, load, {"time": seconds, "epoch": max(0.0, seconds - (started(record) or 0) / 1000)})

    def _reached(self) -> MlflowClient:
        """The client of a store that answers.

        Raises:
            AwayError: it does not. The time to import MLflow is no time of waiting.
        """
        _quiet_environment(self.timeout_s)
        import mlflow  # noqa: F401

        began = time.monotonic()
        try:
            return self._connect()
        except Exception as error:  # see `_in_words`
            raise AwayError(f"{self.where()}: {_first_line(error)}", time.monotonic() - began) from error

    def _connect(self) -> MlflowClient:
        """The client. Afterwards the store and the experiment exist, also if several launchers start at once."""
        if self._client is not None:
            return self._client
        _quiet_environment(self.timeout_s)
        self._check_schema()
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        with self._alone():
            client = self._limited(MlflowClient(tracking_uri=self.uri))
            experiment = client.get_experiment_by_name(self.experiment)
            if experiment is None:
                try:
                    self._experiment_id = client.create_experiment(self.experiment, self._artifacts(), EXPERIMENT_TAGS)
                except MlflowException:  # another launcher was faster, on a server that we cannot lock
                    experiment = client.get_experiment_by_name(self.experiment)
                    if experiment is None:
                        raise
            if experiment is not None:
                self._experiment_id = experiment.experiment_id
                _describe_experiment(client, experiment.experiment_id, experiment.tags)
        self._client = client
        return client

    def _limited(self, client: MlflowClient) -> MlflowClient:
        """`client` with a limit: for a server, each request ends within `timeout_s`."""
        is_server = self.uri.partition(":")[0] in _SERVERS
        return cast("MlflowClient", TimeLimited(client, self.timeout_s)) if is_server else client

    def _alone(self) -> AbstractContextManager[None]:
        """A lock of a SQLite store, for what only one process may make: the experiment, and the run of a sweep."""
        file = sqlite_file(self.uri)
        return nullcontext() if file is None else file_lock(lock_of(file), _ALONE_S)

    def _check_schema(self) -> None:
        """Make sure that MLflow will migrate nothing: a process that can be ended at any time would do that."""
        if (file := sqlite_file(self.uri)) is not None:
            make_complete(file, lambda line: print(line, file=sys.stderr), patience_s=self.timeout_s)
        elif self.uri.startswith(_DATABASES) and (refusal := server_refusal(self.uri)):
            raise TrackingError(refusal.reason)

    def _artifacts(self) -> str | None:
        """Where artifacts of a local store go: next to it. A server decides this itself."""
        file = sqlite_file(self.uri)
        return None if file is None else (file.parent.absolute() / "mlartifacts" / self.experiment).as_uri()

    def _find_or_create(self, client: MlflowClient, run_dir: Path, record: RunRecord, delivery: Delivery) -> Delivery:
        """The run in the store: a new one, or an existing one, also of a process that died before it noted that."""
        if delivery.run_id:
            return _go_on(client, run_dir, delivery) if delivery.reopened else delivery
        uid = str(record.job["provenance"]["uid"])
        if stored_runs := runs_for_uid(client, self._experiment_id, uid):
            delivery = replace(delivery, run_id=stored_runs[0].info.run_id, epochs=0)
        else:
            tags = {**self.tags, **make_tags(run_dir, record), **self._parent(client, record), UID_TAG: uid}
            created = client.create_run(
                self._experiment_id, start_time=started(record), tags=tags, run_name=run_name(record)
            )
            delivery = replace(delivery, run_id=created.info.run_id)
        for part in pieces_of(params_of(make_params(record)), MAX_PARAMS):
            client.log_batch(delivery.run_id, params=part)
        client.log_inputs(delivery.run_id, [dataset_of(record)])
        delivery.save(run_dir)
        return delivery

    def _deliver_end(self, client: MlflowClient, run_dir: Path, record: RunRecord, delivery: Delivery) -> None:
        """Deliver main figures, artifacts and the end itself; repeating this does no harm."""
        assert record.result is not None
        last = record.epochs[-1] if record.epochs else {"epoch": 0, "time": 0.0}
        _send(client, delivery.run_id, end_figures(record, self.target), last)
        kept = [run_dir / name for name in ("config.yaml", "result.json", EPOCHS_FILE)]
        kept += sorted(path for folder in ("logs", "figures") for path in (run_dir / folder).rglob("*"))
        for file in filter(Path.is_file, kept):  # one request for each file, so that each has its own time limit
            folder = file.parent.relative_to(run_dir)
            client.log_artifact(delivery.run_id, str(file), str(folder) if folder.name else None)
        if self.log_model:
            log_model(client, delivery.run_id, run_dir)
        parent = self._parent(client, record)
        for key, value in {**end_tags(run_dir, record), **parent}.items():
            client.set_tag(delivery.run_id, key, value)
        if parent:
            remove_doubles(client, self._experiment_id, parent_uid(record), parent[PARENT_TAG])
        status = "FINISHED" if record.result["status"] == "finished" else "FAILED"
        client.set_terminated(delivery.run_id, status, end_time=ended_ms(record))
        remove_doubles(client, self._experiment_id, str(record.job["provenance"]["uid"]), delivery.run_id)


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


def _send(client: MlflowClient, run_id: str, figures: Mapping[str, float], line: Mapping[str, Any]) -> None:
    """Send figures with time and epoch of a line. MLflow merges equal rows, so they may be sent twice."""
    for part in pieces_of(metric_entities(figures, line), MAX_METRICS):
        client.log_batch(run_id, metrics=part)


def _epochs_in_store(client: MlflowClient, run_id: str, figures: Sequence[Mapping[str, float]]) -> int | None:
    """How many epochs from the first the store has completely; None if it cannot be known.

    The last figure of each epoch shows this.
    """
    if not figures[0] or len(figures[0]) > MAX_METRICS:
        return None
    last = list(figures[0])[-1]
    steps = {metric.step for metric in client.get_metric_history(run_id, stored(last))}
    return next((epoch for epoch in range(len(figures)) if epoch not in steps), len(figures))


def _fill_report_run(client: MlflowClient, run_id: str, folder: Path, record: ReportRecord) -> None:
    """Write tags, files and the end over those of an earlier report; repeating this does no harm."""
    tags = report_tags(record)
    for key in client.get_run(run_id).data.tags:
        if key.startswith(VERDICT) and key not in tags:
            client.delete_tag(run_id, key)
    for key, value in tags.items():
        client.set_tag(run_id, key, value[:MAX_VALUE])
    for name in record.files:
        client.log_artifact(run_id, str(folder / name))
    client.set_terminated(run_id, "FINISHED" if record.status == "finished" else "FAILED")


def _quiet_environment(timeout_s: float) -> None:
    """Set MLflow's variables: no telemetry, no retries for minutes, no lines of its own in our output.

    A user's own values stay.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(max(1, int(timeout_s / 3))))
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")


def _number_problems(timeout_s: float, target: float | None) -> list[Problem]:
    problems = []
    if not 0 < timeout_s <= LONGEST_TIMEOUT_S:
        problems.append(
            Problem(
                "tracker.timeout_s",
                timeout_s,
                f"must be positive, and at most {LONGEST_TIMEOUT_S:,} s",
                "tracker.timeout_s=30",
            )
        )
    if target is not None and not 0 < target <= 1:
        problems.append(
            Problem("tracker.target", target, "must be positive, and at most 1 (0.9 is 90 %)", "tracker.target=0.9")
        )
    return problems


def _tag_problems(tags: Mapping[str, Any]) -> list[Problem]:
    """Problems of a user's own tags."""
    problems = []
    for name, value in ((str(key), value) for key, value in tags.items()):
        where = f"tracker.tags.{name}"
        if name in OWN_TAGS or name.startswith(("mlflow.", "gnnexp.")):
            problems.append(Problem(where, value, "is a name of gnnexp's or MLflow's own tags", "choose another name"))
        elif not _TAG_NAME.fullmatch(name):
            problems.append(
                Problem(
                    where,
                    value,
                    "the name must be letters, digits, _, -, . and spaces, at most 200",
                    "choose another name",
                )
            )
        if not isinstance(value, str) or len(value) > MAX_VALUE:
            problems.append(
                Problem(
                    where,
                    value,
                    f"must be a text of at most {MAX_VALUE} characters",
                    f"put quotes around it: tracker.tags={{{name}: '{value}'}}",
                )
            )
    return problems


def _first_line(error: BaseException) -> str:
    if isinstance(error, OSError) and (problem := refusal(error)):
        return f"{one_line(problem)}. Fix: {problem.fix}"
    return (str(error).strip().splitlines() or [repr(error)])[0][:300]
