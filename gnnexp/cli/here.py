"""Whether a command can do its work from the current folder and in this process."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import gnnexp
from gnnexp.errors import ConfigError, Problem


def tell_if_deaf() -> None:
    """Say how to end this process if it ignores Ctrl-C, as a process does that a script has put into the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        print(
            f"gnnexp: Ctrl-C does not reach this command (SIGINT is ignored, as in the background of a script); end "
            f"it with: kill {os.getpid()}",
            file=sys.stderr,
        )


# Environment variables with paths that a record contains.
_VARIABLES = ("GNNEXP_CACHE", "GNNEXP_DATA")


def check_here() -> None:
    """Check that ranks started here would execute this gnnexp, and that their records could be read.

    Raises:
        ConfigError: the current folder has another gnnexp, or a path is not valid text.
    """
    here, ours = Path.cwd(), Path(gnnexp.__file__).resolve().parent
    theirs = here / "gnnexp"
    problems = []
    if (theirs / "__init__.py").is_file() and theirs.resolve() != ours:
        problems.append(
            Problem(
                "current folder",
                str(here),
                f"has a package gnnexp, which ranks would execute instead of {ours}",
                "go to another folder, or use that one: python -m gnnexp …",
            )
        )
    paths = {"current folder": str(here), **{name: os.environ.get(name, "") for name in _VARIABLES}}
    words = {f"argument {number}": word for number, word in enumerate(sys.argv[1:], 1)}
    problems += [
        Problem(
            name,
            ascii(text),
            "is not valid UTF-8, so no record can contain it",
            "rename it, or set a locale with UTF-8 (LC_ALL=C.UTF-8)",
        )
        for name, text in {**paths, **words}.items()
        if not _is_text(text)
    ]
    ConfigError.raise_all(problems)


def _is_text(text: str) -> bool:
    """Whether the text can be written as UTF-8. Bytes that do not fit the locale are lone surrogates in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
