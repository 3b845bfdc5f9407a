"""The store of MLflow: where it is, whether SQLite can work there, and which of its runs belong to what."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil

from gnnexp.errors import ConfigError, Problem, Refusal
from gnnexp.trackers.schema import examine, problem_of, revisions

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

URI_VARIABLE = "MLFLOW_TRACKING_URI"
# Kinds of stores that MLflow supports (its documentation's list of backend stores).
_STORES = {"", "file", "sqlite", "postgresql", "mysql", "mssql", "http", "https", "databricks"}
_SQLITE = re.compile(r"sqlite(\+\w+)?:///")  # SQLAlchemy allows the name of a driver
UID_TAG, PARENT_TAG = "gnnexp.uid", "mlflow.parentRunId"
# At most this many runs of one uid are compared: each lost answer makes one more.
_MOST_DOUBLES = 100
# SQLite's locks do not work reliably on network file systems (https://sqlite.org/faq.html#q5).
_NETWORK = frozenset(
    (
        "nfs",
        "nfs4",
        "lustre",
        "cifs",
        "smb3",
        "smbfs",
        "beegfs",
        "gpfs",
        "ceph",
        "wekafs",
        "9p",
        "afs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph-fuse",
    )
)


def sqlite_file(uri: str) -> Path | None:
    """The file of a SQLite store; None for other stores."""
    found = _SQLITE.match(uri)
    return Path(uri[found.end() :].partition("?")[0]) if found else None


def public(uri: str) -> str:
    """The address of a store without credentials."""
    parts = urlsplit(uri)
    return uri.replace(f"{parts.username}:{parts.password}@", "") if parts.password else uri


def address_problems(uri: str | None) -> list[Problem]:
    """Problems of an address that a configuration gives."""
    if uri is not None and urlsplit(uri).password:
        return [
            Problem(
                "tracker.uri",
                "(hidden)",
                "must not carry a password: configs are recorded",
                f"set {URI_VARIABLE} and MLFLOW_TRACKING_PASSWORD in the environment",
            )
        ]
    if urlsplit(uri or "").scheme.partition("+")[0] in _STORES:
        return []
    allowed = f"must start with one of {', '.join(sorted(_STORES - {''}))}, or be a folder"
    return [Problem("tracker.uri", uri, allowed, "tracker.uri=sqlite:///mlflow.db, or null")]


def network_problems(uri: str) -> list[Problem]:
    """The problem of a SQLite store on a network file system, where several machines would damage it or wait."""
    file = sqlite_file(uri)
    kind = "" if file is None else network_file_system(file)
    if not kind:
        return []
    return [
        Problem(
            "tracker.uri",
            uri,
            f"is SQLite on a network file system ({kind}), whose locks are not reliable",
            "start `mlflow server` on one machine and give tracker.uri=http://HOST:5000, or put the file on a "
            "local disk (tracker.uri=sqlite:////tmp/mlflow.db), or tracker=none",
        )
    ]


def file_problems(uri: str) -> list[Problem]:
    """Problems of the file of a SQLite store: no store of this MLflow, or no place to write. It is not changed."""
    file = sqlite_file(uri)
    if file is None:
        return []
    if file.name in ("", ":memory:"):
        return [
            Problem(
                "tracker.uri",
                uri,
                "must name a file: a store in memory ends with its process",
                "tracker.uri=sqlite:///mlflow.db, or tracker=none",
            )
        ]
    file = file.resolve()
    if not file.parent.is_dir():
        return [
            Problem(
                "tracker.uri",
                uri,
                f"there is no folder {file.parent}",
                f"mkdir -p {shlex.quote(str(file.parent))}, or name another file, or tracker=none",
            )
        ]
    closed = [place for place in (file.parent, file) if place.exists() and not os.access(place, os.W_OK)]
    if closed:
        return [
            Problem(
                "tracker.uri",
                uri,
                f"{closed[0]} may not be written to",
                "change its rights, or name another file, or tracker=none",
            )
        ]
    try:
        problem = problem_of(file, examine(file))
    except OSError as error:
        problem = Problem("tracker.uri", uri, str(error.strerror or error), "name another file, or tracker=none")
    except ConfigError as error:
        return list(error.problems)
    return [problem] if problem else []


def server_refusal(uri: str) -> Refusal | None:
    """Why a database server cannot be used as it is. gnnexp changes no schema of a server.

    An empty database is no problem: MLflow makes its tables there.
    """
    from sqlalchemy import create_engine, inspect, text

    engine = create_engine(uri)
    try:
        if not inspect(engine).has_table("alembic_version"):
            return None
        with engine.connect() as connection:
            held = {str(name) for (name,) in connection.execute(text("SELECT version_num FROM alembic_version"))}
    finally:
        engine.dispose()
    newest, shown = revisions().newest, ", ".join(sorted(held)) or "none"
    if held == {newest}:
        return None
    if held <= revisions().all:
        return Refusal(
            f"has the schema {shown} of an older MLflow, and needs {newest}. Make a backup, then: "
            f"mlflow db upgrade {shlex.quote(public(uri))}"
        )
    return Refusal(f"has the schema {shown} of a newer MLflow: pip install --upgrade mlflow")


def network_file_system(path: Path) -> str:
    """The kind of the network file system that contains `path`, which need not exist; empty if it is a local one."""
    place = path.resolve()
    found, kind = -1, ""
    for mount in psutil.disk_partitions(all=True):
        at = Path(mount.mountpoint)
        # Of two mounts at one place, the later one hides the earlier one.
        if place.is_relative_to(at) and len(at.parts) >= found:
            found, kind = len(at.parts), mount.fstype
    return kind if kind in _NETWORK else ""


def runs_for_uid(client: MlflowClient, experiment_id: str, uid: str) -> list[Run]:
    """The runs in the store that were made for `uid`: those with contents first, then the oldest.

    The order is the same for all processes, so that they choose the same run.
    """
    found = client.search_runs([experiment_id], f"tags.`{UID_TAG}` = '{uid}'", max_results=_MOST_DOUBLES)
    return sorted(found, key=lambda run: (is_empty(run), run.info.start_time, run.info.run_id))


def is_empty(run: Run) -> bool:
    """Whether a run was only created: it has nothing except its tags."""
    return run.info.status == "RUNNING" and not run.data.params and not run.data.metrics


def remove_doubles(client: MlflowClient, experiment_id: str, uid: str, run_id: str) -> None:
    """Delete the empty runs that were made for `uid`, except `run_id`, which becomes the parent of their runs.

    MLflow's client repeats a request whose answer was lost, and the server makes a run for each request. Two machines
    that deliver the first runs of a sweep at the same time may each make a run for the sweep.
    """
    for run in runs_for_uid(client, experiment_id, uid):
        if run.info.run_id != run_id and is_empty(run):
            for child in _children(client, experiment_id, run.info.run_id):
                client.set_tag(child.info.run_id, PARENT_TAG, run_id)
            client.delete_run(run.info.run_id)


def _children(client: MlflowClient, experiment_id: str, run_id: str) -> Sequence[Run]:
    found: list[Run] = []
    token = None
    while token != "":
        page = client.search_runs([experiment_id], f"tags.`{PARENT_TAG}` = '{run_id}'", page_token=token)
        found += page
        token = page.token or ""
    return found
