"""A run as a user's Python sees it. It is read from its directory whenever an attribute is used."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.api.frames import make_frame
from gnnexp.cli.runs import read_job
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import read_json
from gnnexp.launchers.queue.slurm_jobs import read_job_id
from gnnexp.provenance.older import as_today
from gnnexp.record import runs as records
from gnnexp.record.attempts import is_held
from gnnexp.record.records import RESULT_FILE, load_result, read_epochs, unreadable
from gnnexp.trackers.delivery import RunRecord
from gnnexp.trackers.figures import main_figures
from gnnexp.training.checkpoint import BEST, FOLDER, META, Position

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class BestModel:
    """The model that tables report: that of the best validation epoch.

    Attributes:
        epoch: number of the epoch, from 0.
        checkpoint: folder of the checkpoint that holds the model; None if none does (`train.checkpoint_every=0`, a full
            disk, a damaged checkpoint).
    """

    epoch: int
    checkpoint: Path | None


@dataclass(frozen=True)
class Run:
    """A run in its directory. `gnnexp.Run("runs/...")` gives an earlier one.

    Attributes:
        run_dir: the run directory.
    """

    run_dir: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "run_dir", Path(self.run_dir).absolute())
        read_job(self.run_dir)

    @property
    def status(self) -> str:
        """`finished`, `failed` (or interrupted), `running`, `submitted` to SLURM, or `stopped`.

        A run that stopped has no result. `gnnexp resume` continues a run that failed or stopped.
        """
        ended = records.read_run(self.run_dir).status if self._has_result else ""
        if ended == "finished":
            return ended
        if is_held(self.run_dir):
            return "running"
        return ended or ("stopped" if read_job_id(self.run_dir) is None else "submitted")

    @property
    def reason(self) -> str:
        """Why the run failed; empty if it did not."""
        return records.read_run(self.run_dir).reason if self._has_result else ""

    @property
    def config(self) -> Mapping[str, Any]:
        """The resolved configuration: groups, and below them options."""
        return as_today(read_job(self.run_dir)["config"])

    @property
    def best(self) -> BestModel | None:
        """The model of the best validation epoch so far; None if the run was not evaluated."""
        return best_model_of(self.run_dir)

    @property
    def metrics(self) -> dict[str, float]:
        """The main figures, with the names and units of `gnnexp.runs`. Empty before the run has ended."""
        return main_figures_of(records.read_run(self.run_dir)) if self._has_result else {}

    @property
    def epochs(self) -> DataFrame:
        """A row for each epoch so far, with all metrics of the record (docs/record.md)."""
        lines = read_epochs(self.run_dir)
        numbers = [int(line["epoch"]) for line in lines]
        return make_frame([line["metrics"] for line in lines], index=numbers, named="epoch")

    @property
    def _has_result(self) -> bool:
        return os.path.lexists(self.run_dir / RESULT_FILE)


def main_figures_of(run: records.RecordedRun) -> dict[str, float]:
    """The main figures of a run that has ended; only those that were recorded.

    `val` and `test` are the task's metric (0 to 1; `mse`, `mae` and `r2` as they are) at the epoch `best_epoch`.
    `epoch_s`, `sent_MB`, `host_MB` and `device_MB` are those of the dashboard (`trackers.description.main_figures`).
    """
    record = RunRecord(
        {"config": run.config}, [{"metrics": metrics} for metrics in run.epochs], {"summary": run.summary}
    )
    shown = {name.partition("/")[2]: value for name, value in main_figures(record).items()}
    value = run.best("val")[1]
    best = {"best_epoch": int(run.summary["best_epoch"])} if "best_epoch" in run.summary else {}
    return {"epochs": len(run.epochs), **best, **({} if math.isnan(value) else {"val": value}), **shown}


def best_model_of(run_dir: Path) -> BestModel | None:
    """The model of the best validation epoch; None if no epoch was evaluated.

    A finished run names it in `result.json`. For any other run, `checkpoints/best` is a link to its checkpoint, or a
    copy of it if the run was copied (`scp -r`).

    Raises:
        DataError: `result.json` or the checkpoint is damaged.
    """
    try:
        result = load_result(run_dir) if os.path.lexists(run_dir / RESULT_FILE) else {}
    except (OSError, ValueError) as error:
        raise DataError(unreadable(run_dir / RESULT_FILE, error)) from None
    named = result.get("best")
    if isinstance(named, Mapping):
        if not isinstance(epoch := named.get("epoch"), int):
            return None
        folder = run_dir / FOLDER / Position(epoch + 1).folder
        return BestModel(epoch, folder if named.get("checkpoint") else None)
    link = run_dir / FOLDER / BEST
    if not link.exists():
        return None
    try:
        epoch = int(read_json(link / META)["position"]["epoch"])  # type: ignore[index]
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = Problem(str(link / META), type(error).__name__, "must describe a checkpoint", "make the run again")
        raise DataError(problem) from None
    return BestModel(epoch - 1, link.with_name(Position(epoch).folder))
