"""Open Graph Benchmark datasets (Hu et al., NeurIPS 2020) in the folder layout that the `ogb` package downloads."""

from __future__ import annotations

import importlib
import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from gnnexp.datasets.base import ROOT_VARIABLE, Dataset, checked, data_folder, no_edges, require, where_to_put
from gnnexp.datasets.reading.features import Sparse, typed_rows
from gnnexp.datasets.reading.npz import DAMAGE
from gnnexp.datasets.reading.ogb_raw import FORMAT_FIX, TYPES, OgbRaw, read_binary, read_table, read_text, read_typed
from gnnexp.datasets.reading.pickled import PickledDict
from gnnexp.datasets.reading.unpickle import Pickles, as_array
from gnnexp.datasets.splits.split import given_split
from gnnexp.errors import ConfigError, DataError, Findings, Problem
from gnnexp.graph.build import CscArrays, build_graph
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.sparse import SparseRows

_SPLITS = ("train", "valid", "test")


@dataclass(kw_only=True, eq=False)
class Ogb(Dataset):
    """A node-property dataset (`ogbn-*`, including ogbn-mag) or a link-property dataset (`ogbl-*`).

    In link-property datasets, the graph has the training edges in `raw/`. Without a file `train.pt`, these edges are
    also the positive training pairs. In node-property datasets with several types of vertices and edges, the types and
    relations have the order of the dataset's lists. Vertices of a type without features have zeros.

    Attributes:
        name: OGB's name of the dataset.
        path: folder of the dataset (with `raw/` and `split/`); null = `$GNNEXP_DATA/<name>`, with dashes or
            underscores.
        scheme: folder in `split/`; null = the only one.
        download: let the `ogb` package download the dataset if the folder does not exist.
        edge_features: read edge features, if there are any.
        symmetrize: add the reverse of each edge.
        self_loops: `keep`, `add` or `remove`.
        inverse_relations: if there are several relations, the reverse of an edge of relation r has relation R + r.
        features_by_type: if there are several types of vertices, give each type its own columns (`features_by_type`).
        sparse: features by type as sparse rows (true), dense (false), or by their size (auto).
    """

    unkeyed: ClassVar[frozenset[str]] = frozenset({"path", "download"})

    name: str = "ogbn-arxiv"
    path: str | None = None
    scheme: str | None = None
    download: bool = False
    edge_features: bool = False
    symmetrize: bool = True
    self_loops: Literal["keep", "add", "remove"] = "remove"
    inverse_relations: bool = True
    features_by_type: bool = False
    sparse: Sparse = "auto"

    def __post_init__(self) -> None:
        if not self.name.startswith(("ogbn-", "ogbl-")):
            fix = "set dataset.name=ogbn-arxiv"
            raise ConfigError(Problem("dataset.name", self.name, "a name that starts with ogbn- or ogbl-", fix))

    @property
    def at_hand(self) -> bool:
        """False if the dataset may be downloaded: first the rest of the configuration is checked."""
        return not self.download

    def missing(self) -> list[Problem]:
        """Problems of missing files; empty if they may be downloaded."""
        return [] if self.download else super().missing()

    def sources(self) -> list[Path]:
        """All files in `raw/` and in the folder of the split."""
        folder = self._folder()
        parts = (folder / "raw", self._split_folder(folder))
        return sorted(path for part in parts for path in part.rglob("*") if path.is_file())

    def load(self) -> Graph:
        """The graph in memory."""
        folder = self._folder()
        findings = Findings()
        split, links = self._split_folder(folder), self.name.startswith("ogbl-")
        typed = (folder / "raw" / TYPES).is_file()
        raw = findings.attempt(self._read, folder, typed, findings)
        if raw is None:
            if not typed:
                findings.attempt(_split_files, split, *_names(split, links))
            findings.raise_all()
        assert raw is not None
        types = raw.types
        arrays = findings.attempt(self._build, raw) or no_edges(raw.num_nodes)
        labels, num_classes = findings.attempt(_as_labels, raw.labels, raw.key) or (None, 0)
        splits = None if links else findings.attempt(_read_splits, split, raw)
        pairs = findings.attempt(_read_links, split, raw) if links else {}
        graph = Graph(
            arrays.indptr,
            arrays.indices,
            features=findings.attempt(self._features, raw),
            labels=labels,
            num_classes=num_classes,
            splits=splits or given_split(*(np.empty(0, np.int64),) * 3),
            edge_types=arrays.types,
            node_types=None if types is None else torch.from_numpy(types.nodes),
            edge_features=arrays.edge_features,
            links=pairs or {},
            name=self.name,
            notes=(f"published split {split.name!r}", *(() if types is None else types.notes)),
        )
        return checked(graph, findings=findings)

    def _read(self, folder: Path, typed: bool, findings: Findings) -> OgbRaw:
        if not typed:
            binary = (folder / "raw" / "data.npz").is_file()
            return read_binary(folder) if binary else read_text(folder, findings)
        if self.edge_features or self.name.startswith("ogbl-"):
            raise DataError(Problem(str(folder), f"{self.name}, edge_features={self.edge_features}",
                                    "of datasets with several kinds of vertices, only ogbn-* without edge features",
                                    "set dataset.edge_features=false, or choose dataset=triples for a knowledge graph"))
        return read_typed(folder)

    def _build(self, raw: OgbRaw) -> CscArrays:
        types = raw.types
        return build_graph(
            raw.edges[:, 0],
            raw.edges[:, 1],
            raw.num_nodes,
            types=None if types is None else types.edges,
            symmetrize=self.symmetrize,
            num_relations=types.num_relations if types is not None and self.inverse_relations else None,
            self_loops=self.self_loops,
            edge_features=raw.edge_features if self.edge_features else None,
            key=raw.key,
        )

    def _features(self, raw: OgbRaw) -> torch.Tensor | SparseRows | None:
        if self.features_by_type:
            return typed_rows(raw.features, None if raw.types is None else raw.types.nodes, self.sparse)
        return None if raw.features is None else torch.from_numpy(raw.features.astype(np.float32, copy=False))

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
                fix = f"set dataset.path=…/{expected}, the folder that OGB makes"
                raise ConfigError(Problem("dataset.path", self.path, f"must end in {expected} to download", fix))
            return Path(self.path).expanduser().parent
        if not root:
            raise ConfigError(Problem("dataset.download", True, "needs a folder for downloads", where_to_put(expected)))
        return Path(root).expanduser()

    def _split_folder(self, folder: Path) -> Path:
        parent = folder / "split"
        found = [path.name for path in sorted(parent.iterdir()) if path.is_dir()] if parent.is_dir() else []
        scheme = self.scheme if self.scheme is not None or len(found) != 1 else found[0]
        if scheme not in found or not (folder / "raw").is_dir():
            place = folder if self.scheme is None and not found else parent
            allowed = "a folder with raw/ and split/<scheme>/"
            raise DataError(Problem(str(place), f"scheme {scheme}, found {found}", allowed, FORMAT_FIX))
        return parent / str(scheme)


def _as_labels(values: np.ndarray | None, key: str) -> tuple[torch.Tensor | None, int]:
    """Labels and number of classes. One column has classes (NaN = no label); several columns have zeros and ones."""
    if values is None:
        return None, 0
    if values.shape[1] > 1:
        return torch.from_numpy(values.astype(np.float32)), values.shape[1]
    classes = np.where(np.isnan(values[:, 0]), -1, values[:, 0])
    if (classes != np.floor(classes)).any() or np.abs(classes).max() >= 2**31:
        raise DataError(Problem(f"{key}: labels", "fractions", "classes must be whole numbers", FORMAT_FIX))
    return torch.from_numpy(classes.astype(np.int64)), int(classes.max()) + 1


def _read_splits(folder: Path, raw: OgbRaw) -> Splits:
    """The splits. If there are several types of vertices, they have only vertices of the type with labels."""
    findings, types = Findings(), raw.types
    members = range(raw.num_nodes) if types is None else types.members
    files = _split_files(folder if types is None else folder / types.labelled, ".csv.gz", _SPLITS).values()
    ids = [findings.attempt(read_table, path, "int64", high=len(members)) for path in files]
    findings.raise_all()
    return given_split(*(members.start + part.ravel() for part in ids if part is not None))


def _names(folder: Path, links: bool) -> tuple[str, tuple[str, ...]]:
    """Suffix and names of the files of a split."""
    if not links:
        return ".csv.gz", _SPLITS
    return ".pt", _SPLITS if (folder / "train.pt").is_file() else _SPLITS[1:]


def _split_files(folder: Path, suffix: str, names: tuple[str, ...]) -> dict[str, Path]:
    paths = {name: folder / f"{name}{suffix}" for name in names}
    require(paths.values(), FORMAT_FIX)
    return paths


def _read_links(folder: Path, raw: OgbRaw) -> dict[str, torch.Tensor]:
    """Pairs by name. Without `train.pt`, the training pairs are the edges in `raw/`."""
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
        raise DataError(Problem(key, f"has {str(sorted(content))[:200]}", allowed, FORMAT_FIX))
    pairs = as_array(content[name], key)
    within = pairs.size == 0 or 0 <= int(pairs.min()) <= int(pairs.max()) < num_nodes
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu" or not within:
        raise DataError(Problem(key, f"{pairs.dtype} {pairs.shape}", f"pairs of ids below {num_nodes}", FORMAT_FIX))
    return pairs.astype(np.int64)


def _read_pt(path: Path) -> Mapping[str, Any]:
    """A dictionary of numpy arrays saved by torch, which `torch.load(weights_only=True)` refuses."""
    file = Pickles.of_file(path)
    zipped = file.content.startswith(b"PK")
    # Legacy torch files: magic number, protocol, system, the object, storage keys.
    content = Pickles(_zipped_pickle(file.content, path), str(path)).load() if zipped else file.load_all(4)[3]
    if not isinstance(content, PickledDict):
        raise DataError(Problem(str(path), type(content).__name__, "must be a dictionary of pairs", FORMAT_FIX))
    return content.named()


def _zipped_pickle(raw: bytes, path: Path) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            # torch stores without compression, so a member that claims to be larger than the file is refused.
            info = archive.getinfo(name)
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > len(raw):
                raise zipfile.BadZipFile("compressed")
            return archive.read(name)
    except (*DAMAGE, StopIteration) as error:
        raise DataError(Problem(str(path), str(error)[:200], "must be a file of torch.save", FORMAT_FIX)) from None


def _download(name: str, root: Path) -> None:
    kind = "Node" if name.startswith("ogbn-") else "Link"
    try:
        package = importlib.import_module(f"ogb.{kind.lower()}proppred")
    except ImportError:
        fix = "pip install ogb, or download it elsewhere and set dataset.path"
        raise ConfigError(Problem("dataset.download", True, "needs the package ogb", fix)) from None
    try:
        getattr(package, f"{kind}PropPredDataset")(name=name, root=str(root))
    except (OSError, ValueError, RuntimeError) as error:
        fix = "check the name and the network, or download it elsewhere and set dataset.path"
        raise DataError(Problem(name, str(error)[:200], "could not be downloaded", fix)) from None
