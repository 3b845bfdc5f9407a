"""Open Graph Benchmark datasets (Hu et al., NeurIPS 2020) in the folder layout that the `ogb` package downloads."""

from __future__ import annotations

import importlib
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch

from gnnexp.datasets.base import ROOT_VARIABLE, Dataset, checked, data_folder, listed, no_edges, require, where_to_put
from gnnexp.datasets.options import LinkOptions, own_links
from gnnexp.datasets.published.archives import name_override
from gnnexp.datasets.published.links import SPLITS, link_files, read_links
from gnnexp.datasets.published.lsc import is_lsc, lsc_files, read_lsc
from gnnexp.datasets.reading.features import Sparse, typed_rows
from gnnexp.datasets.reading.ogb_raw import FORMAT_FIX, TYPES, OgbRaw, read_binary, read_table, read_text, read_typed
from gnnexp.datasets.splits.given import without_known
from gnnexp.datasets.splits.opposites import NO_REVERSES, SAME_TYPE
from gnnexp.datasets.splits.split import given_split
from gnnexp.errors import ConfigError, DataError, Findings, Problem
from gnnexp.files.regular import is_file, is_folder
from gnnexp.graph.build import CscArrays, build_graph
from gnnexp.graph.graph import Graph, Splits
from gnnexp.graph.merging import MergeWeights
from gnnexp.graph.sparse import SparseRows

_DEFAULT, _NODES, _LINKS = "ogbn-arxiv", "ogbn-", "ogbl-"
# Beginnings of names. Those of OGB-LSC are its folders'.
_NAMES = (_NODES, _LINKS, "mag240m", "wikikg90m")
_LINKED = (_LINKS, "wikikg90m")
_RAW = ("edge.csv.gz", "data.npz", TYPES)


@dataclass(kw_only=True, eq=False)
class Ogb(LinkOptions, Dataset):
    """A node-property dataset (`ogbn-*`, including ogbn-mag) or a link-property dataset (`ogbl-*`), whatever its name.

    MAG240M and WikiKG90M of OGB-LSC are read from the `.npy` files of their folders.

    In link-property datasets, the graph has the training edges in `raw/`. Without a file `train.pt`, these edges are
    also the positive training pairs. In node-property datasets with several types of vertices and edges, the types and
    relations have the order of the dataset's lists. Vertices of a type without features have zeros.

    Attributes:
        name: OGB's name of the dataset. With a path, the default gives way to the name of the folder.
        path: folder of the dataset (with `raw/` and `split/`); null = `$GNNEXP_DATA/<name>`, with dashes or
            underscores.
        scheme: folder in `split/`; null = the only one.
        download: let the `ogb` package download the dataset if the folder does not exist.
        edge_features: read edge features, if there are any.
        merge_weights: what each feature of merged parallel edges is: the `sum`, `mean`, `max` or `min`; `error` refuses
            different ones.
        symmetrize: add the reverse of each edge.
        self_loops: `keep`, `add` or `remove`.
        inverse_relations: if there are several relations, the reverse of an edge of relation r has relation R + r.
        features_by_type: if there are several types of vertices, give each type its own columns (`features_by_type`).
        sparse: features by type as sparse rows (true), dense (false), or by their size (auto).
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
            Data sets with links of their own refuse it.
        seed: seed of the draw of these links.
    """

    unkeyed: ClassVar[frozenset[str]] = frozenset({"path", "download"})
    is_published: ClassVar[bool] = True

    name: str = _DEFAULT
    path: str | None = None
    scheme: str | None = None
    download: bool = False
    edge_features: bool = False
    merge_weights: MergeWeights = "error"
    symmetrize: bool = True
    self_loops: Literal["keep", "add", "remove"] = "remove"
    inverse_relations: bool = True
    features_by_type: bool = False
    sparse: Sparse = "auto"

    def __post_init__(self) -> None:
        if self.path is not None and self.name == _DEFAULT and is_folder(folder := Path(self.path).expanduser()):
            self.name = _name_of(folder)
        if not self.name.lower().startswith(_NAMES):
            fix = "set dataset.name=ogbn-arxiv"
            raise ConfigError(Problem("dataset.name", self.name, f"a name that starts with {', '.join(_NAMES)}", fix))
        if self.link_split is not None and self.name.startswith(_LINKED):
            raise ConfigError(own_links(self.link_split))
        self.check_links(self.self_loops)

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A folder with `raw/` and `split/`, or one of OGB-LSC.

        Raises:
            DataError: it is an archive of such a folder.
        """
        if is_file(place) and place.suffix == ".zip" and _is_packed(place):
            raise DataError(
                Problem(
                    "PATH",
                    str(place),
                    "is a packed folder of OGB, and gnnexp reads the folder",
                    f"unzip {place}, then gnnexp data FOLDER",
                )
            )
        if not is_folder(place) or not (is_lsc(place) or _is_of_ogb(place)):
            return None
        return name_override(_name_of(place))

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
        if is_lsc(folder):
            return lsc_files(folder)
        parts = (folder / "raw", self._split_folder(folder))
        return sorted(path for part in parts for path in part.rglob("*") if path.is_file())

    def load(self) -> Graph:
        """The graph in memory."""
        folder = self._folder()
        if is_lsc(folder):
            return self._load_lsc(folder)
        findings = Findings()
        split, links = self._split_folder(folder), self.name.startswith(_LINKS)
        typed = (folder / "raw" / TYPES).is_file()
        raw = findings.attempt(self._read, folder, typed, findings)
        if raw is None:
            if not typed:
                findings.attempt(link_files if links else _split_files, split)
            findings.raise_all()
        assert raw is not None
        types = raw.types
        arrays = findings.attempt(self._build, raw) or no_edges(raw.num_nodes)
        labels, num_classes = findings.attempt(_as_labels, raw.labels, raw.key) or (None, 0)
        splits = None if links else findings.attempt(_read_splits, split, raw)
        pairs, of_links = findings.attempt(read_links, split, raw) or ({}, ()) if links else ({}, ())
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
            links=pairs,
            name=self.name,
            notes=(
                f"published split {split.name!r}",
                *(() if types is None else types.notes),
                *of_links,
                *self.origin_notes(),
            ),
        )
        return self._with_known(checked(graph, findings=findings), raw)

    def _load_lsc(self, folder: Path) -> Graph:
        lsc = read_lsc(folder)
        raw, types = lsc.raw, lsc.raw.types
        arrays = self._build(raw)
        labels, num_classes = _as_labels(raw.labels, raw.key)
        return self._with_known(
            checked(
                Graph(
                    arrays.indptr,
                    arrays.indices,
                    features=self._features(raw),
                    labels=labels,
                    num_classes=num_classes,
                    splits=given_split(*lsc.splits),
                    edge_types=arrays.types,
                    node_types=None if types is None else torch.from_numpy(types.nodes),
                    links={name: torch.from_numpy(links) for name, links in lsc.links.items()},
                    name=self.name,
                    notes=(*lsc.notes, *(() if types is None else types.notes), *self.origin_notes()),
                )
            ),
            raw,
        )

    def _with_known(self, graph: Graph, raw: OgbRaw) -> Graph:
        """The same graph, with a note on edges that give held-out links away: OGB's graph is the benchmark's."""
        count = raw.num_relations if raw.types is None else raw.types.num_relations
        if self.link_split is not None:
            inverses = count if self.inverse_relations else None
            return self.with_links(graph, symmetrize=self.symmetrize, inverses=inverses)
        reverses = NO_REVERSES if not self.symmetrize else count if self.inverse_relations and count else SAME_TYPE
        return without_known(graph, reverses=reverses, remove=False, why="They stay, because OGB's graph is so")

    def _read(self, folder: Path, typed: bool, findings: Findings) -> OgbRaw:
        labelled = not self.name.startswith(_LINKS)
        if not typed:
            binary = (folder / "raw" / "data.npz").is_file()
            return read_binary(folder, labelled=labelled) if binary else read_text(folder, findings)
        if self.edge_features:
            raise DataError(
                Problem(
                    str(folder),
                    f"{self.name}, edge_features={self.edge_features}",
                    "of datasets with several kinds of vertices, edge features are not read",
                    "set dataset.edge_features=false",
                )
            )
        return read_typed(folder, labelled=labelled)

    def _build(self, raw: OgbRaw) -> CscArrays:
        types = raw.types
        relations, count = (raw.relations, raw.num_relations) if types is None else (types.edges, types.num_relations)
        return build_graph(
            raw.edges[:, 0],
            raw.edges[:, 1],
            raw.num_nodes,
            types=relations,
            symmetrize=self.symmetrize,
            num_relations=count if relations is not None and self.inverse_relations else None,
            self_loops=self.self_loops,
            edge_features=raw.edge_features if self.edge_features else None,
            merge_weights=self.merge_weights,
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
            allowed = f"a folder with raw/ and split/<scheme>/; {folder} has {listed(folder)}"
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
    files = _split_files(folder if types is None else folder / types.labelled).values()
    ids = [findings.attempt(read_table, path, "int64", high=len(members)) for path in files]
    findings.raise_all()
    return given_split(*(members.start + part.ravel() for part in ids if part is not None))


def _split_files(folder: Path) -> dict[str, Path]:
    paths = {name: folder / f"{name}.csv.gz" for name in SPLITS}
    require(paths.values(), FORMAT_FIX)
    return paths


def _is_of_ogb(folder: Path) -> bool:
    return is_folder(folder / "split") and any(is_file(folder / "raw" / name) for name in _RAW)


def _name_of(folder: Path) -> str:
    """The name of the dataset in a folder, by the folder's name; a name without OGB's beginning gets it."""
    usual = folder.absolute().name.replace("_", "-")
    if usual.lower().startswith(_NAMES):
        return usual[: len(_NODES)].lower() + usual[len(_NODES) :]
    if is_lsc(folder):
        return f"{'mag240m' if is_folder(folder / 'processed' / 'paper') else 'wikikg90m'}-{usual}"
    if not _is_of_ogb(folder):
        return _DEFAULT
    return (_NODES if next((folder / "split").rglob("*.pt"), None) is None else _LINKS) + usual


def _is_packed(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError):
        return False
    return any("/split/" in name for name in names) and any(f"/raw/{one}" in name for name in names for one in _RAW)


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
