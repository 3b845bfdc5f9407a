"""`gnnexp run -m`: a sweep whose cases come from a sweeper of Hydra's. The jobs of each request are queued."""

from __future__ import annotations

import argparse
import hashlib
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Glob
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import open_dict

from gnnexp.cli.console import make_console
from gnnexp.cli.output import Answer
from gnnexp.cli.running.folders import folder_problems
from gnnexp.cli.running.prepare import CheckedConfig, checked_config
from gnnexp.cli.sweeping.case import CaseState
from gnnexp.cli.sweeping.command import add_and_work, check_options, command_of, finish_sweep, reuse_rules_of
from gnnexp.cli.sweeping.definition import Sweep, override_key
from gnnexp.cli.sweeping.known_runs import all_there
from gnnexp.cli.sweeping.queue import Queue
from gnnexp.components.signature import one_of
from gnnexp.config.compose import compose
from gnnexp.config.composition import hydra_of, in_problems
from gnnexp.config.folders import ConfigFolders, find_folders
from gnnexp.config.overrides import of_hydra, parse
from gnnexp.errors import ConfigError, Problem, ProblemsError
from gnnexp.experiment.build import read
from gnnexp.launchers.base import Launchers
from gnnexp.record.runs import RUNS, read_run

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

# The name under which Hydra's sweepers find their launcher: Hydra loads no class from another package.
_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


class QueueLauncher(Launcher):
    """The launcher that Hydra's sweepers give their jobs to: all jobs of a request, each with its folder."""

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:  # noqa: ANN401
        """See Hydra.

        Raises:
            ConfigError: the sweeper searches for small values. This is the default of Hydra's plugin for Optuna.
        """
        direction = config.hydra.sweeper.direction if "direction" in config.hydra.sweeper else "maximize"
        if (name := getattr(direction, "name", direction)) != "maximize":
            raise ConfigError(
                Problem(
                    "hydra.sweeper.direction",
                    name,
                    "a job's value is its best validation metric, the larger the better",
                    "hydra.sweeper.direction=maximize",
                )
            )
        self._loader, self._run, self._config = hydra_context.config_loader, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        """See Hydra. A job's value is the task's metric on the validation split."""
        jobs = [(list(lines), self._folder(lines, initial_job_idx + n)) for n, lines in enumerate(job_overrides)]
        values = self._run((jobs, Path(str(self._config.hydra.sweep.dir))))
        return [
            JobReturn(overrides=lines, status=JobStatus.COMPLETED, _return_value=value)
            for (lines, _), value in zip(jobs, values, strict=True)
        ]

    def _folder(self, lines: Sequence[str], number: int) -> Path:
        config = self._loader.load_sweep_config(self._config, list(lines))
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = number
        HydraConfig.instance().set_config(config)
        return Path(str(config.hydra.sweep.dir), str(config.hydra.sweep.subdir))


@dataclass
class Jobs:
    """The jobs of a sweeper as cases of a queue.

    Attributes:
        queue: queue of all jobs.
        options: options of the command.
        launchers: launchers of all jobs.
        fixed: keys that have the same value in all jobs.
    """

    queue: Queue
    options: argparse.Namespace
    launchers: Launchers
    fixed: frozenset[str]

    def run(self, batch: tuple[Sequence[tuple[Sequence[str], Path]], Path]) -> list[float | None]:
        """Run the remaining ones of these jobs. Return each job's value for the sweeper's search; None if it has none.

        A job with mistakes has failed, and the others run: the sweeper may have chosen the mistake. Sweepers count a
        job without a number as failed. NaN would end Optuna's sweeper.

        Args:
            batch: overrides and run directory of each job, and the folder that contains these directories.
        """
        (jobs, folder), queue, first = batch, self.queue, len(self.queue.states)
        folder.mkdir(parents=True, exist_ok=True)  # sweepers write their results there, even if all jobs are skipped
        if not any(folder.is_relative_to(known) for known in queue.reuse.folders):  # `hydra.sweep.dir` is free
            over = queue.reuse.passed_over | (all_there(folder) if self.options.rerun else frozenset())
            queue.reuse = replace(queue.reuse, folders=(*queue.reuse.folders, folder), passed_over=over)
        own = [[line for line in lines if override_key(line) not in self.fixed] for lines, _ in jobs]
        keys = dict.fromkeys(map(override_key, chain(queue.sweep.report.get("rows", ()), *own)))
        rows = [key for key in keys if key != "seed"]
        queue.sweep = replace(queue.sweep, report={"rows": rows} if rows else {})
        labelled = [
            (" ".join(label) or "run", _checked(lines, run_dir, self.options))
            for label, (lines, run_dir) in zip(own, jobs, strict=True)
        ]
        add_and_work(queue, labelled, self.options, self.launchers)
        states = queue.states[first:]
        if any(state.status == "interrupted" for state in states):
            raise KeyboardInterrupt
        return [_value_of(state) for state in states]


def _value_of(state: CaseState) -> float | None:
    """The best validation metric of a job that has finished, if it was evaluated."""
    if not state.status.startswith("finished"):
        return None
    value = read_run(Path(state.run_dir)).best("val")[1]
    return None if math.isnan(value) else value


def _checked(lines: Sequence[str], run_dir: Path, options: argparse.Namespace) -> CheckedConfig | ProblemsError:
    """The configuration of a job, or what is wrong with it."""
    try:
        composed, experiment = checked_config(lines, options.config_dir, options.config_name)
        return CheckedConfig(replace(composed, run_dir=run_dir), experiment)
    except ProblemsError as error:
        return error


def main(options: argparse.Namespace) -> Answer:
    """Give the overrides to Hydra's sweeper. The exit code is 0 only if every job has finished.

    Raises:
        ConfigError: something is wrong, found by Hydra or by gnnexp.
    """
    check_options(options)
    folders = find_folders(options.config_dir, options.config_name)
    parsed = _check(options, folders)
    queue = Queue(_sweep_of(parsed, options), reuse_rules_of(options), make_console())
    words = [*options.overrides, "hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none"]
    with Launchers() as launchers, tempfile.TemporaryDirectory() as nowhere:
        if options.dry_run:  # Hydra writes its configuration there
            words.append(f"hydra.sweep.dir={nowhere}")
        fixed = frozenset(str(override.key_or_group) for override in parsed if not override.is_sweep_override())
        try:
            with in_problems("run -m", options.overrides, folders):
                _sweep(words, folders, Jobs(queue, options, launchers, fixed))
        except KeyboardInterrupt:
            if all(state.status != "interrupted" for state in queue.states):
                raise
    return finish_sweep(queue, options)


def _sweep(words: Sequence[str], folders: ConfigFolders, jobs: Jobs) -> None:
    """Let Hydra's sweeper choose jobs until it has enough."""
    Plugins.instance().class_name_to_class[_LAUNCHER] = QueueLauncher
    with hydra_of(folders) as hydra:
        hydra.multirun(folders.primary, jobs.run, list(words), with_log_configuration=False)


def _sweep_of(parsed: Sequence[Override], options: argparse.Namespace) -> Sweep:
    """The multirun as a sweep. Its name is the run's `name`, or depends only on the overrides."""
    named = [
        str(override.value())
        for override in parsed
        if override.key_or_group == "name" and override.value() and not override.is_sweep_override()
    ]
    digest = hashlib.sha256("\n".join(options.overrides).encode()).hexdigest()[:8]
    name = [f"multirun-{digest}", *named][-1].replace("/", "_")
    return Sweep(name, "Hydra's multirun.", (), command=command_of(options, ["run", "-m", *options.overrides]))


def _check(options: argparse.Namespace, folders: ConfigFolders) -> list[Override]:
    """Parse the overrides, and check them with the first value of each; values that a sweeper chooses are unknown.

    Raises:
        ConfigError: an override is wrong, or gnnexp cannot do what it asks of Hydra.
    """
    parsed, problems = parse(options.overrides)
    problems += [problem for override in parsed if (problem := of_hydra(override))]
    problems += [problem for override in parsed for problem in _sweep_problems(override, dry_run=options.dry_run)]
    if not any(override.key_or_group == "hydra.sweep.dir" for override in parsed):
        problems += folder_problems("hydra.sweep.dir", RUNS)
    ConfigError.raise_all(problems)
    fixed = [
        line
        for override in parsed
        if not str(override.key_or_group).startswith("hydra")
        for line in _first_value(override, folders)
    ]
    composed = compose(fixed, options.config_dir, options.config_name)
    chosen = next((override.value() for override in parsed if override.key_or_group == "hydra/sweeper"), "basic")
    if chosen != "basic" and read(composed.config).hardware.detach:
        raise ConfigError(
            Problem(
                "hardware.detach",
                "true",
                f"the sweeper {chosen} chooses jobs by the results of earlier ones, and does not get them",
                "hardware.detach=false",
            )
        )
    return parsed


def _sweep_problems(override: Override, *, dry_run: bool) -> list[Problem]:
    """Problems of an override of Hydra's options for sweeps."""
    key, value = str(override.key_or_group), override.value()
    if key == "hydra.sweep.dir" and isinstance(value, str) and "${" not in value:
        return folder_problems(key, Path(value))
    if key == "hydra/sweeper" and value != "basic" and dry_run:
        return [
            Problem(
                "--dry-run", value, "this sweeper chooses jobs by the results of earlier ones", "leave --dry-run out"
            )
        ]
    return []


def _first_value(override: Override, folders: ConfigFolders) -> list[str]:
    """The override with one value; empty if only the sweeper knows its values (`lr=interval(0, 1)`)."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    pattern: object = override.value()
    if isinstance(pattern, Glob):
        known = sorted(folders.choices(str(override.key_or_group)))
        if not (choices := pattern.filter(known)):
            line = str(override.input_line)
            raise ConfigError(Problem(line, line, one_of(known), "give a pattern that fits one of them"))
        return [f"{override.get_key_element()}={choices[0]}"]
    if override.is_discrete_sweep():
        return [f"{override.get_key_element()}={next(iter(override.sweep_string_iterator()))}"]
    return []
