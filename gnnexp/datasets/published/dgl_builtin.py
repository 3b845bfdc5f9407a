"""DGL's own datasets (Reddit, Flickr, Yelp, Amazon, …) by name. DGL downloads them, so this needs a network."""

from __future__ import annotations

import importlib.metadata
import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from gnnexp.components.packages import missing_package
from gnnexp.datasets.base import Dataset, checked
from gnnexp.datasets.options import LinkOptions
from gnnexp.datasets.splits.split import check_fractions, given_split, random_split
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.graph.build import build_graph
from gnnexp.graph.graph import Graph, Splits


@dataclass(kw_only=True, eq=False)
class DglBuiltin(LinkOptions, Dataset):
    """The first graph of `dgl.data.<name>Dataset`, which must be homogeneous.

    Attributes:
        name: name of DGL's class without `Dataset`: Reddit, Flickr, Yelp, CoraGraph, KarateClub, …
        path: folder for DGL's downloads; null = DGL's default (`~/.dgl`).
        symmetrize: add the reverse of each edge.
        self_loops: `keep`, `add` or `remove`.
        train: share of training vertices, if DGL has no masks.
        val: share of validation vertices, if DGL has no masks; the rest is test.
        seed: seed of this split, and of held-out links.
        link_split: shares `val` and `test` of the links to hold out (`gnnexp.datasets.splits.held_out`), or null.
    """

    name: str = "Reddit"
    path: str | None = None
    symmetrize: bool = True
    self_loops: Literal["keep", "add", "remove"] = "remove"
    train: float = 0.6
    val: float = 0.2

    def __post_init__(self) -> None:
        check_fractions(train=self.train, val=self.val)
        self.check_links(self.self_loops)

    @property
    def at_hand(self) -> bool:
        """False: DGL may have to download the dataset."""
        return False

    def options(self) -> dict[str, object]:
        """The options, and the version of DGL: it decides the files that DGL downloads and checks."""
        try:
            return {**super().options(), "dgl": importlib.metadata.version("dgl")}
        except importlib.metadata.PackageNotFoundError:
            raise _no_dgl(self.name) from None

    def load(self) -> Graph:
        """The graph in memory. DGL downloads it if necessary."""
        graph = self._open()
        if not graph.is_homogeneous:
            shown = f"{len(graph.etypes)} kinds of edges"
            raise DataError(Problem(self.name, shown, "must have one kind of vertices and edges", "choose another"))
        src, dst = (ids.numpy() for ids in graph.edges())
        arrays = build_graph(
            src, dst, graph.num_nodes(), symmetrize=self.symmetrize, self_loops=self.self_loops, key=self.name
        )
        features, labels = graph.ndata.get("feat"), graph.ndata.get("label")
        if labels is not None:
            labels = labels.float() if labels.dim() == 2 else labels.long()
        splits, drawn = self._splits(graph, labels)
        classes = 0 if labels is None else labels.shape[1] if labels.dim() == 2 else int(labels.max()) + 1
        graph = checked(
            Graph(
                arrays.indptr,
                arrays.indices,
                features=None if features is None else features.float().reshape(features.shape[0], -1),
                labels=labels,
                num_classes=classes,
                splits=splits,
                name=self.name,
                notes=(f"split drawn by gnnexp, seed {self.seed}",) if drawn else ("split of DGL's masks",),
            )
        )
        return self.with_links(graph, symmetrize=self.symmetrize)

    def _open(self) -> Any:  # noqa: ANN401
        os.environ.setdefault("DGLBACKEND", "pytorch")
        try:
            import dgl.data
        except ImportError:
            raise _no_dgl(self.name) from None
        factory = getattr(dgl.data, f"{self.name}Dataset", None)
        if factory is None:
            names = sorted(name.removesuffix("Dataset") for name in vars(dgl.data) if name.endswith("Dataset"))
            fix = "set dataset.name=Reddit"
            raise ConfigError(Problem("dataset.name", self.name, f"one of {', '.join(names)}", fix))
        # Some of DGL's datasets take no arguments.
        arguments = {} if self.path is None else {"raw_dir": self.path}
        try:
            return factory(**arguments)[0]
        except Exception as error:
            # DGL's downloads and parsers may raise anything: no network, a moved file, another signature.
            fix = "check the network, or get the files elsewhere and use dataset=ogb, graphdata_npz or edge_list"
            shown = f"{type(error).__name__}: {str(error)[:200]}"
            raise DataError(Problem(self.name, shown, "DGL could not download or read it", fix)) from error

    def _splits(self, graph: Any, labels: torch.Tensor | None) -> tuple[Splits, bool]:  # noqa: ANN401
        """The split of DGL's masks, or a random one, and whether it is random."""
        masks = [graph.ndata.get(f"{part}_mask") for part in ("train", "val", "test")]
        if all(mask is not None and mask.dim() == 1 for mask in masks):
            return given_split(*(mask.bool().numpy() for mask in masks)), False
        if labels is None:
            return given_split(*(np.empty(0, np.int64),) * 3), False
        among = (labels >= 0).numpy() if labels.dim() == 1 else None
        return random_split(graph.num_nodes(), self.train, self.val, seed=self.seed, among=among), True


def _no_dgl(name: str) -> ConfigError:
    return ConfigError(missing_package("dataset", name, "dgl", "choose another dataset"))
