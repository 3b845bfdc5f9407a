"""The git repositories that a user's code and configuration come from."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gnnexp.provenance.machine import output_of

# Longer differences are cut: a record is not the place for a user's data.
_MOST_CHARACTERS = 200_000
# Git's name of an empty tree, with which a repository without a commit is compared.
_NOTHING = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
# Variables that name a repository regardless of the folder; a hook of git sets them.
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


@dataclass(frozen=True)
class Repository:
    """A checkout at the time of a run.

    Attributes:
        path: root folder of the checkout.
        commit: the commit; empty before the first one.
        dirty: whether files differ from the commit.
        diff: the difference of tracked files from the commit, and the untracked files that the run reads; at most
            200,000 characters. Bytes that are not UTF-8 are replaced.
        diff_sha256: digest of the whole difference; empty if there is none.
    """

    path: str
    commit: str
    dirty: bool
    diff: str
    diff_sha256: str


def repositories(places: Iterable[Path]) -> list[Repository]:
    """The repositories that contain `places`, in order of their paths; empty if git is missing.

    Args:
        places: files of a run's code and configuration.
    """
    by_root: dict[str, list[Path]] = {}
    for place in map(Path.resolve, places):  # git looks behind no link
        if root := _git(place if place.is_dir() else place.parent, "rev-parse", "--show-toplevel"):
            by_root.setdefault(root, []).append(place)
    return [_look(Path(root), held) for root, held in sorted(by_root.items())]


def _look(root: Path, places: Iterable[Path]) -> Repository:
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    known_names = set(_git(root, "ls-files", "-z", "--", *map(str, places)).split("\0"))
    names = {os.path.relpath(place, root): place for place in places if place.is_file()}
    new = [_as_new(place, name) for name, place in sorted(names.items()) if name not in known_names]
    edited = bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    known = _git(root, "diff", commit or _NOTHING, "--no-color", "--no-ext-diff", "--no-textconv")
    if edited and not known:
        known = "(git did not say in 10 seconds what differs)"
    diff = "\n".join([*([known] if known else []), *new])
    digest = hashlib.sha256(diff.encode()).hexdigest() if diff else ""
    return Repository(str(root), commit, edited or bool(diff), diff[:_MOST_CHARACTERS], digest)


def _as_new(file: Path, name: str) -> str:
    """An untracked file in the form of a difference; for a file that is no text, its digest."""
    try:
        content = file.read_bytes()
    except OSError as error:
        return f"+++ b/{name} ({error.strerror})"
    if b"\0" in content:
        return f"+++ b/{name} (no text, SHA-256 {hashlib.sha256(content).hexdigest()})"
    lines = content.decode(errors="replace")[:_MOST_CHARACTERS].splitlines()
    return "\n".join(difflib.unified_diff([], lines, "/dev/null", f"b/{name}", lineterm=""))


def _git(folder: Path, *words: str) -> str:
    return output_of(["git", "-C", str(folder), *words], without=_ELSEWHERE)
