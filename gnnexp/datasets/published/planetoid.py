"""Cora, Citeseer, Pubmed, NELL and any others in the form of Yang et al. (ICML 2016), with the public split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse

from gnnexp.datasets.base import VerifiedDataset, data_folder, existing_files, labelled_graph, where_to_put
from gnnexp.datasets.options import LinkOptions
from gnnexp.datasets.published.archives import name_override
from gnnexp.datasets.reading.features import Sparse, feature_rows
from gnnexp.datasets.reading.pickled import PickledDict
from gnnexp.datasets.reading.unpickle import Pickles, as_array, as_csr
from gnnexp.datasets.splits.split import given_split, random_split
from gnnexp.errors import DataError, Findings, Problem
from gnnexp.files.regular import is_file, is_folder
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph, Splits

_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_NUM_VALIDATION = 500
_HOLDOUT = 0.2
_DEFAULT, _NELL = "cora", "nell"
# Label rates are in the names of NELL's files; 0.001 is that of the papers.
_NELL_FILES = "nell.0.001"
_WHOLE = ("cora", "citeseer", "pubmed")  # published with all labels
_NO_ALLX = "no allx file: features are zero except those of the labelled training and test vertices"
_NO_VALIDATION = "no labels for validation behind those of y: a fifth of the training vertices is held out"
_NO_ALLY = (
    "no ally file, which has the published 500 validation labels: only the labels of training and test vertices are "
    "known. A fifth of the training vertices is held out for validation"
)


@dataclass(kw_only=True, eq=False)
class Planetoid(LinkOptions, VerifiedDataset):
    """A planetoid dataset: `ind.<name>.{x,tx,allx,y,ty,ally,graph,test.index}` in one folder.

    Attributes:
        name: name of the dataset, cora, citeseer, pubmed, nell or any other. With a path, the default gives way to the
            name of the only dataset there. NELL has one-hot features for its relation vertices, so its features stay
            sparse.
        path: folder of the files, or one of them; null = `$GNNEXP_DATA/<name>`.
        normalize_features: divide each row by its sum.
        sparse: features as sparse rows (true), dense (false), or by their size (auto).
        missing_features: without `allx`, stop (`error`), or set the unknown features to zero (`zeros`).
        symmetrize: add the reverse of each edge.
        self_loops: `keep`, `add` or `remove`.
        verify: refuse files that differ from the published files in any byte. Otherwise the record says so.
        seed: seed of random draws: held-out links, and validation vertices of a dataset without published ones, such as
            NELL.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
    """

    name: Literal["cora", "citeseer", "pubmed", "nell"] | str = _DEFAULT
    path: str | None = None
    normalize_features: bool = True
    sparse: Sparse = "auto"
    missing_features: Literal["error", "zeros"] = "error"
    symmetrize: bool = True
    self_loops: Literal["keep", "add", "remove"] = "remove"
    verify: bool = False

    def __post_init__(self) -> None:
        self.check_links(self.self_loops)
        if self.path is not None and self.name == _DEFAULT:
            found = _meant(Path(self.path).expanduser())
            self.name = found[0] if len(found) == 1 else self.name

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A folder with the files of one dataset, or one of these files.

        Raises:
            DataError: the folder has several datasets.
        """
        names = _meant(place)
        if len(names) > 1:
            raise DataError(
                Problem(
                    "PATH",
                    str(place),
                    f"has {len(names)} data sets: {', '.join(names)}",
                    f"gnnexp run dataset=planetoid dataset.name={names[0]} dataset.path={place}",
                )
            )
        return name_override(names[0]) if names else None

    def sources(self) -> list[Path]:
        """The existing files of the dataset. Only files that may be missing are left out."""
        return list(self._files().values())

    def _files(self) -> dict[str, Path]:
        folder, prefix = _inside(data_folder(self.path, self.name)), f"ind.{_stem(self.name)}"
        optional: set[str] = set() if self.name in _WHOLE else {"ally"}
        if self.missing_features == "zeros":
            optional.add("allx")
        names = {part: f"{prefix}.{part}" for part in _PARTS}
        present = {part for part in optional if is_file(folder / names[part])}
        needed = [part for part in _PARTS if part not in optional or part in present]
        try:
            paths = existing_files(folder, [names[part] for part in needed], self.name)
        except DataError as error:
            raise DataError([self._with_fix(problem, folder) for problem in error.problems]) from None
        return {part: paths[names[part]] for part in needed}

    def _with_fix(self, problem: Problem, folder: Path) -> Problem:
        others = [name for name in _names(folder) if name != self.name]
        if others:
            fix = "set " + " or ".join(f"dataset.name={name}" for name in others[:3])
            return Problem(problem.key, problem.value, problem.allowed, fix)
        if not problem.key.endswith(".allx"):
            return problem
        fix = f"{where_to_put(self.name)}, or dataset.missing_features=zeros to train without these features"
        return Problem(problem.key, problem.value, problem.allowed, fix)

    def load(self) -> Graph:
        """The graph in memory. Vertices without a label have label -1."""
        files = self._files()
        self.check_bytes()
        findings = Findings()
        parts: dict[str, Any] = {part: findings.attempt(_read, path) for part, path in files.items()}
        findings.raise_all()
        key = str(files["graph"])
        _check_parts(parts, key)
        src, dst, num_nodes = _edges(parts["graph"], parts["test.index"], key)
        features = feature_rows(self._features(parts, num_nodes), self.sparse, normalize=self.normalize_features)
        labels, splits = _labels(parts, num_nodes), self._splits(parts, num_nodes)
        arrays = build_graph(src, dst, num_nodes, symmetrize=self.symmetrize, self_loops=self.self_loops, key=key)
        notes = self._notes(parts, num_nodes)
        graph = labelled_graph(self, arrays, labels, parts["y"].shape[1], splits, features, notes)
        return self.with_links(graph, symmetrize=self.symmetrize)

    def _features(self, parts: Mapping[str, Any], num_nodes: int) -> scipy.sparse.csr_array:
        known = parts["allx"] if "allx" in parts else parts["x"]
        rows = np.concatenate([np.arange(known.shape[0]), parts["test.index"]])
        stacked = scipy.sparse.vstack([known, parts["tx"]], format="csr")
        if self.name.partition(".")[0] == _NELL:
            others = np.setdiff1d(np.arange(num_nodes), rows)
            stacked = scipy.sparse.block_diag([stacked, scipy.sparse.eye_array(others.size)], format="csr")
            rows = np.concatenate([rows, others])
        scatter = scipy.sparse.csr_array(
            (np.ones(rows.size, np.float32), (rows, np.arange(rows.size))), shape=(num_nodes, rows.size)
        )
        features = scipy.sparse.csr_array(scatter @ stacked)
        features.sum_duplicates()
        return features

    def _splits(self, parts: Mapping[str, Any], num_nodes: int) -> Splits:
        labelled = np.arange(parts["y"].shape[0])
        if count := _num_validation(parts):
            val = np.arange(labelled.size, labelled.size + count)
            return given_split(labelled, val, parts["test.index"])
        among = np.zeros(num_nodes, bool)
        among[labelled] = True
        drawn = random_split(num_nodes, 1 - _HOLDOUT, _HOLDOUT, seed=self.seed, among=among)
        return given_split(drawn.train.numpy(), drawn.val.numpy(), parts["test.index"])

    def _notes(self, parts: Mapping[str, Any], num_nodes: int) -> tuple[str, ...]:
        notes = [_NO_ALLX] if "allx" not in parts else []
        notes += [_NO_ALLY] if "ally" not in parts else [] if _num_validation(parts) else [_NO_VALIDATION]
        if "ally" in parts:
            unlabelled = num_nodes - parts["ally"].shape[0] - parts["test.index"].size
            if unlabelled:
                notes.append(f"{unlabelled} vertices are in the graph only: zero features, no label, in no split")
        return tuple(notes)


def _num_validation(parts: Mapping[str, Any]) -> int:
    """Number of validation vertices, which come after those of `y`: 500 in published datasets, 0 without labels."""
    return max(0, min(_NUM_VALIDATION, parts["ally"].shape[0] - parts["y"].shape[0])) if "ally" in parts else 0


def _inside(place: Path) -> Path:
    """The folder of the files: `place`, that of the file `place`, or `raw` in it (as PyTorch Geometric has it)."""
    folder = place.parent if is_file(place) and place.name.startswith("ind.") else place
    return folder / "raw" if not _names(folder) and is_folder(folder / "raw") else folder


def _meant(place: Path) -> list[str]:
    """Names of the datasets of which `place` is the folder, or a file."""
    found = _names(_inside(place))
    return [name for name in found if place.name.startswith(f"ind.{_stem(name)}.")] if is_file(place) else found


def _names(folder: Path) -> list[str]:
    """Names of the datasets in a folder."""
    try:
        stems = sorted(one.name[len("ind.") : -len(".graph")] for one in folder.glob("ind.?*.graph"))
    except OSError:
        return []
    return [_NELL if stem == _NELL_FILES else stem for stem in stems]


def _stem(name: str) -> str:
    return _NELL_FILES if name == _NELL else name


def _read(path: Path) -> Any:  # noqa: ANN401
    """The content of one file; the end of its name decides the format."""
    key, part = str(path), path.name.rpartition(".")[2]
    if part == "index":
        return _read_index(path)
    value = Pickles.of_file(path).load()
    if part == "graph":
        return value
    return as_array(value, key) if part in ("y", "ty", "ally") else as_csr(value, key)


def _read_index(path: Path) -> np.ndarray:
    try:
        return np.array([int(line) for line in path.read_text(encoding="ascii").split()], dtype=np.int64)
    except (ValueError, OverflowError) as error:
        fix = "get the file again from its publisher"
        raise DataError(Problem(str(path), str(error)[:200], "one vertex id per line", fix)) from None


def _check_parts(parts: Mapping[str, Any], key: str) -> None:
    """Check that the parts fit together."""
    problems = []

    def expect(condition: bool, present: object, allowed: str) -> None:
        if not condition:
            problems.append(Problem(key.removesuffix("graph") + "*", present, allowed, "get the files again"))

    shapes = {part: value.shape for part, value in parts.items() if hasattr(value, "shape")}
    two = [part for part in shapes if part != "test.index"]
    expect(all(len(shapes[part]) == 2 for part in two), shapes, "features and labels must be matrices")
    if not problems:
        widths = {shapes[part][1] for part in ("x", "tx", "allx") if part in shapes}
        expect(len(widths) == 1, shapes, "x, tx and allx must have the same columns")
        classes = {shapes[part][1] for part in ("y", "ty", "ally") if part in shapes}
        expect(len(classes) == 1, shapes, "y, ty and ally must have the same columns")
        for features, labels in (("x", "y"), ("tx", "ty"), ("allx", "ally"), ("tx", "test.index")):
            fits = not {features, labels} <= set(shapes) or shapes[features][0] == shapes[labels][0]
            expect(fits, shapes, f"{features} and {labels} must have the same rows")
        for part in ("y", "ty", "ally"):
            hot = parts[part] if part in parts else np.ones((1, 1))
            expect(bool(((hot == 0) | (hot == 1)).all() and (hot.sum(axis=1) <= 1).all()), part, "must be one-hot")
        index, known = parts["test.index"], max(shapes[part][0] for part in ("allx", "ally", "y") if part in shapes)
        expect(np.unique(index).size == index.size, "repeated ids", "ids of test.index must be unique")
        expect(index.size > 0 and int(index.min()) >= known, "test.index", f"test ids must be {known} or more")
    DataError.raise_all(problems)


def _edges(adjacency: object, index: np.ndarray, key: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Sources, destinations and number of vertices of a dictionary of neighbour lists."""
    fix = "get the file again from its publisher"
    pairs = adjacency.pairs if isinstance(adjacency, PickledDict) else None
    if pairs is None or not all(isinstance(row, list) for _, row in pairs):
        raise DataError(Problem(key, type(adjacency).__name__, "must map vertices to lists of vertices", fix))
    vertices, rows = [vertex for vertex, _ in pairs], [row for _, row in pairs if isinstance(row, list)]
    if not all(type(vertex) is int for vertex in chain(vertices, chain.from_iterable(rows))):
        raise DataError(Problem(key, "something else", "must map vertex ids to lists of vertex ids", fix))
    num_nodes = len(vertices)
    largest = max(chain(vertices, chain.from_iterable(rows), index.tolist()), default=0)
    smallest = min(chain(vertices, chain.from_iterable(rows)), default=0)
    if smallest < 0 or largest >= num_nodes:
        shown = f"ids {str(smallest)[:40]}..{str(largest)[:40]}"
        raise DataError(Problem(key, shown, f"ids must be in 0..{num_nodes - 1}", fix))
    keys, lengths = np.array(vertices, np.int64), [len(row) for row in rows]
    if np.unique(keys).size < num_nodes:
        raise DataError(Problem(key, "a vertex twice", "must have one list of neighbours per vertex", fix))
    src = np.fromiter(chain.from_iterable(rows), np.int64, sum(lengths))
    return src, np.repeat(keys, lengths), num_nodes


def _labels(parts: Mapping[str, Any], num_nodes: int) -> np.ndarray:
    labels = np.full(num_nodes, -1, np.int64)
    for part, rows in (("y", None), ("ally", None), ("ty", parts["test.index"])):
        if part in parts:
            hot = parts[part]
            ids = np.arange(hot.shape[0]) if rows is None else rows
            labels[ids] = np.where(hot.any(axis=1), hot.argmax(axis=1), -1)
    return labels
