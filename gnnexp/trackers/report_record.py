"""A sweep's report as trackers see it: `report.json` in its folder says what there is, `delivery.json` what went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gnnexp.errors import DataError, Problem
from gnnexp.record.records import write_json
from gnnexp.trackers.delivery import read_delivery, read_stored

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
    record = read_stored(folder / REPORT_FILE, ReportRecord, "make the report again")
    if outside := [name for name in record.files if name != Path(name).name]:
        raise DataError(Problem(str(folder / REPORT_FILE), outside[0], "files of a report are in its folder",
                                "make the report again"))
    return record


def undelivered_reports(folder: Path, uri: str) -> list[Path]:
    """Folders of reports below `folder` that `uri` does not have as they are, in order of their names."""
    found = sorted(path.parent for path in folder.rglob(REPORT_FILE))
    return [one for one in found if read_delivery(one, uri).digest != read_report(one).digest]
