"""`gnnexp run -m`: plain Hydra multirun; whichever sweeper is chosen, each job goes through our launcher.

For sweeps that are checked whole, skip what is finished and resume, there is `gnnexp sweep`.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from gnnexp.cli.console import make_console, marked, states_table
from gnnexp.cli.main import print_problems
from gnnexp.cli.running.execute import execute
from gnnexp.cli.running.prepare import check_folder, problems_of
from gnnexp.config.compose import Composed, compose
from gnnexp.config.composition import register_resolvers
from gnnexp.config.folders import product_folder
from gnnexp.config.overrides import parse
from gnnexp.errors import ConfigError, Problem, ProblemsError
from gnnexp.experiment.build import read
from gnnexp.files.disk import in_words
from gnnexp.launchers.kept import Launchers
from gnnexp.record.runs import RUNS, read_run

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig


@dataclass
class Jobs:
    """What became of the jobs, as rows of the table at the end.

    Attributes:
        console: where runs show themselves.
        config_dir: the user's own folder of YAML files.
        launchers: of all jobs.
        rows: overrides, state, directory or reason.
    """

    console: Console
    config_dir: str | None
    launchers: Launchers
    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def run(self, config: DictConfig) -> float:
        """One job; returns the metric of the task on the validation split, by which a sweeper may search.

        A job that fails does not stop the others; NaN is its value.
        """
        composed = _composed(config, self.config_dir)
        label = " ".join(composed.overrides) or "run"
        self.console.print(marked(f"\njob {len(self.rows)}", "bold", f" {label}"), soft_wrap=True)
        try:
            if problems := [*problems_of(read(composed.config)), *_free(composed.run_dir)]:
                raise ConfigError(problems)
            with in_words():
                outcome = execute(composed, self.console, self.launchers)
        except ProblemsError as error:
            print_problems(error)
            self.rows.append((label, "failed", str(error.problems[0]).splitlines()[0]))
            return float("nan")
        self.rows.append((label, outcome.status, outcome.reason or str(composed.run_dir)))
        if outcome.status == "interrupted":
            raise KeyboardInterrupt
        return read_run(composed.run_dir).best("val")[1] if outcome.status == "finished" else float("nan")


def _free(run_dir: Path) -> list[Problem]:
    """Have the folder away that Hydra has made for a job, and in which nothing is: a run makes its own."""
    try:
        run_dir.rmdir()
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return [Problem("hydra.sweep.dir", str(run_dir), "a run never writes into a folder that exists",
                        "name a new one, or leave it out; every job needs its own hydra.sweep.subdir")]
    return []


def main(overrides: Sequence[str], config_dir: str | None) -> int:
    """Hand `overrides` to Hydra's sweeper; 0 only if every job has finished."""
    import hydra

    _check(overrides, config_dir)
    register_resolvers()
    more = [] if config_dir is None else ["--config-dir", str(Path(config_dir).resolve())]
    quiet = ["hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none"]
    before, sys.argv = sys.argv, ["gnnexp", "-m", *more, *overrides, *quiet]
    with Launchers() as launchers:
        jobs = Jobs(make_console(), config_dir, launchers)
        try:
            hydra.main(version_base="1.3", config_path=str(product_folder("conf")), config_name="config")(jobs.run)()
        except SystemExit as error:  # Hydra has said what is wrong
            return 2 if not jobs.rows and error.code else 1
        finally:
            sys.argv = before
    jobs.console.print(states_table(jobs.rows, "jobs"))
    return 0 if all(state == "finished" for _, state, _ in jobs.rows) else 1


def _check(overrides: Sequence[str], config_dir: str | None) -> None:
    """Overrides as a single run's, with the first value of each; what a sweeper will choose is not known yet.

    Other launchers of Hydra's are refused, since they would hide failures: the submitit plugin looks at rank 0 only.

    Raises:
        ConfigError: another launcher is asked for, or an override is wrong.
    """
    parsed, problems = parse(overrides)
    problems += [problem for override in parsed for problem in _of_hydra(override)]
    if not any(override.key_or_group == "hydra.sweep.dir" for override in parsed):
        problems += check_folder("hydra.sweep.dir", RUNS)
    if problems:
        raise ConfigError(problems)
    fixed = [line for override in parsed if not str(override.key_or_group).startswith("hydra")
             for line in _first_value(override)]
    compose(fixed, config_dir)


def _of_hydra(override: Override) -> list[Problem]:
    """What is wrong with an override of Hydra's own."""
    key, value = str(override.key_or_group), override.value()
    if key == "hydra.job.chdir" and value:
        return [Problem(key, value, "every job runs in the folder of the command: paths are relative to it",
                        "leave it out")]
    if key == "hydra.sweep.dir" and isinstance(value, str) and "${" not in value:
        return check_folder(key, Path(value))
    if key == "hydra/launcher" and value != "basic":
        return [Problem(key, value, "gnnexp starts the ranks of every job itself (the submitit plugin calls failed "
                        "jobs COMPLETED)", "leave it out; hardware=slurm_cpu, or gnnexp sweep NAME --jobs N")]
    return []


def _first_value(override: Override) -> list[str]:
    """The override with one value; none where only a sweeper knows any (`lr=interval(0, 1)`)."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if override.is_discrete_sweep():
        return [f"{override.get_key_element()}={next(iter(override.sweep_string_iterator()))}"]
    return []


def _composed(config: DictConfig, config_dir: str | None) -> Composed:
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    hydra = HydraConfig.get()
    content: Any = OmegaConf.to_container(config, resolve=True)
    return Composed(
        {str(key): value for key, value in content.items()}, Path(hydra.runtime.output_dir),
        {str(group): choice for group, choice in hydra.runtime.choices.items() if "/" not in str(group)},
        tuple(line for line in hydra.overrides.task), config_dir,
    )
