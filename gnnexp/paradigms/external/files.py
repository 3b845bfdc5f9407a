"""The files of an external command. Their content identifies its runs: an edited system is not "finished before"."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file, is_folder, open_regular
from gnnexp.provenance.code import PACKAGE
from gnnexp.provenance.source import DIGITS, closure

# Of a larger file (data) only size and time of change count.
_LARGE_BYTES = 64 << 20
_NO_CODE = ("__pycache__", ".git")


def search_path() -> str:
    """The PATH of a command: Python and its tools are those that run gnnexp, unless the command has a path."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def program(name: str) -> str | None:
    """The path of the program that a command's first word names; None if there is none."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.sep not in name and os.access(beside, os.X_OK) and beside.is_file() else shutil.which(name)


def files_of(command: Sequence[str], more: Iterable[str]) -> list[Path]:
    """The files of a command, sorted.

    Each word that is a file is one of them, also after `name=`, and so is the file of a module after `-m`. What Python
    files import from their own folder is added, and so is `more`. A folder in `more` stands for all files in it. A
    program that is found on the PATH is not one of them.
    """
    files: set[Path] = set()
    for place, word in enumerate(command):
        if word == "-m" and place + 1 < len(command):
            files |= _modules(command[place + 1], Path())
        for text in (word, word.partition("=")[2]):
            file = Path(text)
            if text and is_file(file) and (place or os.sep in word):
                files |= {file, *(_modules(file.stem, file.parent) if file.suffix == ".py" else ())}
    for name in more:
        files |= set(_below(Path(name)))
    return sorted(files)


def digests_of(files: Iterable[Path]) -> dict[str, str]:
    """The digest of each file, by its path as given.

    Raises:
        DataError: a file cannot be read.
    """
    return {str(file): _digest(file) for file in files}


def digest_of_all(digests: Mapping[str, str]) -> str:
    """One digest of all files and their places in the folder that holds them all. The place of that folder is free."""
    places = {name: Path(name).resolve() for name in digests}
    above = os.path.commonpath([place.parent for place in places.values()]) if places else ""
    lines = sorted(f"{os.path.relpath(places[name], above)} {digest}" for name, digest in digests.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:DIGITS]


def _modules(name: str, base: Path) -> set[Path]:
    """The file of a module below `base`, and the files of what it imports from there; empty if it is elsewhere."""
    try:
        return set(closure([name], base, (PACKAGE,)).files.values())
    except DataError:  # another version of Python may be able to read it
        return set()


def _below(place: Path) -> Iterator[Path]:
    if not is_folder(place):
        yield place
    for folder, names, files in os.walk(place):
        names[:] = sorted(name for name in names if name not in _NO_CODE)
        yield from (Path(folder) / file for file in files)


def _digest(file: Path) -> str:
    try:
        with open_regular(file) as content:
            status = os.fstat(content.fileno())
            if status.st_size > _LARGE_BYTES:
                return f"{status.st_size} bytes, changed {status.st_mtime_ns}"
            return hashlib.file_digest(content, "sha256").hexdigest()[:DIGITS]
    except OSError as error:
        raise DataError(
            Problem(
                str(file),
                error.strerror,
                "must be a file of the command that you may read",
                "correct the file, or leave it out of paradigm.command and paradigm.files",
            )
        ) from None
