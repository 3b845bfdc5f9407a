"""Open Graph Benchmark datasets (Hu et al., NeurIPS 2020) in the folder layout that the `ogb` package downloads."""

from __future__ import annotations

import importlib
import io
import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from gnnexp.datasets.base import ROOT_VARIABLE, Dataset, check_memory, checked, data_folder, no_edges, where_to_put
from gnnexp.datasets.npz import DAMAGE, NpzFile
from gnnexp.datasets.split import given_split
from gnnexp.datasets.tables import Table
from gnnexp.datasets.unpickle import Pickles, as_array
from gnnexp.errors import ConfigError, DataError, Findings, Problem
from gnnexp.graph.build import CscArrays, build_graph
from gnnexp.graph.graph import Graph, Splits

_SPLITS = ("train", "valid", "test")
_FORMAT_MEND = "check that it is the folder of an ogbn-* or ogbl-* dataset with one kind of vertices and edges"


@dataclass(frozen=True)
class _Raw:
    """`raw/`: edges `[E, 2]`, V, and what else there is."""

    edges: np.ndarray
    num_nodes: int
    features: np.ndarray | None
    labels: np.ndarray | None
    edge_features: np.ndarray | None
    key: str


class Ogb(Dataset):
    """A node-property (`ogbn-*`) or link-property (`ogbl-*`) dataset with one kind of vertices and edges.

    Link property: the graph is what `raw/` holds, the training edges; where `train.pt` is absent they are the positive
    training pairs too.

    Args:
        name: by OGB's name.
        path: its folder (with `raw/` and `split/`); null = `$GNNEXP_DATA/<name>`, with dashes or underscores.
        scheme: folder inside `split/`; null = the only one.
        download: let the `ogb` package download it if the folder is not there.
        edge_features: read them, where there are any.
        symmetrize: add the reverse of every edge.
        self_loops: `keep`, `add` or `remove`.
    """

    unkeyed = frozenset({"path", "download"})

    def __init__(
        self,
        *,
        name: str = "ogbn-arxiv",
        path: str | None = None,
        scheme: str | None = None,
        download: bool = False,
        edge_features: bool = False,
        symmetrize: bool = True,
        self_loops: Literal["keep", "add", "remove"] = "remove",
    ) -> None:
        if not name.startswith(("ogbn-", "ogbl-")):
            mend = "set dataset.name=ogbn-arxiv"
            raise ConfigError(Problem("dataset.name", name, "a name that starts with ogbn- or ogbl-", mend))
        self.name = name
        self.path = path
        self.scheme = scheme
        self.download = download
        self.edge_features = edge_features
        self.symmetrize = symmetrize
        self.self_loops = self_loops

    @property
    def at_hand(self) -> bool:
        """Nothing is downloaded for a run that cannot start."""
        return not self.download

    def missing(self) -> list[Problem]:
        """See `Dataset.missing`; what is to be downloaded is not missing."""
        return [] if self.download else super().missing()

    def sources(self) -> list[Path]:
        """Every file under `raw/` and the split that is read."""
        folder = self._folder()
        return sorted(path for part in (folder / "raw", self._split_folder(folder)) for path in part.iterdir())

    def load(self) -> Graph:
        """The graph."""
        folder = self._folder()
        findings = Findings()
        binary = (folder / "raw" / "data.npz").is_file()
        raw = findings.attempt(_read_binary, folder) if binary else findings.attempt(_read_text, folder, findings)
        split, links = self._split_folder(folder), self.name.startswith("ogbl-")
        if raw is None:
            findings.attempt(_split_files, split, *_names(split, links))
            findings.raise_all()
        assert raw is not None
        arrays = findings.attempt(self._build, raw) or no_edges(raw.num_nodes)
        labels, num_classes = findings.attempt(_as_labels, raw.labels, raw.key) or (None, 0)
        splits = None if links else findings.attempt(_read_splits, split, raw.num_nodes)
        pairs = findings.attempt(_read_links, split, raw) if links else {}
        graph = Graph(
            arrays.indptr,
            arrays.indices,
            features=None if raw.features is None else torch.from_numpy(raw.features.astype(np.float32, copy=False)),
            labels=labels,
            num_classes=num_classes,
            splits=splits or given_split(*(np.empty(0, np.int64),) * 3),
            edge_features=arrays.edge_features,
            links=pairs or {},
            name=self.name,
            notes=(f"published split {split.name!r}",),
        )
        return checked(graph, findings=findings)

    def _build(self, raw: _Raw) -> CscArrays:
        return build_graph(
            raw.edges[:, 0],
            raw.edges[:, 1],
            raw.num_nodes,
            symmetrize=self.symmetrize,
            self_loops=self.self_loops,
            edge_features=raw.edge_features if self.edge_features else None,
            key=raw.key,
        )

    def _folder(self) -> Path:
        directories = (self.name, self.name.replace("-", "_"))
        try:
            return data_folder(self.path, *directories)
        except DataError:
            if not self.download:
                raise
        _download(self.name, self._download_root())
        return data_folder(self.path, *directories)

    def _download_root(self) -> Path:
        root = os.environ.get(ROOT_VARIABLE)
        expected = self.name.replace("-", "_")
        if self.path is not None:
            if Path(self.path).name != expected:
                mend = f"set dataset.path=…/{expected}, the folder that OGB makes"
                raise ConfigError(Problem("dataset.path", self.path, f"must end in {expected} to download", mend))
            return Path(self.path).expanduser().parent
        if not root:
            raise ConfigError(Problem("dataset.download", True, "needs a place to put it", where_to_put(expected)))
        return Path(root).expanduser()

    def _split_folder(self, folder: Path) -> Path:
        parent = folder / "split"
        found = [path.name for path in sorted(parent.iterdir()) if path.is_dir()] if parent.is_dir() else []
        scheme = self.scheme if self.scheme is not None or len(found) != 1 else found[0]
        if scheme not in found or not (folder / "raw").is_dir():
            place = folder if self.scheme is None and not found else parent
            allowed = "a folder with raw/ and split/<scheme>/"
            raise DataError(Problem(str(place), f"scheme {scheme}, found {found}", allowed, _FORMAT_MEND))
        return parent / str(scheme)


def _table(path: Path, dtype: Literal["int64", "float32", "float64"], high: int | None = None) -> np.ndarray:
    return Table(path, dtype, low=0 if dtype == "int64" else None, high=high).read()


def _read_text(folder: Path, findings: Findings) -> _Raw:
    """The layout of most: text files. Problems of all but V are found by `findings`."""
    raw = folder / "raw"
    needed = [raw / "edge.csv.gz", raw / "num-node-list.csv.gz"]
    _require(needed)
    counts = _table(needed[1], "int64")
    if counts.size != 1 or int(counts[0, 0]) == 0:
        raise DataError(Problem(str(needed[1]), counts.tolist(), "must be one number of vertices", _FORMAT_MEND))
    num_nodes = int(counts[0, 0])
    check_memory(24 * num_nodes, f"{needed[1]}: {num_nodes} vertices")

    def read_edges() -> np.ndarray:
        edges = _table(needed[0], "int64", high=num_nodes)
        if edges.shape[1] != 2:
            raise DataError(Problem(str(needed[0]), f"{edges.shape[1]} columns", "must have two columns", _FORMAT_MEND))
        return edges

    def optional(name: str, dtype: Literal["float32", "float64"], rows: int | None) -> np.ndarray | None:
        path = raw / f"{name}.csv.gz"
        if not path.is_file():
            return None
        table = _table(path, dtype)
        if rows is not None and table.shape[0] != rows:
            raise DataError(Problem(str(path), f"{table.shape[0]} rows", f"must have {rows}", _FORMAT_MEND))
        return table

    edges = findings.attempt(read_edges)
    rows = None if edges is None else edges.shape[0]
    features = findings.attempt(optional, "node-feat", "float32", num_nodes)
    labels = findings.attempt(optional, "node-label", "float64", num_nodes)
    edge_features = findings.attempt(optional, "edge-feat", "float32", rows)
    if edges is None:
        edges, edge_features = np.empty((0, 2), np.int64), None
    return _Raw(edges, num_nodes, features, labels, edge_features, str(needed[0]))


def _read_binary(folder: Path) -> _Raw:
    """The layout of ogbn-papers100M: `raw/data.npz` and `raw/node-label.npz`."""
    path = folder / "raw" / "data.npz"
    file, labels = NpzFile(path), NpzFile(folder / "raw" / "node-label.npz")
    file.require("edge_index", "num_nodes_list")
    edges, counts = file.array("edge_index"), file.array("num_nodes_list")
    features = file.array("node_feat") if "node_feat" in file else None
    counted = counts.size == 1 and counts.dtype.kind in "iu" and int(counts.ravel()[0]) > 0
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu" or not counted:
        found = f"edge_index {edges.dtype} {edges.shape}, num_nodes_list {counts.dtype} {counts.shape}"
        raise DataError(Problem(str(path), found, "must be [2, E] integers and one count", _FORMAT_MEND))
    num_nodes = int(counts.ravel()[0])
    check_memory(24 * num_nodes, f"{path}: {num_nodes} vertices")
    values = labels.array("node_label").astype(np.float64)
    if values.size == 0 or values.shape[:1] != (num_nodes,):
        key = f"{labels.path}: node_label"
        raise DataError(Problem(key, values.shape, f"must have {num_nodes} rows", _FORMAT_MEND))
    return _Raw(edges.T, num_nodes, features, values.reshape(num_nodes, -1), None, str(path))


def _as_labels(values: np.ndarray | None, key: str) -> tuple[torch.Tensor | None, int]:
    """Labels and C; one column holds classes (NaN = none), several are zeros and ones."""
    if values is None:
        return None, 0
    if values.shape[1] > 1:
        return torch.from_numpy(values.astype(np.float32)), values.shape[1]
    classes = np.where(np.isnan(values[:, 0]), -1, values[:, 0])
    if (classes != np.floor(classes)).any() or np.abs(classes).max() >= 2**31:
        raise DataError(Problem(f"{key}: labels", "fractions", "classes must be whole numbers", _FORMAT_MEND))
    return torch.from_numpy(classes.astype(np.int64)), int(classes.max()) + 1


def _read_splits(folder: Path, num_nodes: int) -> Splits:
    findings = Findings()
    files = _split_files(folder, ".csv.gz", _SPLITS).values()
    ids = [findings.attempt(_table, path, "int64", high=num_nodes) for path in files]
    findings.raise_all()
    return given_split(*(part.ravel() for part in ids if part is not None))


def _names(folder: Path, links: bool) -> tuple[str, tuple[str, ...]]:
    """Ending and names of the files of a split."""
    if not links:
        return ".csv.gz", _SPLITS
    return ".pt", _SPLITS if (folder / "train.pt").is_file() else _SPLITS[1:]


def _split_files(folder: Path, suffix: str, names: tuple[str, ...]) -> dict[str, Path]:
    paths = {name: folder / f"{name}{suffix}" for name in names}
    _require(paths.values())
    return paths


def _require(paths: Iterable[Path]) -> None:
    missing = [
        Problem(str(path), "missing", "this file of the dataset is needed", _FORMAT_MEND)
        for path in paths
        if not path.is_file()
    ]
    if missing:
        raise DataError(missing)


def _read_links(folder: Path, raw: _Raw) -> dict[str, torch.Tensor]:
    """Pairs by name; training pairs are the edges of `raw/` where there is no `train.pt`."""
    files = _split_files(folder, *_names(folder, links=True))
    links = {} if "train" in files else {"train": raw.edges.astype(np.int64)}
    for name, path in files.items():
        content = _read_pt(path)
        links[name] = _pairs(content, "edge", path, raw.num_nodes)
        if name != "train":
            links[f"{name}_neg"] = _pairs(content, "edge_neg", path, raw.num_nodes)
    return {name: torch.from_numpy(pairs) for name, pairs in links.items()}


def _pairs(content: Mapping[str, Any], name: str, path: Path, num_nodes: int) -> np.ndarray:
    key = f"{path}: {name}"
    if name not in content:
        allowed = "pairs `edge` and `edge_neg` are needed"
        raise DataError(Problem(key, f"has {sorted(map(str, content))}", allowed, _FORMAT_MEND))
    pairs = as_array(content[name], key)
    within = pairs.size == 0 or 0 <= int(pairs.min()) <= int(pairs.max()) < num_nodes
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu" or not within:
        raise DataError(Problem(key, f"{pairs.dtype} {pairs.shape}", f"pairs of ids below {num_nodes}", _FORMAT_MEND))
    return pairs.astype(np.int64)


def _read_pt(path: Path) -> Mapping[str, Any]:
    """A dictionary of numpy arrays saved by torch, which `torch.load(weights_only=True)` refuses."""
    file = Pickles.of_file(path)
    zipped = file.content.startswith(b"PK")
    # Legacy torch files: magic number, protocol, system, the object, storage keys.
    content = Pickles(_zipped_pickle(file.content, path), str(path)).load() if zipped else file.load_all(4)[3]
    if not isinstance(content, dict):
        raise DataError(Problem(str(path), type(content).__name__, "must be a dictionary of pairs", _FORMAT_MEND))
    return content


def _zipped_pickle(raw: bytes, path: Path) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            # torch stores without compression: what claims to be larger than the file is refused.
            info = archive.getinfo(name)
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > len(raw):
                raise zipfile.BadZipFile("compressed")
            return archive.read(name)
    except (*DAMAGE, StopIteration) as error:
        raise DataError(Problem(str(path), str(error)[:200], "must be a file of torch.save", _FORMAT_MEND)) from None


def _download(name: str, root: Path) -> None:
    kind = "Node" if name.startswith("ogbn-") else "Link"
    try:
        package = importlib.import_module(f"ogb.{kind.lower()}proppred")
    except ImportError:
        mend = "pip install ogb, or download it elsewhere and set dataset.path"
        raise ConfigError(Problem("dataset.download", True, "needs the package ogb", mend)) from None
    try:
        getattr(package, f"{kind}PropPredDataset")(name=name, root=str(root))
    except (OSError, ValueError, RuntimeError) as error:
        mend = "check the name and the network, or download it elsewhere and set dataset.path"
        raise DataError(Problem(name, str(error)[:200], "could not be downloaded", mend)) from None
