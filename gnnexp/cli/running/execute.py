"""One run from a checked configuration to its result: prepare, launch, deliver. The run directory is the record."""

from __future__ import annotations

import os
import platform
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from gnnexp.cli.console import EpochPrinter, describe_graph, describe_presample, marked
from gnnexp.cli.output import Answer
from gnnexp.cli.running.folders import run_dir_problems
from gnnexp.cli.running.place import Place
from gnnexp.cli.running.prepare import CheckedConfig, RunArtifacts, prepare
from gnnexp.cli.running.provenance import graph_sizes, make_provenance
from gnnexp.cli.running.store import prepare_store
from gnnexp.components.schema import HardwareConfig
from gnnexp.errors import ConfigError, DataError, Problem, Refusal
from gnnexp.experiment.build import tracker_of, train_of
from gnnexp.experiment.check import split_notes
from gnnexp.experiment.experiment import Experiment
from gnnexp.experiment.resolved import ResolvedConfig
from gnnexp.files.disk import appearing, one_line, refusal, subfolder
from gnnexp.files.private import remove_private
from gnnexp.launchers.base import Launcher, Launchers, Outcome
from gnnexp.launchers.interrupts import noted
from gnnexp.launchers.status import remove_unfinished_words
from gnnexp.preparation.artifacts import read_quality
from gnnexp.preparation.preflight import summary
from gnnexp.provenance.code import modules_of, refuse_edited
from gnnexp.provenance.deprecated import note_moved
from gnnexp.record.attempts import alone, note, read_attempts, restarts_spent
from gnnexp.record.ending import deliver, finalize_or_report, refused_by_disk, unwritten
from gnnexp.record.records import RESULT_FILE, write_json, write_text
from gnnexp.record.runs import RecordedRun, read_run
from gnnexp.reports import breakdown
from gnnexp.reports.comparison import make_table
from gnnexp.reports.tables.groups import group_runs, row_keys
from gnnexp.reports.tables.terminal import terminal_table
from gnnexp.trackers.base import Tracker
from gnnexp.trackers.delivery import read_delivery
from gnnexp.trackers.follow import Follower, Followers, start_delivery
from gnnexp.trackers.patience import Patience
from gnnexp.training.checkpoint import Position, checkpoint_folders, remove_unfinished

BREAKDOWN = Path("figures") / f"{breakdown.NAME}.csv"


def execute(checked: CheckedConfig, console: Console, launchers: Launchers) -> Outcome:
    """Run a checked configuration until it finishes or fails.

    Raises:
        ConfigError, DataError: a problem that was found before the run directory exists.
    """
    return carry_out(start_run(checked, console, None), checked.experiment, console, launchers)


def start_run(checked: CheckedConfig, console: Console, place: Place | None, *, here: bool = False) -> Path:
    """Prepare graph and partition, and make the run directory.

    Args:
        checked: the configuration and its experiment.
        console: where progress is shown.
        place: the place of the run in a sweep.
        here: whether the data is prepared here, although a job of the launcher could do that.

    Raises:
        ConfigError, DataError: a problem that was found before the run directory exists.
    """
    composed, experiment = checked
    note_moved(composed.config)
    if experiment.launcher.prepares and not here:
        run_dir = create_run(checked, None, place)
        console.print(f"run directory {run_dir}; a job prepares its data", soft_wrap=True)
        return run_dir
    started = time.perf_counter()
    prepared = prepare(experiment, composed.run_dir)
    seconds = time.perf_counter() - started
    console.print(
        marked(f"ready in {seconds:.1f} s", "dim", before=f"{describe_graph(prepared.graph)}  "), soft_wrap=True
    )
    for line in (*prepared.graph.notes, *split_notes(experiment, prepared.graph)):
        console.print(f"  note: {line}", soft_wrap=True)
    for presampled in prepared.presampled:
        console.print(f"  {describe_presample(presampled)}", soft_wrap=True)
    tell_preflight(prepared, console)
    run_dir = create_run(checked, prepared, place)
    console.print(f"run directory {run_dir}", soft_wrap=True)
    return run_dir


def tell_preflight(prepared: RunArtifacts, console: Console) -> None:
    """Print the needed memory in one line. If a run is tried in spite of shortages, print these as warnings."""
    if prepared.estimate is not None:
        console.print(summary(prepared.estimate), soft_wrap=True)
    for shortage in prepared.shortages:
        console.print(marked("warning", "yellow", f" {shortage}"), soft_wrap=True)


def carry_out(
    run_dir: Path, experiment: Experiment, console: Console, launchers: Launchers, followers: Followers | None = None
) -> Outcome:
    """Let ranks carry out the run in `run_dir`, follow them, and finalize the run.

    With `followers`, a process that has delivered earlier runs delivers this one, too.

    Raises:
        ConfigError: another process works on this run.
    """
    with alone(run_dir):
        follower = _followed(
            run_dir, experiment.tracker, console, start_delivery if followers is None else followers.follow
        )
        printer = EpochPrinter(console, run_dir)
        printer.start()
        options = experiment.config.group("hardware.launcher").text()
        outcome = _launched(
            run_dir,
            experiment.processes,
            console,
            launchers.of(experiment.launcher, options),
            printer,
        )
        if outcome.asked is not None and outcome.status != "interrupted":
            signal.raise_signal(outcome.asked)
        if outcome.status == "finished":
            break_down_or_say(run_dir)
        elif outcome.status != "submitted":
            remove_unfinished(run_dir)  # no rank needs it, and the disk may be full
        deliver_rest(follower, min(experiment.tracker.timeout_s, experiment.hardware.timeout_s), console)
    if outcome.status == "submitted":
        console.print(outcome.message, soft_wrap=True)
    elif outcome.message and not console.quiet:  # `gnnexp.run` raises it
        print(f"gnnexp: {outcome.message}", file=sys.stderr)
        if run_dir.is_dir():
            print(f"logs: {run_dir / 'logs'}", file=sys.stderr)
        if outcome.kind != "mistake" and "gnnexp resume" not in outcome.message:
            print(f"go on with: gnnexp resume {shlex.quote(str(run_dir))}", file=sys.stderr)
    return outcome


def _launched(
    run_dir: Path, hardware: HardwareConfig, console: Console, launcher: Launcher, printer: EpochPrinter
) -> Outcome:
    """Launch the ranks and finalize the run. A launch that fails is repeated, up to `hardware.max_restarts` times.

    The end is recorded even if a stop signal arrives in the meantime: `Outcome.asked` passes the signal on.
    """
    spent = 0
    while True:
        try:
            note(run_dir, "start", ranks=hardware.num_ranks, host=platform.node(), pid=os.getpid(), restarts=spent)
            outcome = launcher.launch(run_dir, hardware)
        except KeyboardInterrupt:
            said = "interrupted while its ranks were started"
            outcome = Outcome(130, "interrupted", said, said, "interrupted")
        except OSError as error:
            outcome = refused_by_disk(run_dir, error)
        with noted() as asked:
            spent = restarts_spent(run_dir)  # a job script may also have restarted the run
            try:
                note(run_dir, "end", status=outcome.status, kind=outcome.kind, reason=outcome.reason)
            except OSError as error:
                outcome = unwritten(run_dir, outcome, error)
            wish = outcome.asked or asked.first
            if wish is not None or not outcome.may_be_repeated or spent >= hardware.max_restarts:
                printer.close()
                ended = outcome if outcome.status == "submitted" else finalize_or_report(run_dir, outcome)
                return replace(ended, asked=wish or asked.first)
        spent += 1
        console.print(
            marked(
                outcome.reason,
                "yellow",
                f"; starting again from the last checkpoint, {hardware.max_restarts - spent} restarts left",
            ),
            soft_wrap=True,
        )


def create_run(checked: CheckedConfig, prepared: RunArtifacts | None, place: Place | None) -> Path:
    """Make the run directory with `config.yaml` and `job.json`, which contain all that the ranks need.

    Without prepared data, these files are not complete: a job completes them before the ranks start.

    Raises:
        ConfigError: the directory exists already or cannot be made.
    """
    composed, experiment = checked
    run_dir = composed.run_dir
    refuse_edited(modules_of(composed.config))  # prepared files were made by the imported code
    partition = None if prepared is None or prepared.partition is None else str(prepared.partition)
    key = experiment.dataset.key() if prepared is None else prepared.key
    provenance = make_provenance(checked, key, partition, place)
    try:
        with appearing(run_dir) as folder:
            write_job(folder, experiment.config, prepared, provenance)
    except (OSError, ValueError) as error:
        problems = run_dir_problems(run_dir)
        if not problems and isinstance(error, OSError) and refusal(error) is not None:
            raise
        raise ConfigError(
            problems
            or Problem(
                "hydra.run.dir",
                str(run_dir),
                f"cannot be made: {error}",
                "hydra.run.dir=<a folder that you may write to>",
            )
        ) from None
    return run_dir


def write_job(
    run_dir: Path, config: ResolvedConfig, prepared: RunArtifacts | None, provenance: Mapping[str, Any]
) -> None:
    """Write `config.yaml` for readers and `job.json` for the ranks. Without prepared data, no rank can start."""
    write_text(run_dir / "config.yaml", yaml.safe_dump(dict(config.mapping), sort_keys=False))
    artifacts: Mapping[str, Any] = dict.fromkeys(("graph", "partition", "presample"))
    if prepared is not None:
        provenance = {**provenance, "graph": graph_sizes(prepared.graph)}
        folders = {"partition": prepared.partition, "parts": prepared.parts, "presample": prepared.presample}
        artifacts = {
            "graph": str(prepared.folder),
            "facts": asdict(prepared.facts),
            "plan": prepared.plan.digest,
            **{name: None if folder is None else str(folder) for name, folder in folders.items()},
        }
    quality = {} if prepared is None or prepared.partition is None else read_quality(prepared.partition)
    presampled = [] if prepared is None else list(prepared.presampled)
    job = {"config": config.mapping, **artifacts, "quality": quality, "presampled": presampled}
    write_json(run_dir / "job.json", {"schema": 1, **job, "provenance": provenance})


def break_down(run_dir: Path) -> None:
    """Write the table of the run's phases. To draw it would take as long as a short epoch: `gnnexp report` does."""
    breakdown.write_breakdown(read_run(run_dir), subfolder(run_dir, BREAKDOWN.parent.name))


def break_down_or_say(run_dir: Path) -> None:
    """Write the table of the run's phases. A full disk is only reported: the run has finished in any case."""
    try:
        break_down(run_dir)
    except OSError as error:
        if (problem := refusal(error, f"gnnexp resume {run_dir}")) is None:
            raise
        print(f"gnnexp: {problem}", file=sys.stderr)


def complete(run_dir: Path, tracker: Tracker, patience: Patience | None = None) -> None:
    """Do what a launcher killed after `result.json` left undone: write the breakdown, tidy up, deliver the run.

    Secrets are removed, and unfinished files of ranks that died with the launcher.

    An imported run was not launched here, so it has no attempts and gets no breakdown.
    """
    if read_attempts(run_dir) and not (run_dir / BREAKDOWN).exists():
        break_down_or_say(run_dir)
    remove_private(run_dir)
    remove_unfinished_words(run_dir)
    deliver(run_dir, tracker, patience)


def lost_model(run: RecordedRun) -> str:
    """What is missing if the last checkpoint of a finished run could not be written; empty if nothing is missing.

    An external command keeps its own checkpoints.
    """
    train, latest = train_of(run.config), next(iter(checkpoint_folders(run.path)), run.path).name
    if (
        not train.checkpoint_every
        or train.count_only
        or latest == Position(len(run.epochs)).folder
        or "external" in run.facts
    ):
        return ""
    return (
        "no checkpoint of the last epoch could be written, so its model is lost; "
        f"why: {run.path / 'logs' / 'rank_0.log'}"
    )


def tell_result(run_dir: Path, console: Console) -> None:
    """Show the result of a finished run, and where its files are."""
    run = read_run(run_dir)
    if lost := lost_model(run):
        console.print(marked("warning", "yellow", f" {lost}"), soft_wrap=True)
    keys = row_keys([run], ("system", "dataset", "model"))
    console.print(terminal_table(make_table(group_runs([run], keys), keys), console.width))
    store = tracker_of(run.config).where()
    delivered = store and read_delivery(run_dir, store).done
    console.print(f"result: {run_dir / RESULT_FILE}" + ("   dashboard: gnnexp ui" if delivered else ""), soft_wrap=True)


def answer_of(run_dir: Path, outcome: Outcome) -> Answer:
    """How a run ended, for `--json`. A run that was submitted, or whose record could not be written, has no summary."""
    summary = None
    with suppress(DataError):
        summary = dict(read_run(run_dir).summary)
    return Answer(
        {
            "run_dir": str(run_dir),
            "status": outcome.status,
            "reason": outcome.reason,
            "exit_code": outcome.exit_code,
            "summary": summary,
        },
        outcome.exit_code,
    )


def _followed(run_dir: Path, tracker: Tracker, console: Console, follow: Callable[[Path], Follower]) -> Follower | None:
    """Start the delivery of a run, if its tracker delivers anywhere. Before that, its store is made complete."""
    if not tracker.where():
        return None
    try:
        if not (away := prepare_store(tracker, console)):
            return follow(run_dir)
    except OSError as error:
        if (problem := refusal(error)) is None:
            raise
        away = Refusal(one_line(problem))
    console.print(
        marked("tracking is away", "yellow", f" ({away}); deliver the records later with: gnnexp report --sync"),
        soft_wrap=True,
    )
    return None


def deliver_rest(follower: Follower | None, timeout_s: float, console: Console) -> None:
    """Wait at most `timeout_s` until the tracker has everything, and print a warning if it does not, also if quiet."""
    if follower is None:
        return
    if not follower.run_dir.is_dir():  # moved: when the run is resumed, the rest is delivered from its new place
        follower.stop()
        return
    reason = follower.finish(timeout_s)
    if reason:
        warning = marked(
            "tracking is away",
            "yellow",
            f" ({reason}); the records are in {follower.run_dir}, deliver them later with: gnnexp report --sync",
        )
        if console.quiet:  # `gnnexp.run`
            print(f"gnnexp: {warning.plain}", file=sys.stderr)
        else:
            console.print(warning, soft_wrap=True)
