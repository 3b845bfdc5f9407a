"""The program of every rank: `python -m gnnexp.worker RUN_DIR`; any launcher starts it.

It reads `RUN_DIR/job.json`, trains, and writes its result to `RUN_DIR/status/rank_<r>.json`. It does not depend on the
launcher: environment variables (torchrun's) give the rank, and the run directory has all other data.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError, Problem
from gnnexp.launchers.elsewhere import equip
from gnnexp.launchers.living import check_alone
from gnnexp.paradigms.base import trainer_of
from gnnexp.record.records import JOB_FILE, RESULT_FILE, load_result
from gnnexp.training.rank import as_rank, preload

if TYPE_CHECKING:  # torch is slow to import; it is imported after this process is tied to its launcher
    from gnnexp.comm.environment import Environment
    from gnnexp.experiment.experiment import Experiment
    from gnnexp.measure.phases import PhaseTimer
    from gnnexp.record.heartbeat import Heartbeat

__all__ = ["learn", "lesson", "main", "preload"]  # what `gnnexp.launchers.starter` calls
# torch's compiler. Ranks need it only for an optimizer of the user, or for one that torch has decorated in another way
# (`gnnexp.components.eager`). Importing it takes as long as importing torch.
_COMPILER = "torch._dynamo"


def main() -> int:
    """Run one rank; returns the exit code: 0 if it finished or was stopped, 2 for a user's mistake, 1 if it failed."""
    return as_rank(_run)


def lesson() -> str:
    """What this rank has loaded that later ranks will need, for `learn`: modules, and compiled kernels.

    DGL starts threads when it is imported, so that modules of a rank that has imported it are not named.
    """
    from gnnexp.kernels.lessons import loaded_kernels

    modules = (
        []
        if "dgl" in sys.modules
        else [name for name in sys.modules if name.startswith("gnnexp.") or name == _COMPILER]
    )
    return json.dumps({"modules": modules, "kernels": loaded_kernels()})


def learn(lesson: str) -> None:
    """Load what an earlier rank needed, before ranks are forked; starts no threads."""
    from gnnexp.kernels.lessons import load_kernels

    found = json.loads(lesson)
    for name in found["modules"]:
        import_module(name)
    load_kernels(found["kernels"])


def _run(run_dir: Path, environment: Environment, started: list[PhaseTimer], heartbeat: Heartbeat) -> str:
    """Train; returns who asked the run to stop, empty if it is finished."""
    from gnnexp.components.facts import GraphFacts
    from gnnexp.experiment.build import experiment_of
    from gnnexp.paradigms.external.command import external_command
    from gnnexp.provenance.code import code_of_config
    from gnnexp.record.records import EpochLog
    from gnnexp.training.assemble import Artifacts, assemble
    from gnnexp.training.result import note_ranks, write_result
    from gnnexp.training.train import probe_memory, train

    request = json.loads((run_dir / JOB_FILE).read_text())
    if _is_over(run_dir, environment):
        return ""
    code = code_of_config(request["config"])  # before its modules are imported, because later edits are not executed
    experiment = experiment_of(request["config"])
    _check_start(experiment, environment, prepared=request["graph"] is not None)
    command = external_command(experiment)
    if command is not None:
        from gnnexp.training.external import follow

        return follow(run_dir, request, experiment, command, environment, code, started, heartbeat)
    partition, presample, parts = (
        None if request.get(name) is None else Path(request[name]) for name in ("partition", "presample", "parts")
    )
    facts = GraphFacts.from_json(request["facts"]) if "facts" in request else None  # earlier versions wrote no facts
    artifacts = Artifacts(Path(request["graph"]), partition, presample, parts, facts, request.get("plan", ""))

    if experiment.train.count_only:
        from gnnexp.training.counting import count

        return count(run_dir, request, experiment, artifacts, environment, code, started, heartbeat)

    def watch(timer: PhaseTimer) -> None:
        started.append(timer)
        heartbeat.watch(timer)

    job = assemble(experiment, artifacts, run_dir, environment, watch)
    note_ranks(run_dir, job.comm, code)
    probed = probe_memory(job)
    trainer = trainer_of(job)
    stopped_by = train(job, trainer, EpochLog(run_dir, environment.rank), probed)
    if not stopped_by and environment.rank == 0:
        write_result(run_dir, request, job, trainer)
    job.timer.activity.stage = "end"
    del trainer  # NCCL's groups wait for captured graphs that use them
    job.store.finish()
    job.comm.close()
    return stopped_by


def _is_over(run_dir: Path, environment: Environment) -> bool:
    """Whether the run has finished before. The result of a failed attempt is removed: it is no longer true."""
    try:
        status = load_result(run_dir)["status"]
    except FileNotFoundError:
        return False
    if status != "finished" and environment.rank == 0:
        (run_dir / RESULT_FILE).unlink(missing_ok=True)
    return bool(status == "finished")


def _check_start(experiment: Experiment, environment: Environment, *, prepared: bool) -> None:
    """Check the data and the number of ranks, which another program than gnnexp may have started.

    Raises:
        ConfigError: the data is not prepared, or the number is not that of the run.
    """
    if not prepared:
        raise ConfigError(
            Problem("run", "not prepared", "its data is not prepared", "gnnexp prepare, or gnnexp resume")
        )
    hardware = experiment.processes
    if environment.num_ranks != hardware.num_ranks:
        raise ConfigError(
            Problem(
                "WORLD_SIZE",
                environment.num_ranks,
                f"the run has {hardware.nodes} nodes with {hardware.workers} ranks each",
                f"start {hardware.num_ranks} ranks, or prepare a run with other hardware.workers",
            )
        )


def _start() -> int:
    """Check the arguments, and run one rank with the environment variables of a worker."""
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / JOB_FILE).is_file():
        print(
            "gnnexp: python -m gnnexp.worker RUN_DIR: needs a run directory, which gnnexp prepare makes",
            file=sys.stderr,
        )
        return ConfigError.exit_code
    run_dir = Path(sys.argv[1])
    try:
        environment = read_environment()
        with suppress(OSError, ValueError):  # the rank itself reports a damaged file
            equip(run_dir, environment)
        check_alone(run_dir, environment.rank)
    except ConfigError as error:
        print(f"gnnexp: {error}", file=sys.stderr)
        return error.exit_code
    return main()


if __name__ == "__main__":
    sys.exit(_start())
