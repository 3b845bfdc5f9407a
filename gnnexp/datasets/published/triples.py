"""Knowledge graphs as files of triples `head, relation, tail` (FB15k-237, WN18RR, …), for link prediction."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from gnnexp.datasets.base import Dataset, check_memory, checked, data_folder, where_to_put
from gnnexp.datasets.reading.tables import unpacked_limit
from gnnexp.datasets.splits.given import without_known
from gnnexp.datasets.splits.opposites import NO_REVERSES, SAME_TYPE
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.files.regular import is_file
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph

_FILES = {"train": "train.txt", "valid": "valid.txt", "test": "test.txt"}
_MAX_SHOWN = 5
# Memory while reading, per byte of the file: a line as text, its cells, and its ids. A string of CPython has 60 bytes.
_BYTES_PER_BYTE = 16


@dataclass(kw_only=True, eq=False)
class Triples(Dataset):
    """`train.txt`, `valid.txt` and `test.txt` with lines `head<tab>relation<tab>tail`, in a folder or a `.tar.gz`.

    The edges of the graph are the training triples. `links` has the triples of each file, in the same order. Entities
    and relations of all three files are numbered in the order of their names. Ids therefore do not depend on the order
    of lines, nor on which triples are held out, and the same random draws select the same vertices.

    Attributes:
        name: name of the graph.
        path: the folder of the files, or the archive; null = `$GNNEXP_DATA/<name>`, with the files or one archive.
        symmetrize: add the reverse of each training triple.
        inverse_relations: the reverse of a triple of relation r has relation R + r.
        held_out_edges: training triples that are triples for validation and test, or their reverses: `keep` them, as
            published benchmarks do, or `remove` them.
    """

    is_published: ClassVar[bool] = True

    name: str = "triples"
    path: str | None = None
    symmetrize: bool = True
    inverse_relations: bool = True
    held_out_edges: Literal["remove", "keep"] = "keep"

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A folder with the three files, whose first line has three columns; or an archive that begins with one."""
        if not place.is_dir() or not all(is_file(place / name) for name in _FILES.values()):
            archives = sorted(place.glob("*.tar.gz")) if place.is_dir() else [place]
            return [] if len(archives) == 1 and _begins_with_triples(archives[0]) else None
        with (place / _FILES["train"]).open(encoding="utf-8", errors="replace") as file:
            return [] if len(file.readline().split()) == 3 else None

    def sources(self) -> list[Path]:
        """The archive, or the three files."""
        place = data_folder(self.path, self.name)
        if place.is_file():
            return [place]
        files = [place / file for file in _FILES.values()]
        archives = sorted(place.glob("*.tar.gz"))
        if len(archives) == 1 and not any(is_file(path) for path in files):
            return archives
        DataError.raise_all(
            [
                Problem(str(path), "missing", "this file (or one archive .tar.gz) is needed", where_to_put(self.name))
                for path in files
                if not is_file(path)
            ]
        )
        return files

    def key(self) -> str:
        """That of the files; another one than before where a mark of the byte order was a part of the first name."""
        key = super().key()
        marked = [path for path in self.sources() if path.suffix != ".gz" and _begins_with_mark(path)]
        return hashlib.sha256(f"{key} without marks".encode()).hexdigest() if marked else key

    def load(self) -> Graph:
        """The graph in memory."""
        files = self._contents()
        findings = Findings()
        rows = {name: findings.attempt(_rows, key, content) for name, (key, content) in files.items()}
        findings.raise_all()
        read = {name: lines for name, lines in rows.items() if lines is not None}
        _refuse_names(read, files)
        triples = {name: np.array(lines, object).reshape(-1, 3) for name, lines in read.items()}
        entities = _numbered(np.concatenate([lines[:, ::2].ravel() for lines in triples.values()]))
        relations = _numbered(np.concatenate([lines[:, 1] for lines in triples.values()]))
        links = {name: _as_ids(lines, entities, relations) for name, lines in triples.items()}
        heads, types, tails = links["train"].T
        arrays = build_graph(
            heads,
            tails,
            len(entities),
            types=types,
            symmetrize=self.symmetrize,
            num_relations=len(relations) if self.inverse_relations else None,
            key=files["train"][0],
        )
        graph = checked(
            Graph(
                arrays.indptr,
                arrays.indices,
                edge_types=arrays.types,
                links={name: torch.from_numpy(lines) for name, lines in links.items()},
                name=self.name,
                notes=_notes(links, len(entities), len(relations)),
            )
        )
        reverses = NO_REVERSES if not self.symmetrize else len(relations) if self.inverse_relations else SAME_TYPE
        return without_known(
            graph,
            reverses=reverses,
            remove=self.held_out_edges == "remove",
            names=[*relations],
            why="They stay, because files of triples are the training graph of published benchmarks: "
            "dataset.held_out_edges=remove leaves them out",
        )

    def _contents(self) -> dict[str, tuple[str, bytes]]:
        """For each split: the file's name in messages, and its bytes."""
        paths = self.sources()
        if len(paths) == 3:
            check_memory(_BYTES_PER_BYTE * sum(path.stat().st_size for path in paths), str(paths[0].parent))
            return {split: (str(path), path.read_bytes()) for split, path in zip(_FILES, paths, strict=True)}
        found = read_archive(paths[0], _FILES.values())
        check_memory(_BYTES_PER_BYTE * sum(map(len, found.values())), str(paths[0]))
        return {split: (f"{paths[0]}: {file}", found[file]) for split, file in _FILES.items()}


def _begins_with_mark(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(3) == codecs.BOM_UTF8


def _rows(key: str, content: bytes) -> list[list[str]]:
    """The three cells of each line that is not blank."""
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(Problem(key, str(error)[:200], "must be UTF-8 text", MEMBERS_FIX)) from None
    rows = [line.rstrip("\r").split("\t") for line in lines]
    wrong = [number for number, row in enumerate(rows) if (len(row) != 3 or not all(row)) and row != [""]]
    if wrong:
        allowed = "must be head, relation and tail, with a tab between them"
        raise DataError(
            [
                Problem(f"{key}, line {number + 1}", lines[number][:80], allowed, "correct or remove this line")
                for number in wrong[:_MAX_SHOWN]
            ]
        )
    rows = [row for row in rows if row != [""]]
    if not rows:
        raise DataError(Problem(key, "no triples", "must have one triple or more", MEMBERS_FIX))
    return rows


def _refuse_names(rows: Mapping[str, list[list[str]]], files: Mapping[str, tuple[str, bytes]]) -> None:
    """Refuse files that begin with names of columns: one line begins all of them, and its relation is in no other line.

    Raises:
        DataError: they do. It would be a triple for training, validation and test.
    """
    names = rows["train"][0]
    if all(lines[0] == names for lines in rows.values()) and not any(
        row[1] == names[1] for lines in rows.values() for row in lines[1:]
    ):
        raise DataError(
            [
                Problem(
                    f"{key}, line 1",
                    "\t".join(names)[:80],
                    "begins all files, and its relation is in no other line: it has names of columns",
                    "remove this line",
                )
                for key, _ in files.values()
            ]
        )


def _numbered(names: np.ndarray) -> dict[str, int]:
    """Ids from 0 on, in the order of the names' code points, which does not depend on the locale."""
    return {name: number for number, name in enumerate(sorted(set(names.tolist())))}


def _as_ids(triples: np.ndarray, entities: Mapping[str, int], relations: Mapping[str, int]) -> np.ndarray:
    """`[n, 3]` int64 ids of heads, relations and tails."""
    columns = zip(triples.T.tolist(), (entities, relations, entities), strict=True)
    return np.stack([np.array([numbers[name] for name in column], np.int64) for column, numbers in columns], axis=1)


def _notes(links: Mapping[str, np.ndarray], num_entities: int, num_relations: int) -> tuple[str, ...]:
    train = links["train"]
    seen = np.zeros(num_entities, bool)
    seen[train[:, ::2]] = True
    notes = [f"{num_entities} entities, {num_relations} relations"]
    if not seen.all():
        held = ", ".join(f"{int((~seen[links[name][:, ::2]]).any(axis=1).sum())} {name}" for name in ("valid", "test"))
        notes.append(f"{int((~seen).sum())} entities are in no training triple; {held} triples have one of them")
    unseen = num_relations - np.unique(train[:, 1]).size
    if unseen:
        notes.append(f"{unseen} relations are in no training triple")
    return tuple(notes)


MEMBERS_FIX = "get it again, or unpack it and set dataset.path to the folder"
# A published archive has a few members. Each additional header would cost time.
_MAX_MEMBERS = 64


def read_archive(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The files `names` at the root of an archive, by name.

    Raises:
        DataError: the archive is damaged, unpacks to far more bytes than text can have, has members that are not
            regular files at its root, or lacks some of the files.
    """
    limit = unpacked_limit(path)
    check_memory(limit, str(path))
    try:
        with gzip.open(path) as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise tarfile.ReadError(f"it unpacks to more than {limit} bytes")
        files = _regular_files(content)
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        shown = str(error)[:200] or type(error).__name__
        allowed = "must be a whole .tar.gz of regular files"
        raise DataError(Problem(str(path), shown, allowed, MEMBERS_FIX)) from None
    missing = [
        Problem(f"{path}: {name}", f"has {', '.join(sorted(files))[:200]}", "this file is needed", MEMBERS_FIX)
        for name in names
        if name not in files
    ]
    DataError.raise_all(missing)
    return {name: files[name] for name in names}


def _begins_with_triples(path: Path) -> bool:
    """Whether the first file of an archive is one of the three."""
    if not path.name.endswith(".tar.gz") or not is_file(path):
        return False
    try:
        with gzip.open(path) as file:
            return tarfile.TarInfo.frombuf(file.read(tarfile.BLOCKSIZE), "utf-8", "replace").name in _FILES.values()
    except (OSError, EOFError, zlib.error, tarfile.TarError):
        return False


def _regular_files(content: bytes) -> dict[str, bytes]:
    """The files of an unpacked archive, by name."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for member in archive:
            # A sparse member may claim any size; links and paths with folders may lead outside.
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse() or "/" in member.name:
                raise tarfile.ReadError(f"{member.name[:80]!r} is not a regular file at the root")
            if member.name in files or len(files) == _MAX_MEMBERS:
                raise tarfile.ReadError(f"{member.name[:80]!r} is one too many")
            if member.offset_data + member.size > len(content):
                raise tarfile.ReadError(f"{member.name[:80]!r} claims {member.size} bytes")
            files[member.name] = content[member.offset_data : member.offset_data + member.size]
    return files
