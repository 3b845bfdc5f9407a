"""Where a command is typed: what would make its runs of other code, or their records unreadable."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import gnnexp
from gnnexp.errors import ConfigError, Problem

# Of the environment: paths that a record names.
_VARIABLES = ("GNNEXP_CACHE", "GNNEXP_DATA")


def check_here() -> None:
    """Whether ranks that are started here execute this gnnexp, and whether their records can be read.

    Raises:
        ConfigError: the current folder has another gnnexp, or a path is no text.
    """
    here, ours = Path.cwd(), Path(gnnexp.__file__).resolve().parent
    theirs = here / "gnnexp"
    problems = []
    if (theirs / "__init__.py").is_file() and theirs.resolve() != ours:
        problems.append(Problem("current folder", str(here), f"has a package gnnexp, which ranks would execute instead "
                                f"of {ours}", "go to another folder, or use that one: python -m gnnexp …"))
    paths = {"current folder": str(here), **{name: os.environ.get(name, "") for name in _VARIABLES}}
    words = {f"argument {number}": word for number, word in enumerate(sys.argv[1:], 1)}
    problems += [
        Problem(name, ascii(text), "is no text in UTF-8, so no record can name it",
                "rename it, or set a locale with UTF-8 (LC_ALL=C.UTF-8)")
        for name, text in {**paths, **words}.items() if not _is_text(text)]
    ConfigError.raise_all(problems)


def _is_text(text: str) -> bool:
    """Whether it can be written: bytes that no locale explains are half characters in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
