"""Checks of folders and files that a command will make, before it begins."""

from __future__ import annotations

import os
from pathlib import Path

from gnnexp.errors import Problem
from gnnexp.files.regular import why_unreadable

_MOST_NAME_BYTES = 255


def run_dir_problems(run_dir: Path) -> list[Problem]:
    """Problems if the run directory exists already or cannot be made."""
    if os.path.lexists(run_dir):
        return [
            Problem(
                "hydra.run.dir",
                str(run_dir),
                "a run never writes into a folder that exists",
                "name a new folder, or remove this one; gnnexp run --rerun keeps the run that exists under "
                "another name and runs it again",
            )
        ]
    return folder_problems("hydra.run.dir", run_dir)


def folder_problems(key: str, folder: Path) -> list[Problem]:
    """Problems if files cannot be written into `folder`; a missing folder is made later."""
    if too_long := _name_problems(key, folder):
        return too_long
    above = next((one for one in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(one)), Path("/"))
    if above.is_dir() and os.access(above, os.W_OK | os.X_OK):
        return []
    why = "may not be written to" if above.is_dir() else _no_folder(above)
    return [Problem(key, str(folder), f"cannot be made: {above} {why}", f"{key}=<a folder that you may write to>")]


def _no_folder(path: Path) -> str:
    leads_nowhere = path.is_symlink() and not path.exists()
    return f"is a link that leads nowhere ({path.readlink()})" if leads_nowhere else "is no folder"


def new_file_problems(key: str, file: Path) -> list[Problem]:
    """Problems if a file cannot be written there. An existing file will be replaced; nothing else may have its name."""
    if os.path.lexists(file) and (why := why_unreadable(file)):
        return [Problem(key, str(file), f"cannot be written: {why}", f"{key}=<a new file>")]
    return _name_problems(key, file) or folder_problems(key, file.parent)


def _name_problems(key: str, path: Path) -> list[Problem]:
    if all(len(os.fsencode(part)) <= _MOST_NAME_BYTES for part in path.parts):
        return []
    return [Problem(key, f"{str(path)[:40]}…", f"a name has at most {_MOST_NAME_BYTES} bytes", "choose a shorter name")]
