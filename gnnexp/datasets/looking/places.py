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
    files = [entry for entry in entries if is_file(entry) and not entry.name.startswith(".")]
    tables, others = [entry for entry in files if format_of(entry)], [entry for entry in files if not format_of(entry)]
    sources = [_place(text, paths) for text, paths in _with_shards(tables)]
    for folder in (entry for entry in entries if entry.is_dir() and not entry.name.startswith(".")):
        shards = [entry for entry in sorted(folder.iterdir()) if is_file(entry) and format_of(entry)]
        if shards and len({format_of(entry) for entry in shards}) == 1:
            sources.append(_place(folder.name, shards))
    names = [source.name for source in sources]
    return [
        replace(source, name=plain(source.text)) if names.count(source.name) > 1 else source for source in sources
    ], others


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
