"""AMiner: papers, authors and references, as extracted for HeCo (Wang et al., KDD 2021), with HeCo's splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from gnnexp.datasets.base import Dataset, checked, data_folder, existing_files
from gnnexp.datasets.reading.checksums import check_sha256
from gnnexp.datasets.reading.npz import open_npy
from gnnexp.datasets.reading.tables import Table
from gnnexp.datasets.splits.split import given_split
from gnnexp.errors import ConfigError, DataError, Findings, Problem
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph
from gnnexp.graph.sparse import SparseRows

_RELATIONS = ("pa.txt", "pr.txt")
_LABELLED = (20, 40, 60)
_FIX = "get the file again from its publisher"


@dataclass(kw_only=True, eq=False)
class Aminer(Dataset):
    """A typed graph: ids of papers come first, then authors, then references. Only papers have classes.

    Relation 0 leads from papers to their authors, and relation 1 to their references. Relations 2 and 3 are their
    reverses.

    Attributes:
        name: name of the graph.
        path: folder of the files; null = `$GNNEXP_DATA/aminer`.
        labelled_per_class: number of training papers per class, 20, 40 or 60. Each number has its published split.
        features: the source has no features (`none`). `one_hot` gives each vertex its own column, as sparse rows, like
            HeCo.
        symmetrize: add the reverse of each edge. Without it papers have no in-edges.
        inverse_relations: reverses have their own relations (2 and 3) instead of 0 and 1.
        verify: refuse files that differ from the published files in any byte.
    """

    name: str = "aminer"
    path: str | None = None
    labelled_per_class: int = 20
    features: Literal["none", "one_hot"] = "none"
    symmetrize: bool = True
    inverse_relations: bool = True
    verify: bool = True

    def __post_init__(self) -> None:
        if self.labelled_per_class not in _LABELLED:
            raise ConfigError(Problem("dataset.labelled_per_class", self.labelled_per_class, "must be 20, 40 or 60",
                                      "set dataset.labelled_per_class=20"))

    def sources(self) -> list[Path]:
        """The files of edges and labels, and the three files of the split."""
        return list(self._files().values())

    def _files(self) -> dict[str, Path]:
        splits = [f"{split}_{self.labelled_per_class}.npy" for split in ("train", "val", "test")]
        return existing_files(data_folder(self.path, "aminer"), [*_RELATIONS, "labels.npy", *splits], "aminer")

    def load(self) -> Graph:
        """The graph in memory. Vertices other than papers have label -1."""
        files = self._files()
        if self.verify:
            check_sha256(files.values())
        findings = Findings()
        labels = findings.attempt(_ids, files["labels.npy"], "classes")
        findings.raise_all()
        assert labels is not None
        pairs = [findings.attempt(_read_pairs, files[name], labels.size) for name in _RELATIONS]
        splits = [findings.attempt(_ids, path, "ids of papers", labels.size) for path in list(files.values())[3:]]
        findings.raise_all()
        authors, references = (found for found in pairs if found is not None)
        sizes = [labels.size, int(authors[:, 1].max()) + 1, int(references[:, 1].max()) + 1]
        num_nodes = sum(sizes)
        authors[:, 1] += sizes[0]
        references[:, 1] += sizes[0] + sizes[1]
        src, dst = np.concatenate([authors, references]).T
        arrays = build_graph(
            src,
            dst,
            num_nodes,
            types=np.repeat(np.arange(2), [len(authors), len(references)]),
            symmetrize=self.symmetrize,
            num_relations=2 if self.inverse_relations else None,
        )
        return checked(
            Graph(
                arrays.indptr,
                arrays.indices,
                features=_one_hot(num_nodes) if self.features == "one_hot" else None,
                labels=torch.from_numpy(np.append(labels, np.full(num_nodes - labels.size, -1))),
                num_classes=int(labels.max()) + 1,
                splits=given_split(*(ids for ids in splits if ids is not None)),
                edge_types=arrays.types,
                node_types=torch.from_numpy(np.repeat(np.arange(3, dtype=np.int32), sizes)),
                name=self.name,
                notes=("vertices: {} papers, then {} authors, then {} references".format(*sizes),),
            )
        )


def _ids(path: Path, what: str, bound: int = 1 << 31) -> np.ndarray:
    """`[n]` int64 numbers from 0 to below `bound`; `what` names them in messages."""
    array = open_npy(path)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(Problem(str(path), f"{array.dtype} {array.shape}", f"must be {what}, [n] integers", _FIX))
    if array.size == 0 or not 0 <= int(array.min()) <= int(array.max()) < bound:
        found = f"{array.min()}..{array.max()}" if array.size else "nothing"
        raise DataError(Problem(str(path), found, f"must be {what}, 0 to {bound - 1}", _FIX))
    return array.astype(np.int64)


def _read_pairs(path: Path, num_papers: int) -> np.ndarray:
    """`[n, 2]` ids: a paper, and an author or reference of it. The latter are numbered without gaps."""
    pairs = Table(path, "int64", "\t", low=0).read()
    if pairs.shape[0] == 0 or pairs.shape[1] != 2:
        raise DataError(Problem(str(path), f"shape {pairs.shape}", "must be rows of two ids", _FIX))
    largest, others = pairs.max(axis=0).tolist(), np.unique(pairs[:, 1]).size
    if largest[0] >= num_papers or largest[1] + 1 != others:
        allowed = f"papers must be below {num_papers}, and the others 0 to {others - 1} without gaps"
        raise DataError(Problem(str(path), f"ids up to {largest}", allowed, _FIX))
    return pairs


def _one_hot(num_nodes: int) -> SparseRows:
    columns = torch.arange(num_nodes, dtype=torch.int32)
    return SparseRows(torch.arange(num_nodes + 1), columns, torch.ones(num_nodes), num_nodes)
