"""What of a run has been delivered where: `delivery.json` in its run directory, and what there is to deliver."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.files.disk import locked, remove_unfinished
from gnnexp.record.attempts import BUSY
from gnnexp.record.records import (
    JOB_FILE,
    RESULT_FILE,
    load_job,
    load_result,
    read_epochs,
    read_fields,
    run_dirs,
    unreadable,
    write_json,
)

T = TypeVar("T")
DELIVERY_FILE = "delivery.json"
_LOCK_FILE = "delivery.lock"
# How long a run that goes on waits for a process that still delivers its earlier attempt: one takes seconds.
REOPEN_S = 60.0


@dataclass(frozen=True)
class Delivery:
    """State of the delivery of one run, or of one sweep's report.

    Attributes:
        uri: of the store.
        run_id: the run's name there, empty before it exists.
        epochs: how many epochs of the run the store has.
        done: whether everything of the run, the end included, has been delivered.
        reopened: whether the run goes on after its end was delivered.
        digest: of the report that was delivered.
        schema: of this file.
    """

    uri: str
    run_id: str = ""
    epochs: int = 0
    done: bool = False
    reopened: bool = False
    digest: str = ""
    schema: int = 1

    def save(self, run_dir: Path) -> None:
        """Write atomically."""
        write_json(run_dir / DELIVERY_FILE, asdict(self))


def read_delivery(run_dir: Path, uri: str) -> Delivery:
    """The state of delivery to `uri`; a delivery to another store does not count."""
    found = _stored(run_dir)
    return found if found is not None and found.uri == uri else Delivery(uri)


def _stored(run_dir: Path) -> Delivery | None:
    """What `delivery.json` says, None where there is none.

    Raises:
        DataError: it is damaged.
    """
    path = run_dir / DELIVERY_FILE
    if not os.path.lexists(path):
        return None
    return read_stored(path, Delivery, "remove it: what the store has is then asked of the store")


def read_stored(path: Path, cls: type[T], fix: str) -> T:
    """A dataclass that was written as JSON.

    Raises:
        DataError: the file is damaged.
    """
    try:
        return read_fields(path, cls)
    except (OSError, ValueError) as error:
        raise DataError(unreadable(path, error, fix)) from None


def reopen(run_dir: Path, timeout_s: float = REOPEN_S) -> None:
    """Have a run that goes on delivered again, to the same place.

    Raises:
        ConfigError: another process, of an earlier attempt, has been delivering the run for `timeout_s`.
    """
    if not (run_dir / DELIVERY_FILE).exists():
        return
    with undisturbed(run_dir, timeout_s):
        found = _stored(run_dir)
        if found is not None:
            replace(found, done=False, reopened=True).save(run_dir)


@contextmanager
def undisturbed(run_dir: Path, timeout_s: float = REOPEN_S) -> Iterator[None]:
    """Nobody delivers the run inside of this context; the child of a launcher that was killed may have until then.

    Raises:
        ConfigError: another process, of an earlier attempt, has been delivering the run for `timeout_s`.
    """
    if not (run_dir / _LOCK_FILE).exists():
        yield
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(delivering(run_dir, timeout_s))
        except TimeoutError as error:
            problem = Problem(BUSY, str(run_dir), str(error), "end that process, then repeat the command")
            raise ConfigError(problem) from None
        yield


@contextmanager
def delivering(folder: Path, timeout_s: float) -> Iterator[None]:
    """Be the only process that delivers the run or the report in `folder`, and changes its `delivery.json`.

    Two could be there: the child of a launcher that was killed, and that of `gnnexp resume` or `report --sync`.

    Raises:
        TimeoutError: another process has not ended its delivery within `timeout_s`.
    """
    with locked(folder / _LOCK_FILE, timeout_s):
        remove_unfinished(folder / DELIVERY_FILE)
        yield


@dataclass(frozen=True)
class RunRecord:
    """What a tracker needs of a run directory.

    Attributes:
        job: `job.json`: config and provenance.
        epochs: lines of `epochs.jsonl`.
        result: `result.json`, or None while the run goes on.
    """

    job: Mapping[str, Any]
    epochs: list[dict[str, Any]]
    result: Mapping[str, Any] | None


def read_run(run_dir: Path) -> RunRecord:
    """Read a run directory; the result first, so that a run that is over is seen with all its epochs.

    Raises:
        DataError: a file of it is damaged.
    """
    result, path = None, run_dir / RESULT_FILE
    try:
        if os.path.lexists(path):
            result = load_result(run_dir)
        path = run_dir / JOB_FILE
        job = load_job(run_dir)
    except (OSError, ValueError) as error:
        raise DataError(unreadable(path, error)) from None
    return RunRecord(job, read_epochs(run_dir), result)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested config as `a.b.c: text`, without the tracker's own group: its addresses are nobody's business."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        if not prefix and key == "tracker":
            continue
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = "null" if value is None else str(value)
    return flat


def undelivered(folder: Path, uri: str) -> list[Path]:
    """Run directories below `folder` that `uri` does not have whole, in order of their names."""
    return [run for run in run_dirs(folder, JOB_FILE) if not read_delivery(run, uri).done]
