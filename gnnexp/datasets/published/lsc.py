"""MAG240M and WikiKG90M of OGB-LSC (Hu et al., 2021), in the layout of the `ogb` package: `processed/*.npy`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gnnexp.datasets.base import check_memory, existing_files
from gnnexp.datasets.published.links import read_pt
from gnnexp.datasets.reading.npz import open_npy
from gnnexp.datasets.reading.ogb_raw import FORMAT_FIX, OgbRaw, OgbTypes
from gnnexp.datasets.reading.unpickle import as_array
from gnnexp.errors import DataError, Problem
from gnnexp.files.regular import is_file

# Types of MAG240M in the order of ids, and its relations: type of sources, name, type of destinations.
_TYPES = ("paper", "author", "institution")
_RELATIONS = (("author", "affiliated_with", "institution"), ("author", "writes", "paper"), ("paper", "cites", "paper"))
_TRIPLES = "train_hrt.npy"


@dataclass(frozen=True, eq=False)
class Lsc:
    """What is in a folder of OGB-LSC.

    Attributes:
        raw: vertices and edges.
        splits: ids of training, validation and test vertices.
        links: `[n, 3]` heads, relations and tails by split.
        notes: what a user must know.
    """

    raw: OgbRaw
    splits: Sequence[np.ndarray] = (np.empty(0, np.int64),) * 3
    links: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def is_lsc(folder: Path) -> bool:
    """Whether a folder has the layout of MAG240M or WikiKG90M."""
    return is_file(folder / "processed" / _TRIPLES) or is_file(_edges(folder, _RELATIONS[2]))


def lsc_files(folder: Path) -> list[Path]:
    """The files that decide the graph.

    Raises:
        DataError: a file is missing.
    """
    if is_file(folder / "processed" / _TRIPLES):
        names = ["meta.pt", *(f"processed/{name}" for name in (_TRIPLES, "val_hr.npy", "val_t.npy"))]
        optional = ["processed/entity_feat.npy"]
    else:
        names = [
            "meta.pt",
            "split_dict.pt",
            *(str(_edges(folder, relation).relative_to(folder)) for relation in _RELATIONS),
            "processed/paper/node_label.npy",
        ]
        optional = ["processed/paper/node_feat.npy"]
    names += [name for name in optional if is_file(folder / name)]
    return list(existing_files(folder, names, folder.name).values())


def read_lsc(folder: Path) -> Lsc:
    """The content of a folder.

    Raises:
        DataError: a file is missing or wrong, or memory is too small.
    """
    lsc_files(folder)
    return _wikikg(folder) if is_file(folder / "processed" / _TRIPLES) else _mag(folder)


def _edges(folder: Path, relation: Sequence[str]) -> Path:
    return folder / "processed" / "___".join(relation) / "edge_index.npy"


def _mag(folder: Path) -> Lsc:
    counts = _counts(folder, _TYPES)
    starts = np.cumsum([0, *counts]).tolist()
    ranges = {kind: range(start, start + count) for kind, start, count in zip(_TYPES, starts, counts, strict=False)}
    relations = [_array(_edges(folder, relation), "iu", (2, None)) for relation in _RELATIONS]
    total = sum(edges.shape[1] for edges in relations)
    check_memory(24 * (starts[-1] + total), f"{folder}: {starts[-1]} vertices and {total} edges")
    parts = [
        _shifted(edges, relation, ranges, _edges(folder, relation))
        for relation, edges in zip(_RELATIONS, relations, strict=True)
    ]
    types = OgbTypes(
        nodes=np.repeat(np.arange(len(_TYPES), dtype=np.int32), counts),
        edges=np.repeat(np.arange(len(_RELATIONS), dtype=np.int32), [len(part) for part in parts]),
        num_relations=len(_RELATIONS),
        labelled="paper",
        members=ranges["paper"],
        ranges=ranges,
        relation_numbers=(),
        notes=(
            f"types of vertices, in this order: {', '.join(_TYPES)}",
            f"relations, in this order: {', '.join('-'.join(relation) for relation in _RELATIONS)}",
        ),
    )
    labels = _array(folder / "processed" / "paper" / "node_label.npy", "iuf", (counts[0],))
    values = np.full((starts[-1], 1), np.nan)
    values[: counts[0], 0] = labels
    values[values < 0] = np.nan
    splits, notes = _splits(folder / "split_dict.pt", values[: counts[0], 0])
    raw = OgbRaw(
        np.concatenate(parts),
        starts[-1],
        _features(folder / "processed/paper/node_feat.npy", starts[-1], counts[0]),
        values,
        None,
        str(folder),
        types,
    )
    return Lsc(raw, splits, notes=notes)


def _shifted(edges: np.ndarray, relation: Sequence[str], ranges: Mapping[str, range], path: Path) -> np.ndarray:
    """`[n, 2]` edges as ids among all vertices."""
    ends = []
    for place, kind in zip((0, 1), (relation[0], relation[2]), strict=True):
        own = edges[place]
        if own.size and not 0 <= int(own.min()) <= int(own.max()) < len(ranges[kind]):
            raise DataError(
                Problem(
                    str(path),
                    f"ids {own.min()}..{own.max()}",
                    f"{kind} has the ids 0 to {len(ranges[kind]) - 1}",
                    FORMAT_FIX,
                )
            )
        ends.append(own.astype(np.int64) + ranges[kind].start)
    return np.stack(ends, axis=1)


def _splits(path: Path, labels: np.ndarray) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Training, validation and test papers, those with a label: OGB keeps the labels of test papers secret."""
    content = read_pt(path).named()
    parts, dropped = [], 0
    for names in (("train",), ("valid",), ("test", "test-whole", "test-dev")):
        name = next((name_of_split for name_of_split in names if name_of_split in content), None)
        if name is None:
            raise DataError(Problem(str(path), sorted(content), f"must have {names[0]}", FORMAT_FIX))
        ids = as_array(content[name], f"{path}: {name}")
        if (
            ids.ndim != 1
            or ids.dtype.kind not in "iu"
            or (ids.size and not (0 <= int(ids.min()) <= int(ids.max()) < labels.size))
        ):
            raise DataError(
                Problem(f"{path}: {name}", f"{ids.dtype} {ids.shape}", f"must be ids below {labels.size}", FORMAT_FIX)
            )
        known = ~np.isnan(labels[ids])
        dropped += int((~known).sum())
        parts.append(ids[known].astype(np.int64))
    return parts, (f"{dropped} vertices of the split have no label and are left out",) * bool(dropped)


def _wikikg(folder: Path) -> Lsc:
    num_nodes, num_relations = _counts(folder, ("num_entities", "num_relations"))
    path = folder / "processed" / _TRIPLES
    triples = _array(path, "iu", (None, 3))
    check_memory(24 * num_nodes + 48 * len(triples), f"{folder}: {num_nodes} vertices and {len(triples)} edges")
    pairs = _array(folder / "processed" / "val_hr.npy", "iu", (None, 2))
    tails = _array(folder / "processed" / "val_t.npy", "iu", (len(pairs),))
    links = {"train": triples.astype(np.int64), "valid": np.column_stack([pairs, tails]).astype(np.int64)}
    for name, rows in links.items():
        for column, high in ((0, num_nodes), (1, num_relations), (2, num_nodes)):
            if rows.size and not 0 <= int(rows[:, column].min()) <= int(rows[:, column].max()) < high:
                raise DataError(
                    Problem(
                        f"{folder}: {name}, column {column}",
                        int(rows[:, column].max()),
                        f"must be below {high}",
                        FORMAT_FIX,
                    )
                )
    raw = OgbRaw(
        links["train"][:, ::2],
        num_nodes,
        _features(folder / "processed" / "entity_feat.npy", num_nodes, num_nodes),
        None,
        None,
        str(path),
        relations=links["train"][:, 1],
        num_relations=num_relations,
    )
    return Lsc(raw, links=links, notes=("no test links: OGB keeps their tails secret",))


def _counts(folder: Path, names: Sequence[str]) -> list[int]:
    """Numbers in `meta.pt`."""
    path = folder / "meta.pt"
    content = read_pt(path).named()
    counts = [content.get(name) for name in names]
    wrong = [
        name for name, count in zip(names, counts, strict=True) if type(count) is not int or not 0 < count < 1 << 40
    ]
    if wrong:
        raise DataError(Problem(str(path), sorted(content), f"must have counts of {', '.join(wrong)}", FORMAT_FIX))
    return [count for count in counts if isinstance(count, int)]


def _array(path: Path, kinds: str, shape: Sequence[int | None]) -> np.ndarray:
    """A memory-mapped array of this shape; None is any size."""
    array = open_npy(path)
    expected = tuple(size if want is None else want for want, size in zip(shape, array.shape, strict=False))
    if array.dtype.kind not in kinds or array.ndim != len(shape) or array.shape != expected:
        raise DataError(
            Problem(
                str(path),
                f"{array.dtype} {array.shape}",
                f"must have the shape {tuple(shape)} and be of kind {kinds!r}",
                FORMAT_FIX,
            )
        )
    return array


def _features(path: Path, num_nodes: int, rows: int) -> np.ndarray | None:
    """`[V, D]` float32: those of the first `rows` vertices, zeros for the others; None without the file."""
    if not is_file(path):
        return None
    found = _array(path, "f", (rows, None))
    check_memory(4 * num_nodes * found.shape[1], f"{path}: features {num_nodes} x {found.shape[1]}")
    features = np.zeros((num_nodes, found.shape[1]), np.float32)
    features[:rows] = found
    return features
