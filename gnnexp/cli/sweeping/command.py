"""Shared parts of `gnnexp sweep` and `gnnexp run -m`: options, the way cases are run, the report at the end."""

from __future__ import annotations

import argparse
import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gnnexp.cli.commands.report import of_sweep, show
from gnnexp.cli.console import made_table, marked
from gnnexp.cli.main import print_problems
from gnnexp.cli.output import Answer
from gnnexp.cli.running.folders import folder_problems, run_dir_problems
from gnnexp.cli.running.prepare import CheckedConfig
from gnnexp.cli.running.provenance import source_words, with_root
from gnnexp.cli.sweeping.case import CaseState, QueuedCase
from gnnexp.cli.sweeping.known_runs import ReuseRules, all_there, planned
from gnnexp.cli.sweeping.queue import Executor, OneByOne, Queue, begun_jobs, state_content
from gnnexp.cli.sweeping.side_by_side import SideBySide, make_slots
from gnnexp.cli.sweeping.submitted import ArrayExecutor, submits
from gnnexp.errors import ConfigError, DataError, Problem, ProblemsError
from gnnexp.experiment.check import graph_problems
from gnnexp.experiment.seen import facts_of
from gnnexp.files.cache import cache_root
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import open_graph
from gnnexp.launchers.base import Launchers
from gnnexp.preparation.artifacts import graph_folder
from gnnexp.preparation.preflight import as_text, estimate_memory
from gnnexp.provenance.machine import this_node
from gnnexp.record.records import RESULT_FILE
from gnnexp.reports.sweep_runs import ran_here
from gnnexp.trackers.delivery import read_delivery


def check_options(options: argparse.Namespace) -> None:
    """Check the options themselves.

    Raises:
        ConfigError: an option is wrong.
    """
    if (getattr(options, "retries", None) or 0) < 0:
        raise ConfigError(Problem("--retries", options.retries, "must be 0 or more", "--retries 2"))
    problems = [] if options.jobs >= 1 else [Problem("--jobs", options.jobs, "must be at least 1", "--jobs 2")]
    ConfigError.raise_all(problems + (folder_problems("--out", Path(options.out)) if options.out else []))


def command_of(options: argparse.Namespace, words: Sequence[str]) -> str:
    """The command that makes the same sweep again, whatever its state is."""
    return with_root(shlex.join(["gnnexp", *words, *source_words(options.config_dir, options.config_name)]))


def reuse_rules_of(options: argparse.Namespace) -> ReuseRules:
    """Which existing runs count for the sweep."""
    return ReuseRules(
        options.accept_foreign,
        all_there() if options.rerun else frozenset(),
        changed_code=options.changed_code,
        same_code=options.same_code,
    )


def add_and_work(
    queue: Queue,
    labelled: Sequence[tuple[str, CheckedConfig | ProblemsError]],
    options: argparse.Namespace,
    launchers: Launchers,
) -> None:
    """Plan more cases, show the plan, and run the remaining ones. A case with mistakes has failed."""
    sweep, first = queue.sweep, len(queue.states)
    cases = [
        QueuedCase(sweep.name, sweep.command, checked, CaseState(label))
        for label, checked in labelled
        if isinstance(checked, CheckedConfig)
    ]
    executor = _executor(queue, cases, options.jobs, launchers)
    cases = planned(cases, queue.reuse)
    coming = iter(cases)
    for label, checked in labelled:
        if isinstance(checked, ProblemsError):
            queue.states.append(_wrong(CaseState(label), checked))
        else:
            queue.add(_with_room(next(coming)))
        queue.refused += queue.states[-1].status == "failed" and not queue.states[-1].run_dir
    launchers.controller.watch(begun_jobs(cases))
    _tell_plan(queue, cases)
    if not options.dry_run:
        queue.work(executor, first)


def _with_room(case: QueuedCase) -> QueuedCase:
    """The case, marked as failed if it would begin in a directory that exists or cannot be made."""
    begins = case.state.status == "waiting" and not case.state.run_dir
    problems = run_dir_problems(case.checked.composed.run_dir) if begins else []
    return replace(case, state=_wrong(case.state, ConfigError(problems))) if problems else case


def _wrong(state: CaseState, error: ProblemsError) -> CaseState:
    print_problems(error)
    return replace(state, status="failed", reason=str(error.problems[0]).splitlines()[0])


def _executor(queue: Queue, cases: Sequence[QueuedCase], jobs: int, launchers: Launchers) -> Executor:
    """The executor for the cases: in a cluster's queue, side by side, or one by one.

    Raises:
        ConfigError: the machine is too small for this number of cases at a time.
    """
    experiments = [case.experiment for case in cases]
    queue.reuse = replace(queue.reuse, node=this_node())
    if all(submits(experiment) for experiment in experiments):
        return ArrayExecutor(launchers, queue.console)
    if jobs == 1:
        return OneByOne(launchers, queue.console)
    slots = make_slots(jobs, experiments)
    queue.reuse = replace(queue.reuse, node=slots[0].node)
    return SideBySide(queue.sweep.name, slots)


def check_added(planned_first: Sequence[CheckedConfig], added: Sequence[CheckedConfig], jobs: int) -> None:
    """Whether cases that an edited file adds can go to the executor that the sweep began with.

    Raises:
        ConfigError: they need more than its slots have, or do not run where the others run.
    """
    if all(submits(config.experiment) for config in planned_first):
        here = [config.composed.run_dir for config in added if not submits(config.experiment)]
        what = "does not run in the cluster's queue, as the sweep's other cases do"
        ConfigError.raise_all(
            [Problem("hardware.launcher", name, what, "make a sweep of its own for such cases") for name in here]
        )
    elif jobs > 1:
        make_slots(jobs, [config.experiment for config in added])


def finish_sweep(queue: Queue, options: argparse.Namespace) -> Answer:
    """Show the states of the cases and the report. The exit code is 0 only if all cases finished.

    With `--dry-run`, it is 2 if a case has mistakes.
    """
    console, sweep, states = queue.console, queue.sweep, queue.states
    rows = [(state.label, _standing(state), _reason(state)) for state in states]
    console.print(made_table(("run", "state", "directory or reason"), rows, f"sweep {sweep.name}"))
    cases = [
        {
            "label": state.label,
            "state": _standing(state),
            "run_dir": state.run_dir,
            "reason": state.reason,
            "attempts": list(state.attempts),
        }
        for state in states
    ]
    document = {"sweep": sweep.name, "cases": cases}
    if options.dry_run:
        return Answer(document, 2 if queue.refused else 0)
    counted = Counter(state.status for state in states)
    console.print(", ".join(f"{count} {status}" for status, count in counted.items()))
    for where, count in waiting_for_store(queue).items():
        console.print(
            marked(
                f"{count} of the runs are not delivered",
                "yellow",
                f" to {where}; deliver them later with: gnnexp report --sync",
            ),
            soft_wrap=True,
        )
    if counted["submitted"]:
        console.print(f"when the jobs have ended: {sweep.command}, runs the remaining cases, and makes the report")
        return Answer(document)
    report = show(
        console,
        of_sweep(sweep.name, ran_here(state_content(sweep, states))),
        Path(options.out) if options.out else None,
    )
    done = counted["finished"] + counted["finished before"] + counted["removed"] == len(states)
    return Answer({**document, "report": report.document}, 130 if counted["interrupted"] else 0 if done else 1)


def _reason(state: CaseState) -> str:
    """Why a case failed, with the reasons of earlier attempts; else where its run is."""
    last = state.reason or state.run_dir
    if not state.attempts:
        return last
    failures = "; ".join(f"attempt {number}: {reason}" for number, reason in enumerate(state.attempts, 1))
    return f"{last} ({failures})"


def waiting_for_store(queue: Queue) -> Counter[str]:
    """How many runs of the queue that have ended are not delivered, by the store that should have them."""
    found = Counter[str]()
    for position in queue.cases:
        run_dir = Path(queue.states[position].run_dir)
        if queue.states[position].run_dir and os.path.lexists(run_dir / RESULT_FILE):
            where = queue.case(position).experiment.tracker.where()
            found[where] += bool(where) and not _is_delivered(run_dir, where)
    return +found


def _is_delivered(run_dir: Path, where: str) -> bool:
    """Whether the store has the run. If this cannot be read, `gnnexp report --sync` says what is damaged."""
    try:
        return read_delivery(run_dir, where).done
    except DataError:
        return False


def _standing(state: CaseState) -> str:
    return "to be continued" if state.status == "waiting" and state.run_dir else state.status


def _tell_plan(queue: Queue, cases: Sequence[QueuedCase]) -> None:
    """Print how many cases there are, how many are done, and how much disk they need."""
    waiting = [case for case in cases if case.state.status == "waiting"]
    begun = sum(bool(case.state.run_dir) for case in waiting)
    total, unknown = _disk_of(waiting)
    written = sizes_in_words(total, unknown)
    foreign = sum("--accept-foreign" in case.state.reason for case in waiting)
    runs = f"{len(cases)} runs, {len(cases) - len(waiting)} finished before, {begun} to be continued"
    runs += f", {foreign} made on another kind of machine (--accept-foreign takes them)" if foreign else ""
    older = sum("--changed-code" in case.state.reason for case in waiting)
    runs += f", {older} finished with an earlier gnnexp (--changed-code takes them)" if older else ""
    queue.console.print(f"sweep {queue.sweep.name}: {runs}; {written}. {queue.sweep.description}", soft_wrap=True)
    if made_by := Counter(case.made_by for case in cases if case.made_by):
        queue.console.print(
            f"{made_by.total()} of the finished runs were made by other code of gnnexp ("
            f"{', '.join(made_by)}): --same-code makes them again",
            soft_wrap=True,
        )


def sizes_in_words(total: int, unknown: int) -> str:
    """Bytes that runs will write, where they are known, and the number of runs where they are not."""
    known = [f"about {as_text(total)} on disk"] if total or not unknown else []
    not_known = [f"{unknown} run{'s' * (unknown > 1)} whose data is not prepared"] if unknown else []
    return " and ".join([*known, *not_known])


def _disk_of(cases: Sequence[QueuedCase]) -> tuple[int, int]:
    """Estimated bytes that these runs will write, and how many runs have no estimate since their data is missing."""
    graphs: dict[str, Graph | None] = {}
    total = unknown = 0
    for experiment in (case.experiment for case in cases):
        node = experiment.config.group("dataset").text()
        if node not in graphs:
            folder = graph_folder(experiment.dataset, cache_root())
            graphs[node] = open_graph(folder) if folder.exists() else None
        graph = graphs[node]
        facts = None if graph is None else facts_of(experiment, graph)
        if graph is None or facts is None or graph_problems(experiment, graph, facts):
            unknown += 1
        else:
            total += estimate_memory(experiment, facts, experiment.paradigm.plan(experiment, facts), 0).total("disk")
    return total, unknown
