"""One malformed input: its files, and the call of gnnexp's own reader that has to refuse it or make sense of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from gnnexp.cli.main import run_command
from gnnexp.errors import GnnexpError


@dataclass(frozen=True)
class Case:
    """One input.

    Attributes:
        what: it is, in a few words.
        files: content by path below the folder of the case, which is the current folder when `read` is called.
        read: gnnexp's own reader of these files, called in this process. It returns a value or raises a `GnnexpError`;
            anything else is a finding.
        reads_anywhere: whether the input is what a user types, who may name any file to read.
        links: target by path of a symbolic link.
    """

    what: str
    files: Mapping[str, bytes]
    read: Callable[[], object]
    reads_anywhere: bool = False
    links: Mapping[str, str] | None = None


Kind = Callable[[Random], Case]


class RefusedError(GnnexpError):
    """A command ended with an exit code other than 0, and no traceback."""


def write_files(case: Case, folder: Path) -> None:
    """Put the case's files where its reader expects them."""
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for name, target in (case.links or {}).items():
        (folder / name).symlink_to(target)


def command(arguments: list[str]) -> None:
    """Run a command of gnnexp in this process.

    Raises:
        RefusedError: its exit code is not 0.
    """
    try:
        code = run_command(arguments)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 2
    if code not in (0, 1, 2):
        raise AssertionError(f"gnnexp {' '.join(arguments)} ended with exit code {code}")
    if code:
        raise RefusedError(f"exit code {code}")
