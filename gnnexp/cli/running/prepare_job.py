"""The job that prepares the data of submitted runs: `python -m gnnexp.cli.running.prepare_job LISTED TOKEN`.

A run whose data cannot be prepared gets a note, and its ranks do not start. The other runs continue.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gnnexp.cli.running.execute import write_job
from gnnexp.cli.running.prepare import prepare
from gnnexp.cli.runs import read_job
from gnnexp.errors import DataError, Problem
from gnnexp.experiment.build import experiment_of
from gnnexp.experiment.check import split_notes
from gnnexp.launchers.parent import import_from_here
from gnnexp.launchers.queue.preparation import NOT_PREPARED, is_ready
from gnnexp.launchers.queue.slurm_jobs import is_of_run
from gnnexp.record.attempts import note
from gnnexp.record.failure import failure_of


def main(listed: Path, token: str) -> int:
    """Prepare all runs of this submission; the exit code is 0 if the ranks of at least one can start."""
    import_from_here()
    run_dirs = [Path(line) for line in listed.read_text(encoding="utf-8").splitlines()]
    for run_dir in run_dirs:
        if is_of_run(run_dir, token):
            _prepare(run_dir)
    return 0 if any(map(is_ready, run_dirs)) else 1


def _prepare(run_dir: Path) -> None:
    print(f"gnnexp: preparing {run_dir}", flush=True)
    try:
        job = read_job(run_dir)
        experiment = experiment_of(job["config"])
        prepared = prepare(experiment, run_dir / "checkpoints")
        planned = job["provenance"]["dataset_key"]
        if prepared.key != planned:
            raise DataError(
                Problem(
                    "dataset",
                    prepared.key,
                    f"is not the data that this run was made for ({planned})",
                    "bring that data back, or start a new run",
                )
            )
        for said in split_notes(experiment, prepared.graph):
            print(f"note: {said}", flush=True)
        write_job(run_dir, experiment.config, prepared, job["provenance"])
    except Exception as error:  # as in a sweep: a user's own dataset may have a mistake
        failure = failure_of(error)
        print(failure.trace or failure.reason, file=sys.stderr, flush=True)
        note(run_dir, NOT_PREPARED, kind=failure.kind, reason=f"the data could not be prepared: {failure.reason}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
