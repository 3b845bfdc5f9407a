"""Knowledge graphs as files of triples `head, relation, tail` (FB15k-237, WN18RR, ...), for link prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gnnexp.datasets.base import Dataset, check_memory, checked, data_folder, where_to_put
from gnnexp.datasets.reading.archive import MEMBERS_FIX, read_archive
from gnnexp.errors import DataError, Problem
from gnnexp.files.findings import Findings
from gnnexp.files.regular import is_file
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph

_FILES = {"train": "train.txt", "valid": "valid.txt", "test": "test.txt"}
_MAX_SHOWN = 5
# A line as text, its cells, and its numbers, while it is read: CPython's strings take about 60 bytes each.
_BYTES_PER_BYTE = 16


@dataclass(kw_only=True, eq=False)
class Triples(Dataset):
    """`train.txt`, `valid.txt`, `test.txt` of lines `head<tab>relation<tab>tail`, in a folder or a `.tar.gz`.

    Messages pass along the training triples; `links` has the triples of each file, in its order. Entities and relations
    of all three files are numbered in order of their names: so ids depend neither on the order of the lines nor on
    which triples are held out, and the same draws hit the same vertices.

    Attributes:
        name: of the graph.
        path: the folder of the files, or the archive; null = `$GNNEXP_DATA/<name>`, with the files or one archive.
        symmetrize: add the reverse of every training triple.
        inverse_relations: the reverse of a triple of relation r is of relation R + r.
    """

    name: str = "triples"
    path: str | None = None
    symmetrize: bool = True
    inverse_relations: bool = True

    def sources(self) -> list[Path]:
        """The archive, or the three files."""
        place = data_folder(self.path, self.name)
        if place.is_file():
            return [place]
        files = [place / file for file in _FILES.values()]
        archives = sorted(place.glob("*.tar.gz"))
        if len(archives) == 1 and not any(is_file(path) for path in files):
            return archives
        DataError.raise_all([
            Problem(str(path), "missing", "this file (or one archive .tar.gz) is needed", where_to_put(self.name))
            for path in files
            if not is_file(path)
        ])
        return files

    def load(self) -> Graph:
        """The graph."""
        files = self._contents()
        findings = Findings()
        rows = {name: findings.attempt(_rows, key, content) for name, (key, content) in files.items()}
        findings.raise_all()
        triples = {name: np.array(found, object).reshape(-1, 3) for name, found in rows.items()}
        entities = _numbered(np.concatenate([found[:, ::2].ravel() for found in triples.values()]))
        relations = _numbered(np.concatenate([found[:, 1] for found in triples.values()]))
        links = {name: _as_ids(found, entities, relations) for name, found in triples.items()}
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
        return checked(
            Graph(
                arrays.indptr,
                arrays.indices,
                edge_types=arrays.types,
                links={name: torch.from_numpy(found) for name, found in links.items()},
                name=self.name,
                notes=_notes(links, len(entities), len(relations)),
            )
        )

    def _contents(self) -> dict[str, tuple[str, bytes]]:
        """By split: what a file is called in messages, and what it holds."""
        paths = self.sources()
        if len(paths) == 3:
            check_memory(_BYTES_PER_BYTE * sum(path.stat().st_size for path in paths), str(paths[0].parent))
            return {split: (str(path), path.read_bytes()) for split, path in zip(_FILES, paths, strict=True)}
        found = read_archive(paths[0], _FILES.values())
        check_memory(_BYTES_PER_BYTE * sum(map(len, found.values())), str(paths[0]))
        return {split: (f"{paths[0]}: {file}", found[file]) for split, file in _FILES.items()}


def _rows(key: str, content: bytes) -> list[list[str]]:
    """Lines cut at their tabs."""
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(Problem(key, str(error)[:200], "must be UTF-8 text", MEMBERS_FIX)) from None
    rows = [line.rstrip("\r").split("\t") for line in lines]
    wrong = [
        number for number, row in enumerate(rows) if (len(row) != 3 or not all(row)) and row != [""]
    ]
    if wrong:
        allowed = "must be head, relation and tail, with a tab between them"
        raise DataError([Problem(f"{key}, line {number + 1}", lines[number][:80], allowed,
                                 "correct or remove this line") for number in wrong[:_MAX_SHOWN]])
    rows = [row for row in rows if row != [""]]
    if not rows:
        raise DataError(Problem(key, "no triples", "must have one triple or more", MEMBERS_FIX))
    return rows


def _numbered(names: np.ndarray) -> dict[str, int]:
    """Numbers from 0 on, in order of the names (of their code points, which no locale changes)."""
    return {name: number for number, name in enumerate(sorted(set(names.tolist())))}


def _as_ids(triples: np.ndarray, entities: Mapping[str, int], relations: Mapping[str, int]) -> np.ndarray:
    """`[n, 3]` int64."""
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
