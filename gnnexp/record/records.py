"""Reads and writes the files of a run directory; a file is never left half written."""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO, TypeVar

from gnnexp.components.signature import key_problems, parameters_of_dataclass
from gnnexp.errors import DataError, Problem
from gnnexp.files.disk import write_bytes, writing
from gnnexp.files.regular import SMALL_BYTES, parse_json, read_json, read_limited
from gnnexp.measure.merit import lower_is_better
from gnnexp.measure.record import RankRecord, layer_counts
from gnnexp.record.shape import check_job, check_line, check_result, check_state

EPOCHS_FILE = "epochs.jsonl"
RESULT_FILE = "result.json"
JOB_FILE = "job.json"
# Only epochs that were traced have this metric.
TRACED = "trace/events"

# A run writes some 6 kB per rank and epoch. gnnexp never writes a larger file, so a larger file is refused.
MOST_RECORD_BYTES = 1 << 30

T = TypeVar("T")


def write_json(path: Path, value: object) -> None:
    """Write atomically: a temporary file in the same folder, fsync, rename."""
    write_text(path, json.dumps(value, indent=1, default=str))


def write_text(path: Path, text: str) -> None:
    """Write atomically: a temporary file in the same folder, fsync, rename."""
    write_bytes(path, text.encode())


def load_job(run_dir: Path) -> dict[str, Any]:
    """`job.json` of a run: what the run should do.

    Raises:
        OSError, ValueError: the file cannot be read or is damaged; the message says how.
    """
    return _loaded(run_dir / JOB_FILE, check_job)


def load_result(run_dir: Path) -> dict[str, Any]:
    """`result.json` of a run that has ended.

    Raises:
        OSError, ValueError: the file cannot be read or is damaged; the message says how.
    """
    return _loaded(run_dir / RESULT_FILE, check_result, MOST_RECORD_BYTES)


def _loaded(path: Path, check: Callable[[object], None], limit: int = SMALL_BYTES) -> dict[str, Any]:
    found = read_json(path, limit)
    check(found)
    assert isinstance(found, dict)
    return found


def read_epochs(run_dir: Path) -> list[dict[str, Any]]:
    """The epochs recorded so far; an unfinished last line of a killed run is ignored.

    Raises:
        DataError: the file cannot be read, or a line is damaged.
    """
    path = run_dir / EPOCHS_FILE
    epochs: list[dict[str, Any]] = []
    try:
        for number, text in enumerate(read_limited(path, MOST_RECORD_BYTES).split(b"\n")[:-1], 1):
            line = parse_json(text)
            check_line(line, f"line {number}")
            assert isinstance(line, dict)
            epochs.append(line)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise DataError(unreadable(path, error)) from None
    return epochs


def read_state(file: Path) -> dict[str, Any]:
    """The state that the last call of a sweep left (`runs/sweeps/<name>.json`).

    A case without run_dir, status or reason has an empty text there.

    Raises:
        DataError: the file cannot be read or is damaged.
    """
    try:
        state = _loaded(file, check_state)
    except (OSError, ValueError) as error:
        raise DataError(unreadable(file, error, "run the sweep again: it finds and reuses the finished runs")) from None
    nothing = dict.fromkeys(("run_dir", "status", "reason"), "")
    cases = [nothing | {key: value for key, value in case.items() if value is not None} for case in state["cases"]]
    return {**state, "cases": cases}


def read_fields(path: Path, cls: type[T]) -> T:
    """Read a dataclass of scalars, lists and mappings from its JSON file.

    Null counts as a missing field, and unknown keys (of another version) are ignored.

    Raises:
        OSError, ValueError: the file cannot be read, or a field is missing or of the wrong type.
    """
    fields, allowed = read_json(path), parameters_of_dataclass(cls)
    if not isinstance(fields, dict):
        raise ValueError("must be a mapping")
    known = {name: value for name, value in fields.items() if name in allowed and value is not None}
    if wrong := key_problems("", known, allowed):
        raise ValueError(f"{wrong[0].key[1:]} {wrong[0].allowed}")
    return cls(**known)


def unreadable(
    path: Path, error: OSError | ValueError, fix: str = "restore the file, or make the run again"
) -> Problem:
    """The problem that a file of a record cannot be read."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)[:200]
    return Problem(str(path), why, "must be a file that gnnexp wrote, readable by you", fix)


class EpochLog:
    """Appends one line per epoch to `epochs.jsonl`, only on rank 0. A line is on disk before training goes on.

    A resumed run repeats the epochs after its checkpoint. `append` ignores these epochs, so their first records stay.
    """

    _together: TextIO | None = None

    def __init__(self, run_dir: Path, rank: int) -> None:
        self._path = run_dir / EPOCHS_FILE
        self._writes = rank == 0
        self._next = 0
        self._earlier: list[Mapping[str, float]] = []
        if self._writes and self._path.exists():
            self._drop_unfinished_line()
            self._earlier = [line["metrics"] for line in read_epochs(run_dir)]
            self._next = len(self._earlier)

    @property
    def num_epochs(self) -> int:
        """Number of recorded epochs; valid on rank 0 only."""
        return self._next

    def recorded(self, epoch: int) -> Mapping[str, float] | None:
        """Metrics of an epoch that an earlier attempt recorded; valid on rank 0 only, None on other ranks."""
        return self._earlier[epoch] if epoch < len(self._earlier) else None

    def append(
        self,
        epoch: int,
        metrics: Mapping[str, float],
        ranks: Sequence[RankRecord],
        steps: Sequence[float],
        resumed: Sequence[Mapping[str, int]] = (),
    ) -> None:
        """Record one epoch.

        Args:
            epoch: number of the epoch.
            metrics: metrics of the epoch, reduced over ranks.
            ranks: the record of every rank.
            steps: the loss of every step.
            resumed: steps at which this epoch was continued after a stop, with the number of ranks before the stop.
        """
        if not self._writes or epoch < self._next:
            return
        assert epoch == self._next, f"epoch {epoch} follows {self._next - 1}"
        line: dict[str, Any] = {
            "epoch": epoch,
            "time": time.time(),
            "metrics": dict(metrics),
            "ranks": [rank.to_json() for rank in ranks],
            "losses": list(steps),
            "batches": layer_counts(ranks),
        }
        if resumed:
            line["resumed"] = [dict(piece) for piece in resumed]
        text = json.dumps(line) + "\n"
        with writing(self._path):
            if self._together is None:
                with self._opened() as file:
                    _put(file, text)
            else:
                self._together.write(text)
        self._next += 1

    @contextmanager
    def together(self) -> Iterator[None]:
        """Inside of this context, lines are flushed to the disk once, at its end: each flush takes milliseconds."""
        with writing(self._path), self._opened() as file:
            self._together = file
            try:
                yield
            finally:
                self._together = None
                _put(file, "")

    def _opened(self) -> TextIO:
        """The file, to append to. It is made for the first epoch only: a later one would make a record that lacks some.

        Raises:
            DataError: the file was removed.
        """
        new = 0 if self._next else os.O_CREAT
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | new, 0o666)
        except FileNotFoundError:
            raise DataError(
                Problem(str(self._path), "was removed", f"it had the records of {self._next} epochs", "start a new run")
            ) from None
        return open(handle, "a", encoding="utf-8")  # noqa: PTH123

    def _drop_unfinished_line(self) -> None:
        with self._path.open("rb+") as file:
            whole = file.read().rfind(b"\n") + 1
            file.truncate(whole)


def _put(file: TextIO, text: str) -> None:
    """Write a text, and flush what was written to the disk."""
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def warm(epochs: Sequence[Mapping[str, float]], metric: str = "") -> Sequence[Mapping[str, float]]:
    """The epochs that count: those after the first, which warms up, without those that a profiler slowed down.

    For figures of a trace (`trace/*`), these are all epochs after the first.
    """
    later = epochs[1:] or epochs
    return later if metric.startswith("trace/") else [one for one in later if TRACED not in one] or later


def warm_median(epochs: Sequence[Mapping[str, float]], metric: str) -> float:
    """Median of `metric` over the `warm` epochs; NaN if it was not recorded."""
    values = [epoch[metric] for epoch in warm(epochs, metric) if metric in epoch]
    return statistics.median(values) if values else math.nan


def figure_of_merit(summary: Mapping[str, float], split: str, chosen: str) -> tuple[str, float]:
    """Name and value of the main metric on `split`, as (`acc/test`, 0.81); without a metric, an empty name and NaN.

    `chosen` (`task.metric`) comes first if it was recorded.
    """
    names = [name for name in summary if name.endswith(f"/{split}") and name != f"loss/{split}"]
    order = {"acc": 0, "micro_f1": 1, "roc_auc": 2, "mse": 3} | {chosen: -1}
    names.sort(key=lambda name: order.get(name.partition("/")[0], 9))
    return (names[0], summary[names[0]]) if names else ("", math.nan)


def summarize(epochs: Sequence[Mapping[str, Any]], primary: str) -> dict[str, float]:
    """Metrics at the best validation epoch, and medians over the epochs after the first.

    Medians are those of times, bytes, work and memory. If no epoch has a validation metric, the metrics are those of
    the last epoch with a test metric. With an even number of epochs, a median is the larger of the two middle values.
    `primary` is a metric without its split, as `acc`.
    """
    summary: dict[str, float] = {}
    figures = [e for e in epochs if not math.isnan(e["metrics"].get(f"{primary}/test", math.nan))]
    evaluated = [e for e in epochs if not math.isnan(e["metrics"].get(f"{primary}/val", math.nan))]
    if evaluated or figures:
        choose = min if lower_is_better(primary) else max
        best = choose(evaluated, key=lambda e: e["metrics"][f"{primary}/val"]) if evaluated else figures[-1]
        summary["best_epoch"] = best["epoch"]
        summary |= {k: v for k, v in best["metrics"].items() if k.partition("/")[2] in ("val", "test")}
    if epochs:
        if "loss/train" in epochs[-1]["metrics"]:  # an external system may not report its loss
            summary["loss/train"] = epochs[-1]["metrics"]["loss/train"]
        counted = warm([epoch["metrics"] for epoch in epochs])
        for name in counted[0]:
            if name.split("/")[0] in ("time", "comm", "work", "memory"):
                values = sorted(metrics[name] for metrics in counted if name in metrics)
                summary[name] = values[len(values) // 2]
    summary["num_epochs"] = len(epochs)
    return summary


def run_dirs(folder: Path, file: str) -> Iterator[Path]:
    """Directories below `folder` that contain `file`, each once, in order of their names.

    Linked folders (for example on another disk) come after the others, unless `folder` lies in them. Folders whose name
    starts with a dot are no runs: an import first fills such a folder, and renames it at the end.
    """
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        for name, folders, files in os.walk(waiting.pop(0)):
            place = Path(name)
            if not _is_new(place, seen):
                folders.clear()
                continue
            inside = sorted(inner for inner in folders if not inner.startswith("."))
            links = {inner for inner in inside if (place / inner).is_symlink()}
            waiting += [place / inner for inner in sorted(links) if not _lies_in(folder, place / inner)]
            if file in files or file in folders:  # whoever reads a folder of that name says what is wrong
                yield place
            folders[:] = [inner for inner in inside if inner not in links]


def _is_new(place: Path, seen: set[tuple[int, int]]) -> bool:
    """Whether a folder was not seen before, also under another name; marks it as seen. Removed folders are not new."""
    try:
        status = place.stat()
    except OSError:
        return False
    known = (status.st_dev, status.st_ino)
    new = known not in seen
    seen.add(known)
    return new


def _lies_in(folder: Path, link: Path) -> bool:
    try:
        return folder.resolve().is_relative_to(link.resolve())
    except (OSError, RuntimeError):  # a loop of links
        return True
