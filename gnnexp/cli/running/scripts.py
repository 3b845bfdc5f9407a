"""`--print-script`: the job scripts that a command would submit to SLURM. Nothing is prepared, written or submitted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gnnexp.cli.output import Answer
from gnnexp.errors import ConfigError, Problem
from gnnexp.experiment.experiment import Experiment
from gnnexp.launchers.slurm import SlurmLauncher


def print_scripts(runs: Sequence[tuple[Experiment, Path]]) -> Answer:
    """Print one script for each kind of job.

    Args:
        runs: the experiments, with the directories that their runs would have.

    Raises:
        ConfigError: an experiment is not submitted.
    """
    alike: dict[str, list[tuple[Experiment, Path]]] = {}
    for experiment, run_dir in runs:
        alike.setdefault(experiment.config.group("hardware").text(), []).append((experiment, run_dir))
    scripts = []
    for same in alike.values():
        experiment = same[0][0]
        if not isinstance(experiment.launcher, SlurmLauncher):
            raise ConfigError(
                Problem(
                    "--print-script",
                    type(experiment.launcher).__name__,
                    "this launcher submits no job script",
                    "hardware=slurm_cpu, or another profile of SLURM",
                )
            )
        scripts.append(experiment.launcher.script_of([run_dir for _, run_dir in same], experiment.hardware))
    print("\n".join(scripts) if scripts else "nothing would be submitted: all runs have finished")
    return Answer({"scripts": scripts})
