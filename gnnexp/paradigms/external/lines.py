"""The lines in which an external command reports its epochs: one JSON object for each epoch, checked on arrival."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gnnexp.components.signature import one_of, unknown
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import parse_json
from gnnexp.measure.ledger import TAGS
from gnnexp.measure.phases import PHASES

# A line has some 20 numbers. A longer line is a mistake.
LINE_BYTES = 1 << 16
_TIMES = ("epoch_s", *(f"{phase}_s" for phase in PHASES))
# Names in the record by the keys of a line. A line may also have metrics on the splits (`acc/val`).
NAMES: Mapping[str, str] = {
    "loss": "loss/train",
    "device_peak_bytes": "memory/device_peak_bytes",
    **{key: f"time/{key}" for key in _TIMES},
    **{f"bytes_{tag}": f"comm/bytes_{tag}" for tag in TAGS},
}
_METRIC = re.compile(r"[a-z][a-z0-9_@]*/(val|test)")
# Metrics from 0 to 1. A percentage is a common mistake.
_FRACTION = re.compile(r"(acc|micro_f1|macro_f1|roc_auc|mrr|hits@\d+)/(val|test)")
# A command may round its times, and starts its clock a little before gnnexp sees the process.
_SLACK, _SLACK_S = 1.05, 1.0
_MOST = sys.float_info.max
_FIX = "correct the command: docs/howto/external.md has all keys"


@dataclass(frozen=True)
class ReportedEpoch:
    """An epoch that a command reported.

    Attributes:
        epoch: number of the epoch.
        metrics: what it reported, with the names of the record. What it left out is absent.
    """

    epoch: int
    metrics: Mapping[str, float]


@dataclass
class Lines:
    """The lines of one start of a command: they are checked, and must come in order.

    Attributes:
        file: the file that the command writes.
        first: largest epoch with which the command may begin. It is 0, or the number of recorded epochs if the command
            resumes.
        expected: the epoch that must come next; None before the first.
        claimed_s: sum of the reported epoch times.
        count: number of lines so far.
    """

    file: Path
    first: int = 0
    expected: int | None = None
    claimed_s: float = 0.0
    count: int = field(default=0)

    def read(self, text: bytes, elapsed_s: float) -> ReportedEpoch:
        """The epoch that the next line reports.

        Args:
            text: the line, without its end.
            elapsed_s: seconds since the command was started.

        Raises:
            DataError: the line is wrong; all of its problems are named.
        """
        self.count += 1
        where = f"{self.file}, line {self.count}"
        try:
            reported = parse_json(text)
        except ValueError as error:
            raise DataError(Problem(where, _shown(text), f"must be a JSON object ({error})"[:200], _FIX)) from None
        if not isinstance(reported, dict):
            raise DataError(Problem(where, _shown(text), "must be a JSON object", _FIX))
        problems = [problem for key, value in reported.items() for problem in _value_problems(where, key, value)]
        epoch = reported.get("epoch")
        problems += self._epoch_problems(where, epoch)
        DataError.raise_all(problems)
        assert isinstance(epoch, int)
        self.expected = epoch + 1
        self._check_time(where, reported.get("epoch_s"), elapsed_s)
        return ReportedEpoch(epoch, {NAMES.get(key, key): value for key, value in reported.items() if key != "epoch"})

    def _epoch_problems(self, where: str, epoch: object) -> list[Problem]:
        if type(epoch) is not int:
            return [Problem(f"{where}: epoch", epoch, "every line needs the number of its epoch, from 0 on", _FIX)]
        if self.expected is None and not 0 <= epoch <= self.first:
            allowed = "0" if not self.first else f"from 0 to {self.first}, because the run was resumed"
            return [Problem(f"{where}: epoch", epoch, f"the first reported epoch must be {allowed}", _FIX)]
        if self.expected is not None and epoch != self.expected:
            allowed = f"must be {self.expected}: each epoch is reported once, in order"
            return [Problem(f"{where}: epoch", epoch, allowed, _FIX)]
        return []

    def _check_time(self, where: str, seconds: float | None, elapsed_s: float) -> None:
        """All epochs together cannot have taken more time than has passed."""
        self.claimed_s += seconds or 0.0
        if self.claimed_s > _SLACK * elapsed_s + _SLACK_S:
            raise DataError(
                Problem(
                    f"{where}: epoch_s",
                    seconds,
                    f"must be in seconds: all epochs so far claim {self.claimed_s:.1f} s, "
                    f"and the command was started {elapsed_s:.1f} s ago",
                    _FIX,
                )
            )


def too_long(file: Path, line: int, start: bytes) -> DataError:
    """The error for a line without an end."""
    return DataError(Problem(f"{file}, line {line}", _shown(start), f"must have at most {LINE_BYTES:,} bytes", _FIX))


def _value_problems(where: str, key: str, value: object) -> list[Problem]:
    """The problem of a key and its value, if there is one. The loss may be NaN: then the run has diverged."""
    place = f"{where}: {key}"[:200]
    if key == "epoch":
        return []
    if key not in NAMES and not _METRIC.fullmatch(key):
        known = unknown(place, value, key, NAMES)
        allowed = f"{one_of(['epoch', *NAMES])}, and metrics like acc/val and acc/test"
        return [Problem(place, value, allowed, known.fix)]
    wrong = _wrong(key, value)
    return [Problem(place, value, wrong, _FIX)] if wrong else []


def _wrong(key: str, value: object) -> str:
    """What the value of a known key must be; empty if it is right."""
    is_bytes = key.endswith("_bytes") or key.startswith("bytes_")
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "must be a number; leave out what is not known"
    if not abs(value) <= _MOST and (key != "loss" or isinstance(value, int)):
        return "must be finite; leave out what is not known"
    if key in NAMES and key != "loss" and value < 0:
        return "must be 0 or more"
    if is_bytes and not (isinstance(value, int) and value < 1 << 62):
        return "must be a whole number"
    return "must be from 0 to 1, and not a percentage" if _FRACTION.fullmatch(key) and not 0 <= value <= 1 else ""


def _shown(text: bytes) -> str:
    """The beginning of a line, for a message."""
    return text[:80].decode(errors="replace")
