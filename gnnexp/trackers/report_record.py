"""A sweep's report as trackers see it: `report.json` in its folder says what there is, `delivery.json` what went."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from gnnexp.errors import DataError, Problem
from gnnexp.record.records import read_fields, unreadable, write_json
from gnnexp.trackers.delivery import DELIVERY_FILE

T = TypeVar("T")

REPORT_FILE = "report.json"


@dataclass(frozen=True)
class ReportRecord:
    """What a tracker needs of a sweep's report.

    Attributes:
        uid: of the sweep's report, the same whenever it is made again.
        sweep: its name.
        digest: of what it says; another one is delivered again.
        status: `finished` only if all runs of the sweep are.
        note: Markdown that describes it.
        files: names of its files, in its folder.
        tracker: config of the tracker that takes it.
        code_version: that made it.
        schema: of this file.
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

    def save(self, folder: Path) -> None:
        """Write atomically."""
        write_json(folder / REPORT_FILE, asdict(self))


def read_report(folder: Path) -> ReportRecord:
    """The report in `folder`.

    Raises:
        DataError: its file is damaged.
    """
    record = _read(folder / REPORT_FILE, ReportRecord, "make the report again")
    if outside := [name for name in record.files if name != Path(name).name]:
        raise DataError(Problem(str(folder / REPORT_FILE), outside[0], "files of a report are in its folder",
                                "make the report again"))
    return record


@dataclass(frozen=True)
class ReportDelivery:
    """What of a report has been delivered.

    Attributes:
        uri: of the store.
        run_id: the report's run there.
        digest: of what was delivered.
        schema: of this file.
    """

    uri: str
    run_id: str = ""
    digest: str = ""
    schema: int = 1

    def save(self, folder: Path) -> None:
        """Write atomically."""
        write_json(folder / DELIVERY_FILE, asdict(self))


def read_report_delivery(folder: Path, uri: str) -> ReportDelivery:
    """The state of delivery to `uri`; a delivery to another store does not count."""
    path = folder / DELIVERY_FILE
    if not os.path.lexists(path):
        return ReportDelivery(uri)
    found = _read(path, ReportDelivery, "remove it: what the store has is then asked of the store")
    return found if found.uri == uri else ReportDelivery(uri)


def _read(path: Path, cls: type[T], mend: str) -> T:
    try:
        return read_fields(path, cls)
    except (OSError, ValueError) as error:
        raise DataError(unreadable(path, error, mend)) from None


def undelivered_reports(folder: Path, uri: str) -> list[Path]:
    """Folders of reports below `folder` that `uri` does not have as they are, in order of their names."""
    found = sorted(path.parent for path in folder.rglob(REPORT_FILE))
    return [one for one in found if read_report_delivery(one, uri).digest != read_report(one).digest]
