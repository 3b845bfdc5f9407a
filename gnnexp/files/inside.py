"""Files that a file of a data set names: they are in its own folder, or below."""

from __future__ import annotations

import os
from pathlib import Path

from gnnexp.errors import DataError, Problem


def place_inside(file: Path, name: object, fix: str) -> Path:
    """The place that `name` in `file` means. A link at this place is followed: only names are checked.

    Args:
        file: the file that has the name, for which the place must be in the same folder or below.
        name: a path; relative ones begin in the folder of `file`.
        fix: what a user can do about a wrong name, for messages.

    Raises:
        DataError: the name is no text, or leads out of the folder.
    """
    if not isinstance(name, str) or "\0" in name:
        raise DataError(
            Problem(
                str(file),
                repr(type(name).__name__ if not isinstance(name, str) else name)[:60],
                "must be the name of a file",
                fix,
            )
        )
    folder = os.path.abspath(file.parent)  # noqa: PTH100 -- links stay as they are
    place = os.path.abspath(os.path.join(folder, name))  # noqa: PTH100, PTH118
    if os.path.commonpath([folder, place]) != folder:
        raise DataError(
            Problem(
                str(file),
                name[:100],
                f"must be a place in {folder}: data of others name no files elsewhere",
                "copy the file into the folder, or make a link to it there, and name that",
            )
        )
    return file.parent / name
