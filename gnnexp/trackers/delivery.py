"""What is to be delivered of a run or of a sweep's report, and the state of its delivery (`delivery.json`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.files.disk import file_lock, remove_temporary
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
# Seconds that a continued run waits for a process that still delivers its earlier attempt, which takes seconds.
REOPEN_S = 60.0


@dataclass(frozen=True)
class Delivery:
    """The state of the delivery of one run, or of one sweep's report.

    Attributes:
        uri: address of the store.
        run_id: the run's name in the store, empty before it exists there.
        epochs: number of epochs of the run that the store has.
        done: whether everything of the run has been delivered, including its end.
        reopened: whether the run continues after its end was delivered.
        digest: digest of the report that was delivered.
        schema: version of this file's format.
    """

    uri: str
    run_id: str = ""
    epochs: int = 0
    done: bool = False
    reopened: bool = False
    digest: str = ""
    schema: int = 1

    def save(self, run_dir: Path) -> None:
        """Write the file atomically."""
        write_json(run_dir / DELIVERY_FILE, asdict(self))


def read_delivery(run_dir: Path, uri: str) -> Delivery:
    """The state of the delivery to `uri`; a delivery to another store does not count."""
    found = _stored(run_dir)
    return found if found is not None and found.uri == uri else Delivery(uri)


def _stored(run_dir: Path) -> Delivery | None:
    """The contents of `delivery.json`, None if there is none.

    Raises:
        DataError: the file is damaged.
    """
    path = run_dir / DELIVERY_FILE
    if not os.path.lexists(path):
        return None
    return read_stored(path, Delivery, "remove it: gnnexp then asks the store what it has")


def read_stored(path: Path, cls: type[T], fix: str) -> T:
    """Read a dataclass from its JSON file.

    Raises:
        DataError: the file is damaged.
    """
    try:
        return read_fields(path, cls)
    except (OSError, ValueError) as error:
        raise DataError(unreadable(path, error, fix)) from None


def reopen(run_dir: Path, timeout_s: float = REOPEN_S) -> None:
    """Mark a run that continues, so that it is delivered again, to the same place.

    Raises:
        ConfigError: another process still delivered an earlier attempt of the run after `timeout_s`.
    """
    if not (run_dir / DELIVERY_FILE).exists():
        return
    with undisturbed(run_dir, timeout_s):
        delivery = _stored(run_dir)
        if delivery is not None:
            replace(delivery, done=False, reopened=True).save(run_dir)


@contextmanager
def undisturbed(run_dir: Path, timeout_s: float = REOPEN_S) -> Iterator[None]:
    """Inside of this context nothing delivers the run. Until then, the child of a killed launcher may deliver it.

    Raises:
        ConfigError: another process still delivered an earlier attempt of the run after `timeout_s`.
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
    """Be the only process that delivers the run or report in `folder` and changes its `delivery.json`.

    Otherwise there could be two: the child of a killed launcher, and that of `gnnexp resume` or `report --sync`.

    Raises:
        TimeoutError: another process has not ended its delivery within `timeout_s`.
    """
    with file_lock(folder / _LOCK_FILE, timeout_s):
        remove_temporary(folder / DELIVERY_FILE)
        yield


def forget(run_ids: Set[str], run_dirs: Iterable[Path], folders: Iterable[Path]) -> int:
    """Mark runs and reports as not delivered whose store has lost the runs `run_ids`.

    Args:
        run_ids: names of runs in the store.
        run_dirs: where runs were when they were delivered.
        folders: folders that are searched for runs and reports.

    Returns:
        The number of the runs in the store that will be delivered again.
    """
    stored = {path.parent.resolve() for folder in folders for path in folder.rglob(DELIVERY_FILE)}
    stored |= {run_dir.resolve() for run_dir in run_dirs if (run_dir / DELIVERY_FILE).is_file()}
    lost = set[str]()
    for run_dir in sorted(stored):
        state = None
        with suppress(DataError):  # a damaged file is reported when its run is delivered
            state = _stored(run_dir)
        if state is not None and state.run_id in run_ids:
            with undisturbed(run_dir):
                Delivery(state.uri).save(run_dir)
            lost.add(state.run_id)
    return len(lost)


@dataclass(frozen=True)
class RunRecord:
    """The parts of a run directory that a tracker needs.

    Attributes:
        job: contents of `job.json`: config and provenance.
        epochs: lines of `epochs.jsonl`.
        result: contents of `result.json`, or None while the run goes on.
    """

    job: Mapping[str, Any]
    epochs: list[dict[str, Any]]
    result: Mapping[str, Any] | None


def read_run_record(run_dir: Path) -> RunRecord:
    """Read a run directory. The result is read first, so that a run with a result has all its epochs.

    Raises:
        DataError: one of its files is damaged.
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
    """A nested config as `a.b.c: text`, without values that are null.

    The tracker's own group is left out, too, because its addresses are private.
    """
    flat: dict[str, str] = {}
    for key, value in config.items():
        if value is None or (not prefix and key == "tracker"):
            continue
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = str(value)
    return flat


def undelivered(folder: Path, uri: str) -> list[Path]:
    """Run directories below `folder` that are not completely delivered to `uri`, in order of their names."""
    return [run for run in run_dirs(folder, JOB_FILE) if not read_delivery(run, uri).done]


REPORT_FILE = "report.json"
# What the names of a report's paired verdicts begin with.
VERDICT = "verdict"


@dataclass(frozen=True)
class ReportRecord:
    """The parts of a sweep's report that a tracker needs.

    Attributes:
        uid: identifies the sweep's report; it stays the same if the report is made again.
        sweep: the sweep's name.
        digest: digest of the report's content; a report with another digest is delivered again.
        status: `finished` only if all runs of the sweep are.
        note: description in Markdown.
        files: names of its files, which are in its folder.
        tracker: config of the tracker that delivers it.
        code_version: version of gnnexp that made it.
        schema: version of this file's format.
        verdicts: what the report answers, by name: `fastest`, and a paired verdict for each rival and quantity.
    """

    uid: str
    sweep: str
    digest: str
    status: str
    note: str
    files: Sequence[str]
    tracker: Mapping[str, Any]
    code_version: str = ""
    schema: int = 1
    verdicts: Mapping[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the file atomically."""
        write_json(folder / REPORT_FILE, asdict(self))


def read_report(folder: Path) -> ReportRecord:
    """The report in `folder`.

    Raises:
        DataError: its file is damaged.
    """
    record = read_stored(folder / REPORT_FILE, ReportRecord, "make the report again")
    if outside := [name for name in record.files if name != Path(name).name]:
        raise DataError(
            Problem(
                str(folder / REPORT_FILE),
                outside[0],
                "files of a report must be in its folder",
                "make the report again",
            )
        )
    return record


def undelivered_reports(folder: Path, uri: str) -> list[Path]:
    """Folders of reports below `folder` that `uri` does not have in this form, in order of their names."""
    found = sorted(path.parent for path in folder.rglob(REPORT_FILE))
    return [one for one in found if read_delivery(one, uri).digest != read_report(one).digest]
