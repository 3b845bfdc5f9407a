"""The files of a table: one file, a folder of shards, or a pattern such as `papers/*.parquet`."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file

Format = Literal["text", "json", "parquet", "arrow"]
FORMATS: dict[str, Format] = {
    ".csv": "text",
    ".tsv": "text",
    ".txt": "text",
    ".tab": "text",
    ".edgelist": "text",
    ".edges": "text",
    ".arcs": "text",
    ".el": "text",
    ".wel": "text",
    ".ncol": "text",
    ".feat": "text",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_PACKED = (".gz", ".zst")  # of text and JSON
_COMMUNITIES = ".cmty"  # lists of overlapping groups next to graphs of SNAP: no table


@dataclass(frozen=True)
class TableFiles:
    """The files of one table, in the order of their names.

    Attributes:
        key: config key or name of the table, for messages.
        paths: one file or more.
        format: format of all files.
    """

    key: str
    paths: tuple[Path, ...]
    format: Format

    @property
    def shown(self) -> str:
        """The file, or the first of several, for messages."""
        more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
        return f"{self.paths[0]}{more}"


def find_files(key: str, folder: Path, text: str) -> TableFiles:
    """The files that `text` names.

    Args:
        key: config key that has `text`.
        folder: folder to which relative names belong.
        text: a file, a folder of shards, or a pattern with `*`, `?` or `[...]`.

    Raises:
        DataError: there is no such file, or the files have different or unknown formats.
    """
    place = folder / Path(text).expanduser()
    if is_file(place):
        paths = [place]
    elif place.is_dir():
        paths = [path for path in sorted(place.iterdir()) if is_file(path) and format_of(path) is not None]
    else:
        paths = [path for path in sorted(map(Path, glob.glob(str(place), recursive=True))) if is_file(path)]  # noqa: PTH207
    if not paths:
        raise DataError(
            Problem(
                key, text, f"no table is there: {place}", f"give a file, a folder or a pattern, relative to {folder}"
            )
        )
    formats = {path: format_of(path) for path in paths}
    kinds = set(formats.values())
    if len(kinds) > 1 or None in kinds:
        names = ", ".join(path.name for path in paths[:5])
        raise DataError(
            Problem(
                key,
                names,
                f"all files must have one of the endings {', '.join(FORMATS)} "
                "(text and JSON also .gz or .zst), and one format",
                "name the files by a pattern",
            )
        )
    return TableFiles(key, tuple(paths), _known(paths[0]))


def format_of(path: Path) -> Format | None:
    """The format that follows from the name of a file, or None."""
    suffixes = [one.lower() for one in path.suffixes]
    if _COMMUNITIES in suffixes:
        return None
    packed = bool(suffixes) and suffixes[-1] in _PACKED
    found = FORMATS.get(suffixes[-2] if packed and len(suffixes) > 1 else suffixes[-1]) if suffixes else None
    return None if packed and found in ("parquet", "arrow") else found


def tables_in(folder: Path) -> Sequence[Path]:
    """All files of a folder that may be tables, by name."""
    return [one for one in sorted(folder.iterdir()) if is_file(one) and format_of(one) is not None]


def _known(path: Path) -> Format:
    found = format_of(path)
    assert found is not None
    return found
