"""Whose a run directory is: whoever acts on a run does what its files say, so they must be one's own."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from gnnexp.errors import ConfigError, Problem
from gnnexp.files.regular import is_folder


def check_own(run_dir: Path, does: str, fix: str) -> None:
    """Refuse a run that is, or has files that are, another user's.

    `job.json` names classes, programs and shell commands of a job's script; `attempts.jsonl` and `slurm.json` name the
    process and the job that a signal goes to. Nobody who merely reads a run needs this check.

    Args:
        run_dir: of the run.
        does: what the command would do.
        fix: what to do instead.

    Raises:
        ConfigError: the directory or one of its files belongs to somebody else.
    """
    me = os.geteuid()
    for path in (run_dir, *(sorted(run_dir.glob("*.json*")) if is_folder(run_dir) else ())):
        try:
            owner = path.stat().st_uid
        except OSError:  # no run at all, a name that no system takes: the reader says so
            continue
        if owner != me:
            raise ConfigError(Problem("run", str(path), f"belongs to {_name(owner)}: gnnexp {does}", fix))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # as in a container, which does not know its host's users
        return f"user {uid}"
