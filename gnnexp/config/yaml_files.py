"""The YAML files in a folder of configurations, and their limits."""

from __future__ import annotations

from pathlib import Path

from gnnexp.errors import Problem
from gnnexp.files.foreign_yaml import ALLOWED, MAX_BYTES, excess_of
from gnnexp.files.regular import read_limited

# Folders below a folder of configurations: a group, a folder of its choices, and one more.
_MOST_LEVELS = 4


def yaml_files(folder: Path) -> list[Path]:
    """The YAML files in a folder of configurations."""
    return [file for depth in range(_MOST_LEVELS) for file in folder.glob(f"{'*/' * depth}*.yaml")]


def yaml_problem(file: Path) -> Problem | None:
    """The problem of the kind, size, depth or references of `file`, or None. Its reader reports that it is no YAML."""
    try:
        excess = excess_of(read_limited(file, MAX_BYTES))
    except OSError as error:
        allowed = f"must be a regular file that you may read, of at most {MAX_BYTES} bytes"
        return Problem(str(file), error.strerror, allowed, "correct the path or the rights, or remove the file")
    return Problem(str(file), excess, ALLOWED, "make it smaller, or remove the file") if excess else None


def is_yaml(file: Path) -> bool:
    """Whether `file` is YAML that can be read."""
    from yaml import YAMLError, parse

    try:
        return all(True for _ in parse(read_limited(file, MAX_BYTES).decode()))
    except (OSError, UnicodeDecodeError, YAMLError):
        return False
