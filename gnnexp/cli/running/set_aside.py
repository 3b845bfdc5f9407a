"""`gnnexp run --rerun`: a run is made again in its directory, and the earlier run gets another name."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gnnexp.cli.commands.resume import check_no_job
from gnnexp.cli.running.prepare import CheckedConfig, checked_config
from gnnexp.errors import ConfigError, Problem
from gnnexp.record.attempts import alone
from gnnexp.trackers.delivery import REOPEN_S, undisturbed

_RUN_DIR = "hydra.run.dir"


@contextmanager
def made_again(options: argparse.Namespace) -> Iterator[CheckedConfig]:
    """The checked configuration of a run whose directory may exist. Inside of this context, that directory is renamed.

    Nothing is renamed if the configuration has other mistakes. If no new run appears, for example because the data does
    not fit the configuration, the directory gets its name back.

    Raises:
        ConfigError: the configuration has mistakes, the directory holds no run, or another process works on it.
    """
    try:
        checked = checked_config(options.overrides, options.config_dir, options.config_name)
    except ConfigError as error:
        taken = [Path(str(problem.value)) for problem in error.problems if problem.key == _RUN_DIR]
        if len(error.problems) > 1 or not taken or not (taken[0] / "job.json").is_file():
            raise
    else:
        yield checked
        return
    aside = set_aside(taken[0])
    try:
        yield checked_config(options.overrides, options.config_dir, options.config_name)
    finally:
        if not os.path.lexists(taken[0]):
            aside.rename(taken[0])


def set_aside(run_dir: Path) -> Path:
    """Rename a run's directory to the first free `<name>.before-<n>`, and return the new path.

    Raises:
        ConfigError: a process or a SLURM job works on the run, or may; or the run is the current folder or above it.
    """
    if Path.cwd().is_relative_to(run_dir.resolve()):
        raise ConfigError(
            Problem(
                _RUN_DIR,
                str(run_dir),
                "is the current folder, or one above it: it cannot get another name",
                "go to another folder",
            )
        )
    check_no_job(run_dir)
    with alone(run_dir), undisturbed(run_dir, REOPEN_S):  # a process that delivers it would write into the new run
        number = next(n for n in range(1, sys.maxsize) if not os.path.lexists(f"{run_dir}.before-{n}"))
        return run_dir.rename(f"{run_dir}.before-{number}")
