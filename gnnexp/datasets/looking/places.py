"""The files of a place, put together into tables: single files, folders of shards, and numbered shards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gnnexp.components.texts import is_hydra_key
from gnnexp.datasets.tables.files import TableFiles, format_of
from gnnexp.datasets.tables.roles import plain
from gnnexp.files.regular import is_file

UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of texts
# `part-0003.csv`, `edges-00000-of-00002.parquet`, `nodes_12.csv`
_SHARD = re.compile(r"^(?P<stem>.*?)[-_.]?(?P<number>\d+)(?P<more>-of-\d+)?$")


@dataclass(frozen=True)
class TableSource:
    """A table that a place has.

    Attributes:
        name: name of a type of vertices or edges: the first word of the file, or the folder.
        text: how the configuration names the table: a file, a folder or a pattern, relative to the place.
        files: its files.
    """

    name: str
    text: str
    files: TableFiles


def tables_at(place: Path) -> tuple[list[TableSource], list[Path]]:
    """All tables of a file or a folder, and the other files."""
    entries = sorted(place.iterdir()) if place.is_dir() else [place]
    files = [one for one in entries if is_file(one) and not one.name.startswith(".")]
    tables, others = [one for one in files if format_of(one)], [one for one in files if not format_of(one)]
    found = [_place(text, paths) for text, paths in _with_shards(tables)]
    for folder in (one for one in entries if one.is_dir() and not one.name.startswith(".")):
        shards = [one for one in sorted(folder.iterdir()) if is_file(one) and format_of(one)]
        if shards and len({format_of(one) for one in shards}) == 1:
            found.append(_place(folder.name, shards))
    names = [one.name for one in found]
    return [replace(one, name=plain(one.text)) if names.count(one.name) > 1 else one for one in found], others


def _place(text: str, paths: Sequence[Path]) -> TableSource:
    kind = format_of(paths[0])
    assert kind is not None
    name = plain(text.split(".", maxsplit=1)[0].replace("*", ""))
    name = name if is_hydra_key(name) else f"table_{name}".rstrip("_")
    return TableSource(name, text, TableFiles("PATH", tuple(paths), kind))


def _with_shards(files: Iterable[Path]) -> list[tuple[str, list[Path]]]:
    """Files that differ only in a number are one table, which a pattern names."""
    groups: dict[str, list[Path]] = {}
    for path in files:
        stem, dot, suffix = path.name.partition(".")
        found = _SHARD.match(stem)
        shard = found is not None and (bool(found["more"]) or len(found["number"]) > 1 or found["stem"] == "part")
        text = f"{found['stem']}*{dot}{suffix}" if found is not None and shard else path.name
        groups.setdefault(text, []).append(path)
    return [(text if len(paths) > 1 else paths[0].name, paths) for text, paths in groups.items()]
