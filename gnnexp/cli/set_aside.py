"""`gnnexp run --rerun`: a run is made again in its directory, and the earlier one keeps another name."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from gnnexp.cli.prepare import checked
from gnnexp.cli.resume import check_job
from gnnexp.config.compose import Composed
from gnnexp.errors import ConfigError
from gnnexp.record.attempts import alone

_RUN_DIR = "hydra.run.dir"


def made_again(options: argparse.Namespace) -> Composed:
    """The checked configuration of a run whose directory may be there; then that is set aside.

    Nothing is moved unless the rest of the configuration is right.

    Raises:
        ConfigError: something is wrong, what is there is no run, or another process works on it.
    """
    try:
        return checked(options.overrides, options.config_dir)
    except ConfigError as error:
        taken = [Path(str(problem.value)) for problem in error.problems if problem.key == _RUN_DIR]
        if len(error.problems) > 1 or not taken or not (taken[0] / "job.json").is_file():
            raise
    set_aside(taken[0])
    return checked(options.overrides, options.config_dir)


def set_aside(run_dir: Path) -> Path:
    """Rename a run's directory to the first free `<name>.before-<n>`; its new name.

    Raises:
        ConfigError: another process or a SLURM job works on the run, or may.
    """
    check_job(run_dir)
    with alone(run_dir):
        number = next(n for n in range(1, sys.maxsize) if not os.path.lexists(f"{run_dir}.before-{n}"))
        return run_dir.rename(f"{run_dir}.before-{number}")
