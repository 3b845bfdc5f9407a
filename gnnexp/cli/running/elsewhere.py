"""`gnnexp prepare` and `gnnexp finalize`: the two ends of a run whose ranks another program starts."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from gnnexp.cli.commands.resume import check_no_job, refuse_imported
from gnnexp.cli.console import make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.running.execute import answer_of, break_down_or_say, complete, start_run, tell_result
from gnnexp.cli.running.prepare import checked_config
from gnnexp.cli.runs import named_run, read_job
from gnnexp.components.schema import HardwareConfig
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.experiment.build import hardware_of_processes, tracker_of
from gnnexp.launchers.base import Outcome
from gnnexp.launchers.elsewhere import end_of_ranks, hand_over, start_command
from gnnexp.launchers.living import check_silent, is_recorded
from gnnexp.launchers.status import read_statuses, remove_unfinished_words
from gnnexp.record.attempts import alone
from gnnexp.record.ending import deliver, end_attempt
from gnnexp.record.owner import check_own
from gnnexp.record.runs import read_run
from gnnexp.trackers.delivery import reopen
from gnnexp.training.checkpoint import remove_unfinished


def prepare_run(options: argparse.Namespace) -> Answer:
    """Check a run, prepare its data, and make its run directory. No rank is started.

    Raises:
        ConfigError, DataError: the run could not start.
    """
    checked, console = checked_config(options.overrides, options.config_dir, options.config_name), make_console()
    experiment, run_dir = checked.experiment, start_run(checked, console, None, here=True)
    console.print(hand_over(run_dir, experiment.hardware), soft_wrap=True, markup=False, highlight=False)
    return Answer(
        {"run_dir": str(run_dir), "ranks": experiment.num_ranks, "command": start_command(run_dir, experiment.hardware)}
    )


def finalize_run(options: argparse.Namespace) -> Answer:
    """Record how the run ended, deliver it to its tracker, and show the result. The exit code is that of the run.

    Raises:
        ConfigError: it is no run, no rank has started, or a rank is alive.
    """
    run_dir, console = named_run(options.run), make_console()
    job = read_job(run_dir)
    refuse_imported(run_dir, job)
    if not options.trust:
        check_own(run_dir, "would execute the tracker that its configuration names", "gnnexp finalize --trust")
    with alone(run_dir):
        outcome = _ended(run_dir, hardware_of_processes(job["config"]))
        if outcome.status == "finished":
            complete(run_dir, tracker_of(job["config"]))
        else:
            deliver(run_dir, tracker_of(job["config"]))
    if outcome.status == "finished":
        tell_result(run_dir, console)
    else:
        again = f"gnnexp resume {shlex.quote(str(run_dir))}"  # the end removed the secret: ranks cannot just start
        print(
            f"gnnexp: {outcome.message}"
            + ("" if outcome.kind == "mistake" else f"\ngo on from the last checkpoint: {again}"),
            file=sys.stderr,
        )
    return answer_of(run_dir, outcome)


def _ended(run_dir: Path, hardware: HardwareConfig) -> Outcome:
    """How the run ended, which is recorded unless it was recorded before."""
    check_no_job(run_dir)
    check_silent(run_dir)
    if is_recorded(run_dir) and (recorded := _recorded(run_dir)) is not None:
        return recorded
    if not read_statuses(run_dir):
        raise ConfigError(
            Problem(
                "run", str(run_dir), "no rank of it has started", f"start its ranks: {start_command(run_dir, hardware)}"
            )
        )
    remove_unfinished_words(run_dir)
    reopen(run_dir)  # an earlier end may have been delivered
    outcome = end_attempt(run_dir, end_of_ranks(run_dir, hardware.num_ranks))
    if outcome.status == "finished":
        break_down_or_say(run_dir)
    else:
        remove_unfinished(run_dir)
    return outcome


def _recorded(run_dir: Path) -> Outcome | None:
    """The end that `result.json` has; None if a full disk did not accept it."""
    try:
        run = read_run(run_dir)
    except DataError:
        return None
    if run.status == "finished":
        return Outcome(0, "finished")
    code = ConfigError.exit_code if run.kind == "mistake" else 1
    return Outcome(code, "failed", run.reason, run.reason, run.kind)
