"""A sweep on a cluster: all cases prepared, submitted as job arrays, and followed together."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gnnexp.cli.running.execute import draw_or_say
from gnnexp.cli.sweeping.cases import State, begun_jobs, broken, ended, ready, refused
from gnnexp.cli.sweeping.definition import Sweep
from gnnexp.cli.sweeping.known_runs import Looking
from gnnexp.cli.sweeping.once import not_started, turn_of
from gnnexp.config.compose import Composed
from gnnexp.errors import ProblemsError, RunError
from gnnexp.experiment.build import experiment_of
from gnnexp.experiment.experiment import Experiment
from gnnexp.files.disk import DiskError, in_words
from gnnexp.launchers.queue.controller import Controller
from gnnexp.launchers.queue.slurm_jobs import cancel
from gnnexp.launchers.slurm import SlurmLauncher, following
from gnnexp.record.attempts import note
from gnnexp.record.ending import deliver, end_attempt
from gnnexp.training.checkpoint import remove_unfinished

_POLL_S = 2.0


def submits(composed: Composed) -> bool:
    """Whether the case is for a cluster's queue."""
    return isinstance(experiment_of(composed.config).launcher, SlurmLauncher)


def run_submitted(
    sweep: Sweep, composed: Sequence[Composed], states: list[State], console: Console,
    save: Callable[[list[State]], None], looking: Looking,
) -> list[State]:
    """Submit the waiting cases, one array for each kind of job, and follow them unless `hardware.detach`."""
    states, experiments = list(states), [experiment_of(one.config) for one in composed]
    controller = Controller()
    controller.watch(begun_jobs(states))
    with ExitStack() as turns:  # until it is known which job works on a run, no other sweep may start it
        alike = _ready_alike(sweep, composed, experiments, states, console, looking, turns, controller)
        save(states)
        jobs = _submit(experiments, states, alike, console)
    save(states)
    if any(one.hardware.detach for one in experiments):
        return states
    controller.submitted(jobs.values())
    try:
        return _follow(experiments, states, jobs, console, save, controller)
    except KeyboardInterrupt:
        return _cancelled(states, jobs)


def _cancelled(states: list[State], jobs: Mapping[int, str]) -> list[State]:
    """The states after Ctrl-C; jobs whose cancellation SLURM does not take stay submitted."""
    left = [job_id for position, job_id in jobs.items() if states[position].status == "submitted"]
    try:
        if left:
            cancel(*left)
    except RunError as error:
        print(f"gnnexp: {error}: these jobs may go on; gnnexp cancel RUN_DIR ends one", file=sys.stderr)
        return states
    return [replace(state, status="interrupted") if state.status == "submitted" else state for state in states]


def _ready_alike(
    sweep: Sweep, composed: Sequence[Composed], experiments: Sequence[Experiment], states: list[State],
    console: Console, looking: Looking, turns: ExitStack, controller: Controller,
) -> list[list[int]]:
    """Make the waiting cases ready, as far as that is possible; positions of those that ask for the same job."""
    alike: dict[str, list[int]] = {}
    for position, state in enumerate(states):
        if state.status != "waiting":
            continue
        try:
            with in_words(f"gnnexp sweep {sweep.name}"):
                now = states[position] = turns.enter_context(turn_of(composed[position], state, looking))
                if now.status != "waiting":
                    continue
                run_dir = ready(sweep, composed[position], experiments[position], now, console, controller)
        except ProblemsError as error:
            states[position] = refused(sweep, composed[position], states[position], error)
            continue
        except Exception as error:  # as in `run_case`
            states[position] = broken(sweep, composed[position], states[position], error)
            continue
        states[position] = replace(now, run_dir=str(run_dir))
        alike.setdefault(experiments[position].config.group("hardware").text(), []).append(position)
    return list(alike.values())


def _submit(
    experiments: Sequence[Experiment], states: list[State], alike: Sequence[Sequence[int]], console: Console
) -> dict[int, str]:
    """Submit an array for each kind of job; the job of each position."""
    jobs: dict[int, str] = {}
    for positions in alike:
        first = experiments[positions[0]]
        assert isinstance(first.launcher, SlurmLauncher)
        try:
            with in_words():
                ids = first.launcher.submit([Path(states[n].run_dir) for n in positions], first.hardware)
        except DiskError as error:
            for position in positions:
                states[position] = not_started(states[position], error)
            continue
        jobs |= dict(zip(positions, ids, strict=True))
        console.print(f"submitted {', '.join(ids)}", soft_wrap=True)
        for position in positions:
            with suppress(OSError):  # the job runs; a disk that is full is named when it ends
                note(Path(states[position].run_dir), "start", job=jobs[position])
            states[position] = replace(states[position], status="submitted")
    return jobs


def _follow(
    experiments: Sequence[Experiment], states: list[State], jobs: dict[int, str], console: Console,
    save: Callable[[list[State]], None], controller: Controller,
) -> list[State]:
    """Until every job has ended; each is settled and delivered when it has."""
    followed = {
        position: following(Path(states[position].run_dir), job_id, experiments[position].num_ranks, controller)
        for position, job_id in jobs.items()
    }
    while followed:
        time.sleep(_POLL_S)
        if news := controller.news():
            console.print(news, soft_wrap=True)
        for position in list(followed):
            outcome = next(followed[position])
            if outcome is None:
                continue
            del followed[position]
            controller.forget(jobs[position])
            run_dir = Path(states[position].run_dir)
            outcome = end_attempt(run_dir, outcome)
            if outcome.status == "finished":
                draw_or_say(run_dir)
            else:
                remove_unfinished(run_dir)
            deliver(run_dir, experiments[position].tracker)
            states[position] = ended(states[position], run_dir, outcome, experiments[position].train)
            told = states[position]
            console.print(f"{told.status}: {told.label}  {told.reason or told.run_dir}", soft_wrap=True)
            save(states)
    return states
