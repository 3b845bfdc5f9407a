"""`gnnexp tune`: every system of a sweep gets the same budget of trials, and its best values become a preset."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gnnexp.cli.commands.sweep import known_keys, run_dir_of
from gnnexp.cli.console import made_table, make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.running.folders import new_file_problems
from gnnexp.cli.running.prepare import CheckedConfig, checked_config
from gnnexp.cli.sweeping.command import add_and_work, check_options, command_of, finish_sweep, reuse_rules_of
from gnnexp.cli.sweeping.definition import Case, Sweep, label_cases, last_of_each_key, load_sweep, override_key
from gnnexp.cli.sweeping.queue import Queue, keep_states
from gnnexp.cli.tuning.chooser import chooser, note_chooser, was_begun_here
from gnnexp.cli.tuning.definition import LIMITS, Tuning, read_tuning, trial_key_problems
from gnnexp.cli.tuning.preset import (
    COMPARED,
    preset_file,
    preset_name,
    preset_of,
    preset_problems,
    unlimited,
    write_preset,
)
from gnnexp.cli.tuning.search import ProposedTrial, Search, check_optuna
from gnnexp.cli.tuning.system import System, Trial
from gnnexp.config.compose import ComposedConfig
from gnnexp.errors import ConfigError, Problem, ProblemsError, unique
from gnnexp.experiment.experiment import Experiment
from gnnexp.launchers.base import Launchers
from gnnexp.measure.merit import lower_is_better
from gnnexp.paradigms.external.command import external_command
from gnnexp.reports.budgets import describe_budgets
from gnnexp.reports.layout import layout_problems, read_layout


def main(options: argparse.Namespace) -> Answer:
    """Tune every system of a sweep. The exit code is 0 only if every system has used its budget and has a preset."""
    check_options(options)
    check_optuna()
    sweep = load_sweep(options.name, options.overrides)
    words = ["tune", options.name, *options.overrides, *([f"--trials={options.trials}"] if options.trials else [])]
    tuning, systems, report = _planned(sweep, options)
    sweep = replace(sweep, report=report, command=command_of(options, words))
    queue = Queue(sweep, replace(reuse_rules_of(options), keep_failed=True), make_console())
    is_known = not options.rerun and was_begun_here(sweep.name, tuning)
    if not options.dry_run:
        note_chooser(sweep.name, tuning)
    with Launchers() as launchers:
        while batch := _asked(systems, tuning.batch):
            queue.to_come = sum(member.to_come(sum(system is member for system, _ in batch)) for member in systems)
            _try(queue, batch, options, launchers)
            if any(state.status == "interrupted" for state in queue.states):
                break
    if not is_known:
        _tell_unknown(queue)
    if not options.dry_run:
        budgets = describe_budgets([system.budget for system in systems])
        queue.sweep = replace(queue.sweep, notes=(budgets, *sweep.notes))
        keep_states(queue.sweep, queue.states)
    answer = finish_sweep(queue, options)
    return answer if options.dry_run else _finished(queue, systems, options, answer)


# --- before the first trial ------------------------------------------------------------------------------------------
def _planned(sweep: Sweep, options: argparse.Namespace) -> tuple[Tuning, list[System], dict[str, object]]:
    """The section `tune`, the systems, and the contents of the report.

    Raises:
        ConfigError: the section, a distribution or a configuration has mistakes; all are reported.
    """
    if not sweep.tune:
        raise ConfigError(
            Problem("tune", sweep.name, "the sweep's file has no section `tune`", "add one: docs/howto/tune.md")
        )
    tuning, problems = _tuning_of(sweep, options)
    groups = _by_seed(sweep)
    composed: list[ComposedConfig] = []
    for case, members in groups:
        ends, wrong = _compose_ends(members[0], tuning, options)
        composed += ends[:1]
        problems += [
            replace(problem, key=f"[{case.label}] {problem.key}")
            for problem in [*wrong, *_seed_problems(tuning, len(members))]
        ]
    ConfigError.raise_all(unique(problems))
    names = _names(composed)
    varied = [override_key(line) for case, _ in groups for line in case.label.split() if "=" in line]
    report = {**sweep.report, "rows": list(dict.fromkeys(["system", *varied, *tuning.keys]))}
    known = {key for config in composed for key in known_keys(config)}
    problems = [
        problem
        for name, config in zip(names, composed, strict=True)
        for problem in _preset_problems(name, config, tuning, options)
    ]
    ConfigError.raise_all([*problems, *layout_problems(read_layout(report), known, f"sweep {sweep.name}: ")])
    systems = [
        System(name, case.label, members, tuning, Search(tuning))
        for name, (case, members) in zip(names, groups, strict=True)
    ]
    return tuning, systems, report


def _tuning_of(sweep: Sweep, options: argparse.Namespace) -> tuple[Tuning, list[Problem]]:
    """The section `tune`, and what is wrong with it."""
    more = {"trials": options.trials} if options.trials is not None else {}
    tuning, problems = read_tuning({**sweep.tune, **more})
    problems += trial_key_problems(tuning, [case.overrides for case in sweep.cases])
    why = "this key says what is compared, and is no hyper-parameter"
    problems += [
        Problem(f"tune.distributions.{key}", key, why, "vary it in axes")
        for key in tuning.keys
        if key.partition(".")[0] in COMPARED
    ]
    return tuning, problems


def _seed_problems(tuning: Tuning, num_seeds: int) -> list[Problem]:
    """A problem if trials of several seeds would be pruned."""
    if tuning.pruner == "none" or num_seeds == 1:
        return []
    why = f"the system has {num_seeds} seeds: pruning judges single runs, and a trial is judged by its mean"
    return [Problem("tune.pruner", tuning.pruner, why, "pruner: none, or one seed")]


def _by_seed(sweep: Sweep) -> list[tuple[Case, list[tuple[str, ...]]]]:
    """The systems of a sweep: cases that differ in the seed only belong together."""
    members: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for case in sweep.cases:
        members.setdefault(tuple(line for line in case.overrides if override_key(line) != "seed"), []).append(
            case.overrides
        )
    return list(zip(label_cases(list(members)), members.values(), strict=True))


def _compose_ends(
    lines: Sequence[str], tuning: Tuning, options: argparse.Namespace
) -> tuple[list[ComposedConfig], list[Problem]]:
    """The configurations with the ends of every distribution, one after another, and what is wrong with them."""
    first = {distribution.key: distribution.ends[0] for distribution in tuning.distributions}
    points = [
        first,
        *({**first, distribution.key: end} for distribution in tuning.distributions for end in distribution.ends[1:]),
    ]
    configs, problems = [], list[Problem]()
    for point in points:
        try:
            composed, experiment = checked_config(
                [*lines, *(f"{key}={value}" for key, value in point.items())], options.config_dir, options.config_name
            )
        except ProblemsError as error:
            problems += error.problems
            continue
        configs.append(composed)
        problems += _goal_problems(experiment, tuning)
    return configs, unique(problems)


def _goal_problems(experiment: Experiment, tuning: Tuning) -> list[Problem]:
    """Problems of an experiment whose validation metric cannot be judged as `tune` asks."""
    train, problems = experiment.train, []
    if train.eval_every is None or (train.eval_every == 0 and tuning.pruner != "none"):
        what = (
            "pruning compares validation metrics by epoch"
            if train.eval_every == 0
            else "the objective needs the validation metric"
        )
        problems.append(Problem("train.eval_every", train.eval_every, what, "train.eval_every=1"))
    metric = experiment.task.usual_metric
    if lower_is_better(metric):
        problems.append(
            Problem("task.metric", metric, "tuning needs a metric of which higher is better", "set task.metric=r2")
        )
    if tuning.pruner != "none" and train.stop_below is not None:
        problems.append(Problem(LIMITS, train.stop_below, "pruning sets this key", "leave it out, or pruner: none"))
    if tuning.pruner != "none" and external_command(experiment) is not None:
        problems.append(
            Problem("tune.pruner", tuning.pruner, "an external command decides itself when it ends", "pruner: none")
        )
    return problems


def _names(composed: Sequence[ComposedConfig]) -> list[str]:
    """A name of each system. Systems with the same name get a number."""
    names = [preset_name(one) for one in composed]
    return [
        name if names.count(name) == 1 else f"{name}_{names[:place].count(name) + 1}"
        for place, name in enumerate(names)
    ]


def _preset_problems(name: str, composed: ComposedConfig, tuning: Tuning, options: argparse.Namespace) -> list[Problem]:
    """Problems of the preset of a system: it must give the same configuration, and its file must be free."""
    preset = preset_of(f"tuned_{name}", composed, tuning.keys)
    return preset_problems(preset, composed) + new_file_problems("preset", preset_file(preset.name, _folder(options)))


def _folder(options: argparse.Namespace) -> Path:
    """The folder of the user's configurations."""
    return Path(options.config_dir or "conf")


# --- trials ----------------------------------------------------------------------------------------------------------
def _asked(systems: Sequence[System], most: int) -> list[tuple[System, ProposedTrial]]:
    """The next trials, at most `most` of each system. Equal numbers are neighbours, so that they run close in time."""
    return [(system, system.ask()) for number in range(most) for system in systems if system.wants(number)]


def _try(
    queue: Queue, batch: Sequence[tuple[System, ProposedTrial]], options: argparse.Namespace, launchers: Launchers
) -> None:
    """Run the cases of these trials that have not finished, and give their values to the searches."""
    first = len(queue.states)
    labelled = []
    for system, asked in batch:
        for lines in system.cases:
            seed = [line for line in lines if override_key(line) == "seed"] if len(system.cases) > 1 else []
            label = " ".join([system.name, asked.label, *seed])
            labelled.append((label, _checked(queue.sweep, label, [*lines, *asked.lines], options)))
    add_and_work(queue, labelled, options, launchers)
    place = 0
    for system, asked in batch:
        end = place + len(system.cases)
        states = queue.states[first + place : first + end]
        system.note(asked, [checked for _, checked in labelled[place:end]], states)
        if system.pruned(asked):
            queue.states[first + place : first + end] = [
                replace(state, reason=f"pruned: {state.run_dir}") for state in states
            ]
        place = end


def _checked(
    sweep: Sweep, label: str, lines: Sequence[str], options: argparse.Namespace
) -> CheckedConfig | ProblemsError:
    """The configuration of a trial, or what is wrong with it: the values may be wrong together."""
    number = int(label.partition("trial ")[2].partition(":")[0])
    run_dir = run_dir_of(sweep, Case(label, ()), number)
    try:
        return checked_config(
            [*last_of_each_key(lines), f"hydra.run.dir={run_dir}"], options.config_dir, options.config_name
        )
    except ProblemsError as error:
        return error


def _tell_unknown(queue: Queue) -> None:
    """Say how many trials were found whose Optuna was not noted."""
    if found := sum(state.status == "finished before" for state in queue.states):
        queue.console.print(
            f"{found} of the trials had finished before this search noted its version of Optuna "
            f"({chooser()['optuna']}): another version may have chosen them",
            soft_wrap=True,
        )


# --- after the last trial --------------------------------------------------------------------------------------------
def _finished(queue: Queue, systems: Sequence[System], options: argparse.Namespace, answer: Answer) -> Answer:
    """Write the presets of systems that have used their budget, and show them."""
    rows, documents = [], []
    for system in systems:
        best = None if system.stopped else system.best
        file = None if best is None else _written(queue, system, best, options)
        why = system.stopped or ("" if file else "no trial has a value within the budget")
        rows.append(
            (
                system.name,
                str(len(system.trials)),
                str(system.budget.pruned),
                f"{system.budget.seconds:.1f}",
                "" if best is None else f"{best.value:.4g}",
                str(file or why),
            )
        )
        documents.append(
            {
                "system": system.name,
                "trials": len(system.trials),
                "seconds": system.budget.seconds,
                "pruned": system.budget.pruned,
                "best": None if best is None else best.value,
                "preset": None if file is None else str(file),
                "reason": why,
                "values": {} if best is None else best.asked.values,
            }
        )
    header = ("system", "trials", "pruned", "seconds", f"best {systems[0].tuning.objective}", "preset")
    queue.console.print(made_table(header, rows, "tuned"))
    queue.console.print(queue.sweep.notes[0], soft_wrap=True)
    document = {**(answer.document if isinstance(answer.document, dict) else {}), "systems": documents}
    waits = {"submitted": 0, "interrupted": 130}
    code = next((waits[state.status] for state in queue.states if state.status in waits), None)
    return Answer(document, code if code is not None else int(any(row["preset"] is None for row in documents)))


def _written(queue: Queue, system: System, best: Trial, options: argparse.Namespace) -> Path:
    """Write the preset of the best trial.

    Raises:
        ConfigError: the preset would give another configuration than the trial.
    """
    assert best.composed is not None
    composed = unlimited(best.composed) if best.asked.limits else best.composed
    preset = preset_of(f"tuned_{system.name}", composed, system.tuning.keys)
    ConfigError.raise_all(preset_problems(preset, composed))
    tuning, seeds = system.tuning, len(system.cases)
    goal = f"{best.metric} = {best.value:.6g}"
    if tuning.objective == "time_to_target":
        goal = f"{best.value:.6g} s of training until {best.metric} >= {tuning.target:g}"
    comments = [
        f"Written by: {queue.sweep.command}",
        f"Objective: {tuning.objective}" + f", mean of {seeds} seeds" * (seeds > 1),
        f"Best trial: number {best.asked.number} of {len(system.trials)}; {goal}",
        f"Chosen by: Optuna {chooser()['optuna']}, {chooser()['sampler']}",
        f"Budget of each system: {tuning.budget}; this one spent {system.budget.seconds:.1f} s of training",
        f"Use it: {preset.command}",
    ]
    return write_preset(preset, _folder(options), comments, system.budget)
