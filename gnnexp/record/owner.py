"""Checks who owns a run directory: commands execute what its files say, so the files must be the user's own."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from gnnexp.errors import ConfigError, Problem
from gnnexp.files.regular import is_folder


def check_own(run_dir: Path, does: str, fix: str) -> None:
    """Refuse a run directory that belongs to another user, or that contains another user's files.

    `job.json` names classes, programs and shell commands of a job's script. `attempts.jsonl` and `slurm.json` name the
    process and the job that get a signal. Reading a run needs no such check.

    Args:
        run_dir: the run directory.
        does: what the command would do.
        fix: what the user can do.

    Raises:
        ConfigError: the directory or one of its files belongs to another user.
    """
    me = os.geteuid()
    for path in (run_dir, *(sorted(run_dir.glob("*.json*")) if is_folder(run_dir) else ())):
        try:
            owner = path.stat().st_uid
        except OSError:  # no run, or no valid name: reading it reports that
            continue
        if owner != me:
            raise ConfigError(Problem("run", str(path), f"belongs to {_name(owner)}: gnnexp {does}", fix))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # for example in a container, which does not know the host's users
        return f"user {uid}"
