"""The state of a run: saves it in checkpoints, and restores it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

from gnnexp.comm.slices import slices_of
from gnnexp.errors import DataError, Problem
from gnnexp.measure.record import RankRecord, losses_of_others, record_of
from gnnexp.paradigms.job import Job
from gnnexp.paradigms.trainer import Trainer
from gnnexp.record.records import EpochLog
from gnnexp.training.best import Best
from gnnexp.training.checkpoint import (
    FOLDER,
    Checkpoint,
    Position,
    latest_checkpoint,
    link_copied_best,
    open_checkpoint,
    point_best_or_say,
    remove_unfinished,
    save_checkpoint,
)
from gnnexp.training.interruption import StopRequest
from gnnexp.training.optimization import Optimization
from gnnexp.training.parameters import join, put, take

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartialEpoch:
    """This rank's record of the finished segments of an epoch. An epoch has several segments if it was stopped.

    Attributes:
        record: joined record of the segments; None before the first.
        resumed: one entry for each stop, with the step, the number of ranks before it, and `same_ranks`: whether this
            number stayed the same. If it changed, `record` has only the losses of earlier segments.
    """

    record: RankRecord | None = None
    resumed: tuple[Mapping[str, int], ...] = field(default_factory=tuple)

    def then(self, segment: RankRecord) -> PartialEpoch:
        """The record after one more segment."""
        return PartialEpoch(segment if self.record is None else self.record.joined(segment), self.resumed)


def _words(problem: Problem) -> tuple[str, object, str, str]:
    """A problem as ranks tell it to each other."""
    value = problem.value if isinstance(problem.value, int | float | str | None) else str(problem.value)
    return problem.key, value, problem.allowed, problem.fix


class RunState:
    """All state that changes during a run: model, optimizer, schedule, trainer state, record of the epoch.

    Args:
        job, trainer, optimization: objects of this rank.
    """

    def __init__(self, job: Job, trainer: Trainer[Any], optimization: Optimization) -> None:
        self._job, self._trainer, self._optimization = job, trainer, optimization
        self._train = job.experiment.train

    def save_if(
        self, request: StopRequest, position: Position, partial: PartialEpoch, best: Best, *, last: bool
    ) -> None:
        """Write a checkpoint if one is due: by `train.checkpoint_every`, for the best or last epoch, or on request."""
        every = self._train.checkpoint_every
        is_best = position == best.position
        due = position.step == 0 and every > 0 and (last or is_best or position.epoch % every == 0)
        if not due and request == StopRequest.NOTHING:
            return
        job = self._job
        own_state = self._trainer.own_state
        entries, slices = take(self._trainer.module, self._optimization.optimizer), slices_of(self._trainer.module)
        shared = {
            "parameters": {name: entry for name, entry in entries.items() if name not in slices},
            "best": asdict(best),
            "optimization": self._optimization.state_dict(),
        }
        own = {
            "parameters": {name: entries[name] for name in slices},
            "paradigm": {} if own_state is None else own_state.state_dict(),
            "rows": {} if job.trained_rows is None else job.trained_rows.state_dict(),
            "record": None if partial.record is None else asdict(partial.record),
            "resumed": [dict(segment) for segment in partial.resumed],
        }
        with job.timer.activity.during("checkpoint"):
            error = save_checkpoint(
                job.directory, job.comm, position, shared, own, self._train.checkpoints_kept, best=is_best
            )
        if error:
            logger.warning("no checkpoint at epoch %d, step %d: %s", position.epoch, position.step, error)

    def restore(self, log: EpochLog) -> tuple[Position, PartialEpoch, Best]:
        """Restore the latest complete checkpoint of the run directory. Without one, training begins at the start.

        Returns:
            The position where training resumes, the record of that epoch so far, and the best epoch before it.

        Raises:
            DataError: the checkpoint does not fit the model or the number of ranks, or records are missing.
        """
        checkpoint, problems = self._find(log)
        for problem in problems:
            logger.warning("a checkpoint cannot be used: %s", problem)
        if checkpoint is None:
            return Position(), PartialEpoch(), Best()
        self._restore_parameters(checkpoint)
        best = Best(**checkpoint.shared().get("best", {}))
        if self._job.comm.rank == 0 and checkpoint.position == best.position:
            point_best_or_say(self._job.directory, best.position)  # ranks may have been killed before the link was made
        return checkpoint.position, self._restore_own(checkpoint), best

    def _restore_parameters(self, checkpoint: Checkpoint) -> None:
        slices = slices_of(self._trainer.module)
        try:
            entries = dict(checkpoint.shared()["parameters"])
            if slices:
                segments = [checkpoint.of_rank(rank)["parameters"] for rank in range(checkpoint.num_ranks)]
                entries |= join(segments, slices)
            put(self._trainer.module, self._optimization.optimizer, entries)
            self._optimization.load_state_dict(checkpoint.shared().get("optimization", {}))
            if self._job.trained_rows is not None:
                # With the same number of ranks, rows are placed as before. Else any rank may have written this rank's.
                comm = self._job.comm
                writers = [comm.rank] if checkpoint.num_ranks == comm.size else range(checkpoint.num_ranks)
                self._job.trained_rows.load_pieces(checkpoint.of_rank(rank)["rows"] for rank in writers)
        except (KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            why = f"does not fit this model: {' '.join(str(error).split())[:300]}"
            fix = "resume with the run's own configuration"
            raise DataError(Problem(str(checkpoint.folder), "parameters", why, fix)) from None

    def _find(self, log: EpochLog) -> tuple[Checkpoint | None, list[Problem]]:
        """Rank 0 looks for the checkpoint, and all ranks get its answer or its error."""
        comm = self._job.comm
        checkpoint: Checkpoint | None = None
        passed_over, missing = list[Problem](), list[Problem]()
        if comm.rank == 0:
            remove_unfinished(self._job.directory)
            link_copied_best(self._job.directory)
            checkpoint, passed_over = latest_checkpoint(self._job.directory)
            position = Position() if checkpoint is None else checkpoint.position
            if log.num_epochs < position.epoch:
                missing.append(
                    Problem(
                        str(self._job.directory / "epochs.jsonl"),
                        log.num_epochs,
                        f"must hold the {position.epoch} epochs before the checkpoint",
                        "start a new run",
                    )
                )
        place, *told = comm.gather_objects(
            (
                None if checkpoint is None else astuple(checkpoint.position),
                [_words(problem) for problem in passed_over],
                [_words(problem) for problem in missing],
            )
        )[0]
        passed_over, missing = ([Problem(*words) for words in problems] for problems in told)
        DataError.raise_all(missing)
        if checkpoint is None and place is not None:
            checkpoint = open_checkpoint(self._job.directory / FOLDER / Position(*place).folder)
        return checkpoint, passed_over

    def _restore_own(self, checkpoint: Checkpoint) -> PartialEpoch:
        comm = self._job.comm
        same = checkpoint.num_ranks == comm.size
        own = checkpoint.of_rank(comm.rank) if same else checkpoint.of_rank(0)
        own_state = self._trainer.own_state
        if same and own_state is not None:
            own_state.load_state_dict(own["paradigm"])
        elif not same and own["paradigm"]:
            ranks = checkpoint.num_ranks
            why = f"each rank of this paradigm has its own state: the run can resume with {ranks} ranks only"
            raise DataError(Problem("hardware.workers", comm.size, why, "resume without changing workers"))
        if own["record"] is None:
            return PartialEpoch()
        if same:
            record: RankRecord | None = record_of(own["record"])
        else:
            segments = [record_of(checkpoint.of_rank(rank)["record"]) for rank in range(checkpoint.num_ranks)]
            record = losses_of_others(segments, comm.rank)
        stop = {"step": checkpoint.position.step, "ranks": checkpoint.num_ranks, "same_ranks": int(same)}
        return PartialEpoch(record, (*own["resumed"], stop))
