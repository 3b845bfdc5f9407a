"""What every rank executes: `python -m gnnexp.worker RUN_DIR`, started by any launcher.

Reads `RUN_DIR/job.json`, trains, and says how it went in `RUN_DIR/status/rank_<r>.json`. Nothing here knows who started
it: the environment says which rank this is (torchrun's variables), the run directory holds everything else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnexp.comm.environment import Environment, read_environment
from gnnexp.files.disk import EXIT_CODE
from gnnexp.launchers.parent import die_with_parent, import_from_here

if TYPE_CHECKING:  # heavy: torch is imported only after this process is tied to its launcher
    from gnnexp.job import Job
    from gnnexp.paradigms.base import Paradigm
    from gnnexp.provenance.code import Code
    from gnnexp.record.heartbeat import Heartbeat

# What a rank tells of its failure with must be there when memory is not.
PRELOADED = ("torch._dynamo", "gnnexp.training.train", "gnnexp.training.assemble", "gnnexp.record.heartbeat",
             "gnnexp.record.failure")


def main() -> int:
    """Run one rank; returns the exit code: 0 finished or stopped when asked to, 2 user's mistake, 1 failed."""
    return as_rank(_run)


def preload() -> None:
    """Load what every rank needs, before ranks are forked; no thread may be started (`gnnexp.launchers.starter`).

    torch imports its compiler when the first optimiser is made, numba its typing rules when the first kernel is called:
    half of all loading.
    """
    for name in PRELOADED:
        import_module(name)
    from gnnexp.kernels.counter import permutation
    from gnnexp.provenance.code import remember_loaded

    permutation(0, 2)
    remember_loaded()


def as_rank(work: Callable[[Path, Environment, list[Job], Heartbeat], str]) -> int:
    """Do `work` as a rank that a launcher started: tied to it, and telling it how it went; returns the exit code.

    Args:
        work: is given the run directory, this rank's place, where to put the job once it is assembled, and whom to tell
            what is timed; returns who asked it to stop, empty if it is over.
    """
    die_with_parent()
    import_from_here()
    run_dir, environment = Path(sys.argv[1]), read_environment()
    from gnnexp.record.heartbeat import Heartbeat

    heartbeat = Heartbeat(run_dir, environment)
    heartbeat.start()
    job: list[Job] = []
    try:
        stopped_by = work(run_dir, environment, job, heartbeat)
    except BaseException as error:
        from gnnexp.record.failure import describe

        failure = describe(error)
        with suppress(OSError):  # a full disk: the exit code says so
            heartbeat.last_word(
                "failed", phase=_failed_in(job), kind=failure.kind, reason=failure.reason, traceback=failure.trace,
                exit_code=failure.exit_code, needed_bytes=failure.needed_bytes,
                available_bytes=failure.available_bytes,
            )
        # A rank whose peers wait in a collective would hang in the process group's clean-up: leave at once.
        sys.stderr.flush()
        os._exit(failure.exit_code)
    try:
        heartbeat.last_word("stopped" if stopped_by else "finished", reason=stopped_by, exit_code=0)
    except OSError:
        return EXIT_CODE
    return 0


def _failed_in(job: list[Job]) -> str:
    """The stage of the run in which it failed; in training, the phase."""
    if not job:
        return "start"
    timer = job[0].timer
    stage = timer.activity.stage
    return stage if stage != "train" else timer.failed_in or stage


def _run(run_dir: Path, environment: Environment, started: list[Job], heartbeat: Heartbeat) -> str:
    """Empty if the run is over; else who asked it to stop."""
    from gnnexp.provenance.code import code_of_config
    from gnnexp.record.records import EpochLog
    from gnnexp.training.assemble import Artifacts, assemble
    from gnnexp.training.train import train

    request = json.loads((run_dir / "job.json").read_text())
    partition, presample, parts = (None if request.get(name) is None else Path(request[name])
                                   for name in ("partition", "presample", "parts"))
    artifacts = Artifacts(Path(request["graph"]), partition, presample, parts)
    code = code_of_config(request["config"])  # before its modules are imported: a later edit is not executed
    job, paradigm = assemble(request["config"], artifacts, run_dir, environment)
    started.append(job)
    heartbeat.watch(job.timer)
    note_ranks(run_dir, job, code)
    stopped_by = train(job, paradigm, EpochLog(run_dir, environment.rank))
    if not stopped_by and environment.rank == 0:
        write_result(run_dir, request, job, paradigm)
    job.timer.activity.stage = "end"
    job.comm.close()
    return stopped_by


def note_ranks(run_dir: Path, job: Job, code: Code) -> None:
    """Note on which machines the ranks of this attempt run, and which code they execute.

    Seconds belong to a kind of machine. Code may have been edited since the run was submitted, and a node of a cluster
    may see the edit later than another one: each code has a line, and a result of several is the result of none.
    """
    from gnnexp.provenance.machine import this_node
    from gnnexp.record.attempts import RANKS, note
    from gnnexp.record.records import read_epochs
    from gnnexp.training.checkpoint import checkpoint_folders

    ranks: Any = job.comm.gather_objects((this_node(), code.to_json()))
    if job.comm.rank == 0:
        from_start = not checkpoint_folders(run_dir) and not read_epochs(run_dir)
        codes = [code for place, (_, code) in enumerate(ranks) if code not in [other for _, other in ranks[:place]]]
        for place, one in enumerate(codes):
            nodes = dict.fromkeys(node for node, code in ranks if code == one)
            note(run_dir, RANKS, nodes=[node.to_json() for node in nodes], code=one,
                 from_start=from_start and place == 0)


def write_result(run_dir: Path, request: Mapping[str, Any], job: Job, paradigm: Paradigm[Any]) -> None:
    """`result.json` of a finished run."""
    from gnnexp.provenance.run_key import as_executed
    from gnnexp.record.attempts import codes_of, nodes_of, read_attempts
    from gnnexp.record.records import RESULT_FILE, read_epochs, summarize, write_json
    from gnnexp.training.best import describe_best

    epochs, attempts = read_epochs(run_dir), read_attempts(run_dir)
    summary = summarize(epochs, job.task.primary_metric)
    provenance = as_executed(request.get("provenance", {}), codes_of(attempts))
    write_json(
        run_dir / RESULT_FILE,
        {
            "schema": 1,
            "config": request["config"],
            "provenance": {**provenance, "chosen": {**job.facts, "draws": _draws(job)}},
            "partition": request.get("partition"),
            "quality": request.get("quality", {}),
            "presampled": request.get("presampled", []),
            "paradigm": {"exact": paradigm.exact, "approximates": paradigm.approximates, **paradigm.facts()},
            "notes": list(job.graph.notes),
            "nodes": nodes_of(attempts),
            "attempts": attempts,
            "epochs": epochs,
            "summary": summary,
            "best": describe_best(run_dir, epochs, summary),
            "status": "finished",
            "reason": "",
        },
    )


def _draws(job: Job) -> str:
    """Whether the global batch of one worker is that of N."""
    if not job.sampler.exact_key:
        return "by the sampler's own generator: another number of ranks draws other neighbours"
    if job.sampler.key == "micro":
        return "by seed, epoch, batch, rank, hop and vertex: another number of ranks draws other neighbours"
    return "by seed, epoch, batch, hop and vertex: the same for any number of ranks"


if __name__ == "__main__":
    sys.exit(main())
