"""AMiner, ACM, DBLP, Freebase and other typed graphs in the form of HeCo (Wang et al., KDD 2021), with its splits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse
import torch

from gnnexp.datasets.base import (
    VerifiedDataset,
    checked,
    data_folder,
    existing_files,
    is_believable,
    listed,
    where_to_put,
)
from gnnexp.datasets.options import LinkOptions
from gnnexp.datasets.published.archives import name_override
from gnnexp.datasets.reading.features import feature_rows, one_hot_columns
from gnnexp.datasets.reading.npz import NpzFile, open_npy
from gnnexp.datasets.reading.tables import NumberTable
from gnnexp.datasets.reading.unpickle import csr_matrix
from gnnexp.datasets.splits.split import given_split
from gnnexp.errors import ConfigError, DataError, Findings, Problem
from gnnexp.files.regular import is_file
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows

_DEFAULT = "aminer"
_LABELLED = (20, 40, 60)
_LABELS = "labels.npy"
_FIX = "get the file again from its publisher"
# Two letters, the types at both ends: `pa.txt` has papers and their authors.
_RELATION = re.compile(r"([a-z])([a-z])\.txt")
# Pairs of labelled vertices over a path of types, from their type back to it: `apcpa.npz`.
_META_PATH = re.compile(r"([a-z])[a-z]+\1\.npz")
# HeCo's data sets: their relations, and the type with labels.
_KNOWN = {
    "aminer": (["pa", "pr"], "p"),
    "acm": (["pa", "ps"], "p"),
    "dblp": (["pa", "pc", "pt"], "a"),
    "freebase": (["ma", "md", "mw"], "m"),
}
_TYPES = {
    "p": "papers",
    "a": "authors",
    "r": "references",
    "s": "subjects",
    "c": "conferences",
    "t": "terms",
    "m": "movies",
    "d": "directors",
    "w": "writers",
}


@dataclass(kw_only=True, eq=False)
class Aminer(LinkOptions, VerifiedDataset):
    """A typed graph in HeCo's form. Vertices of the labelled type come first: AMiner's papers, authors, references.

    Relations are the files of two letters, such as `pa.txt`, in the order of their names. In AMiner, relation 0 leads
    from papers to their authors, and relation 1 to their references. Relations 2 and 3 are their reverses.

    Attributes:
        name: name of the graph. With a path, the default gives way to acm, dblp or freebase if the folder has the
            relations of these, else to the name of the folder.
        path: folder of the files; null = `$GNNEXP_DATA/<name>`.
        labelled_per_class: number of training vertices per class, 20, 40 or 60. Each number has its published split.
        features: AMiner has no features (`none`). `one_hot` gives each vertex its own column, as sparse rows, like
            HeCo. `given` takes those of the files `<letter>_feat.npz`: each type has its own columns, after a one-hot
            code of the type.
        symmetrize: add the reverse of each edge. Without it AMiner's papers have no in-edges.
        inverse_relations: reverses have their own relations (2 and 3) instead of 0 and 1.
        verify: refuse files that differ from the published files in any byte. Otherwise the record says so.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
        seed: seed of the draw of these links.
    """

    name: str = _DEFAULT
    path: str | None = None
    labelled_per_class: int = 20
    features: Literal["none", "one_hot", "given"] = "none"
    symmetrize: bool = True
    inverse_relations: bool = True
    verify: bool = False

    def __post_init__(self) -> None:
        if self.labelled_per_class not in _LABELLED:
            raise ConfigError(
                Problem(
                    "dataset.labelled_per_class",
                    self.labelled_per_class,
                    "must be 20, 40 or 60",
                    "set dataset.labelled_per_class=20",
                )
            )
        self.check_links()
        place = None if self.path is None else Path(self.path).expanduser()
        if place is not None and self.name == _DEFAULT and _relations(place):
            self.name = _name_of(place)

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A folder with `labels.npy`, files of relations and at least one split."""
        splits = [count for count in _LABELLED if is_file(place / f"train_{count}.npy")]
        if not _relations(place) or not is_file(place / _LABELS) or not splits:
            return None
        lines = [f"dataset.labelled_per_class={splits[0]}"] if splits[0] != _LABELLED[0] else []
        return [*name_override(_name_of(place)), *lines, *(["dataset.features=given"] if _feature_files(place) else [])]

    def sources(self) -> list[Path]:
        """The files of edges and labels, the three files of the split, and those of features if they are used."""
        return list(self._files().values())

    def options(self) -> dict[str, object]:
        """Also the labelled type, where it does not follow from the files that are read."""
        found, (folder, relations) = super().options(), self._relations()
        target = _target(self.name, relations, folder)
        return found if {one[0] for one in relations} == {target} else {**found, "target": target}

    def _relations(self) -> tuple[Path, list[str]]:
        """The folder, and the names of the relations that are read."""
        folder = data_folder(self.path, self.name)
        return folder, _KNOWN[self.name][0] if self.name in _KNOWN else _relations(folder)

    def _files(self) -> dict[str, Path]:
        folder, relations = self._relations()
        if not relations and folder.is_dir():
            raise DataError(
                Problem(
                    str(folder),
                    f"has {listed(folder)}",
                    "must have files of relations, such as pa.txt",
                    where_to_put(self.name),
                )
            )
        splits = [f"{split}_{self.labelled_per_class}.npy" for split in ("train", "val", "test")]
        features = _feature_files(folder) if self.features == "given" else []
        names = [*(f"{relation}.txt" for relation in relations), _LABELS, *splits, *features]
        files = existing_files(folder, names, self.name)
        if self.features == "given" and not features:
            raise DataError(
                Problem(
                    "dataset.features",
                    "given",
                    f"{folder} has no file <letter>_feat.npz",
                    "set dataset.features=one_hot or none",
                )
            )
        return files

    def load(self) -> Graph:
        """The graph in memory. Vertices of the other types have label -1."""
        files = self._files()
        self.check_bytes()
        folder, names = files[_LABELS].parent, [name[:2] for name in files if _RELATION.fullmatch(name)]
        findings = Findings()
        target = findings.attempt(_target, self.name, names, folder)
        labels = findings.attempt(_ids, files[_LABELS], "classes")
        findings.raise_all()
        assert labels is not None and target is not None
        order = list(dict.fromkeys([target, *"".join(names)]))
        pairs = [findings.attempt(_read_pairs, files[f"{name}.txt"], name, order[0], labels.size) for name in names]
        splits = [
            findings.attempt(
                _ids, files[f"{split}_{self.labelled_per_class}.npy"], "ids of labelled vertices", labels.size
            )
            for split in ("train", "val", "test")
        ]
        rows_of_type = {
            letter: findings.attempt(_read_features, files[f"{letter}_feat.npz"])
            for letter in order
            if f"{letter}_feat.npz" in files
        }
        findings.raise_all()
        edges = {name: ends for name, ends in zip(names, pairs, strict=True) if ends is not None}
        features = {letter: rows for letter, rows in rows_of_type.items() if rows is not None}
        sizes = _sizes(order, edges, labels.size, features, folder)
        graph = self._graph(labels, edges, sizes, features, folder, [ids for ids in splits if ids is not None])
        inverses = len(edges) if self.inverse_relations else None
        return self.with_links(checked(graph), symmetrize=self.symmetrize, inverses=inverses, names=[*edges])

    def _graph(
        self,
        labels: np.ndarray,
        edges: Mapping[str, np.ndarray],
        sizes: Mapping[str, int],
        features: Mapping[str, scipy.sparse.csr_array],
        folder: Path,
        splits: Sequence[np.ndarray],
    ) -> Graph:
        starts = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
        num_nodes = sum(sizes.values())
        src, dst = np.concatenate(
            [ends + np.array([starts[name[0]], starts[name[1]]]) for name, ends in edges.items()]
        ).T
        arrays = build_graph(
            src,
            dst,
            num_nodes,
            types=np.repeat(np.arange(len(edges)), [len(ends) for ends in edges.values()]),
            symmetrize=self.symmetrize,
            num_relations=len(edges) if self.inverse_relations else None,
        )
        unused = _feature_files(folder) if self.features == "none" else []
        return Graph(
            arrays.indptr,
            arrays.indices,
            features=self._features(sizes, features),
            labels=torch.from_numpy(np.append(labels, np.full(num_nodes - labels.size, -1))),
            num_classes=int(labels.max()) + 1,
            splits=given_split(*splits),
            edge_types=arrays.types,
            node_types=torch.from_numpy(np.repeat(np.arange(len(sizes), dtype=np.int32), list(sizes.values()))),
            name=self.name,
            notes=(
                f"vertices: {', then '.join(f'{count} {_word(letter)}' for letter, count in sizes.items())}",
                *([f"features in {', '.join(unused)} are not used: dataset.features=given"] if unused else []),
                *self.origin_notes(),
            ),
        )

    def _features(
        self, sizes: Mapping[str, int], rows_of_type: Mapping[str, scipy.sparse.csr_array]
    ) -> SparseRows | torch.Tensor | None:
        if self.features == "none":
            return None
        if self.features == "one_hot":
            return _one_hot(sum(sizes.values()))
        codes = one_hot_columns(np.repeat(np.arange(len(sizes)), list(sizes.values()))[:, None])
        blocks = [
            rows_of_type.get(letter, scipy.sparse.csr_array((count, 0), dtype=np.float32))
            for letter, count in sizes.items()
        ]
        rows = scipy.sparse.csr_array(scipy.sparse.hstack([codes, scipy.sparse.block_diag(blocks)], format="csr"))
        rows.sum_duplicates()
        return feature_rows(rows, "auto", normalize=False)


def _relations(folder: Path) -> list[str]:
    """Names of the relations whose files a folder has, in order."""
    try:
        return sorted(one.name[:2] for one in folder.iterdir() if _RELATION.fullmatch(one.name) and is_file(one))
    except (OSError, ValueError):
        return []


def _feature_files(folder: Path) -> list[str]:
    letters = sorted({letter for relation in _relations(folder) for letter in relation})
    return [f"{letter}_feat.npz" for letter in letters if is_file(folder / f"{letter}_feat.npz")]


def _name_of(folder: Path) -> str:
    found = _relations(folder)
    return next((name for name, (relations, _) in _KNOWN.items() if relations == found), folder.absolute().name)


def _word(letter: str) -> str:
    return _TYPES.get(letter, f"of type {letter}")


def _target(name: str, relations: Sequence[str], folder: Path) -> str:
    """Letter of the type with labels.

    Meta-paths begin and end at this type. Without their files, it is the type that all relations begin with.

    Raises:
        DataError: the type is not clear.
    """
    if name in _KNOWN:
        return _KNOWN[name][1]
    letters = dict.fromkeys("".join(relations))
    ends = {match[1] for file in folder.glob("*.npz") if (match := _META_PATH.fullmatch(file.name))} & {*letters}
    ends = ends or {relation[0] for relation in relations}
    if len(ends) != 1:
        allowed = (
            f"labels are of one of the types {', '.join(letters)}, and it is not clear of which; meta-paths "
            "such as apa.npz say it"
        )
        raise DataError(
            Problem(
                str(folder),
                f"has {listed(folder)}",
                allowed,
                "put the meta-paths of the labelled type next to the relations",
            )
        )
    return ends.pop()


def _ids(path: Path, what: str, bound: int = 1 << 31) -> np.ndarray:
    """`[n]` int64 numbers from 0 to below `bound`; `what` names them in messages."""
    array = open_npy(path)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(Problem(str(path), f"{array.dtype} {array.shape}", f"must be {what}, [n] integers", _FIX))
    if array.size == 0 or not 0 <= int(array.min()) <= int(array.max()) < bound:
        found = f"{array.min()}..{array.max()}" if array.size else "nothing"
        raise DataError(Problem(str(path), found, f"must be {what}, 0 to {bound - 1}", _FIX))
    return array.astype(np.int64)


def _read_pairs(path: Path, relation: str, target: str, num_labelled: int) -> np.ndarray:
    """`[n, 2]` ids of both ends, each in its type; those of the labelled type have a label."""
    pairs = NumberTable(path, "int64", "\t", low=0).read()
    if pairs.shape[0] == 0 or pairs.shape[1] != 2:
        raise DataError(Problem(str(path), f"shape {pairs.shape}", "must be rows of two ids", _FIX))
    for letter, largest in zip(relation, pairs.max(axis=0).tolist(), strict=True):
        if letter == target and largest >= num_labelled:
            allowed = f"{_word(letter)} must be below {num_labelled}, the number of labels"
            raise DataError(Problem(str(path), f"ids up to {largest}", allowed, _FIX))
        if letter != target and not is_believable(largest, len(pairs)):
            raise DataError(
                Problem(str(path), f"ids up to {largest}", f"{_word(letter)} must be numbered from 0 on", _FIX)
            )
    return pairs


def _read_features(path: Path) -> scipy.sparse.csr_array:
    """`[n, D]` features that `scipy.sparse.save_npz` wrote, as CSR or COO.

    Raises:
        DataError: the file is damaged, or has another format.
    """
    file = NpzFile(path)
    file.require("data", "shape")
    shape, data = file.array("shape"), file.array("data")
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or not 0 <= int(shape.min()) <= int(shape.max()) < 1 << 31:
        raise DataError(Problem(f"{path}: shape", str(shape)[:80], "must be two sizes", _FIX))
    rows, columns = (int(size) for size in shape)
    if "indptr" in file:
        return csr_matrix(data, file.array("indices"), file.array("indptr"), (rows, columns), str(path))
    file.require("row", "col")
    row, col = file.array("row"), file.array("col")
    inside = (
        data.ndim == 1 and row.shape == col.shape == data.shape and row.dtype.kind in "iu" and (col.dtype.kind in "iu")
    )
    if not inside or (
        data.size
        and not (0 <= int(row.min()) <= int(row.max()) < rows and 0 <= int(col.min()) <= int(col.max()) < columns)
    ):
        raise DataError(
            Problem(
                str(path), f"{data.shape}, {row.shape}, {col.shape}", f"must be a matrix of {rows} x {columns}", _FIX
            )
        )
    return scipy.sparse.csr_array(scipy.sparse.coo_array((data, (row, col)), shape=(rows, columns)))


def _sizes(
    order: Sequence[str],
    edges: Mapping[str, np.ndarray],
    num_labelled: int,
    features: Mapping[str, scipy.sparse.csr_array],
    folder: Path,
) -> dict[str, int]:
    """Number of vertices of each type: of labels, of rows of features, or up to the largest id.

    Raises:
        DataError: there are fewer rows of features than vertices.
    """
    sizes = {order[0]: num_labelled}
    problems = []
    for letter in order[1:]:
        sizes[letter] = 1 + max(
            int(ends[:, place].max()) for name, ends in edges.items() for place in (0, 1) if name[place] == letter
        )
    for letter, rows in features.items():
        if rows.shape[0] < sizes[letter] or (letter == order[0] and rows.shape[0] != num_labelled):
            problems.append(
                Problem(
                    str(folder / f"{letter}_feat.npz"),
                    f"{rows.shape[0]} rows",
                    f"{sizes[letter]} {_word(letter)} need features",
                    _FIX,
                )
            )
        sizes[letter] = max(sizes[letter], rows.shape[0])
    DataError.raise_all(problems)
    return sizes


def _one_hot(num_nodes: int) -> SparseRows:
    columns = torch.arange(num_nodes, dtype=torch.int32)
    return SparseRows(torch.arange(num_nodes + 1), columns, torch.ones(num_nodes), num_nodes)
