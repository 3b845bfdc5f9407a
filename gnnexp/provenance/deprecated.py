"""What still works and will be removed: each with the release of its removal, which a note and the reference name.

Something is deprecated in a release, works in it with a note, and is removed in the next (docs/reference/public.md).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gnnexp.provenance.older import moved_targets


@dataclass(frozen=True)
class Deprecation:
    """Something that works, and will be removed.

    Attributes:
        name: what it is, as users write it.
        since: first release with the note.
        removed: first release without it.
        instead: what a user should do, as a command or a sentence.
    """

    name: str
    since: str
    removed: str
    instead: str

    def __str__(self) -> str:
        """The note."""
        return f"{self.name}: deprecated in gnnexp {self.since}, removed in {self.removed}; {self.instead}"


TAR_XZ = Deprecation(
    "records as `.tar.xz`", "0.2", "0.3", "import the file now, and write it again with `gnnexp export`"
)
MOVED_TARGETS = Deprecation("a `_target_` that has moved", "0.2", "0.3", "write the new name")
ALL = (TAR_XZ, MOVED_TARGETS)


def tell_user(deprecation: Deprecation) -> None:
    """Tell the user, on standard error: standard output may be one JSON document."""
    print(f"note: {deprecation}", file=sys.stderr)


def note_moved(config: Mapping[str, object]) -> None:
    """Name the classes in a user's configuration that have moved, each once, with their present names."""
    for old, new in moved_targets(config).items():
        tell_user(replace(MOVED_TARGETS, name=f"`_target_: {old}`", instead=f"write `_target_: {new}`"))
