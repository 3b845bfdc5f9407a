"""Folders of DistDGL, which `dgl.distributed.partition_graph` or DGL's distributed pipeline wrote, as one graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from gnnexp.datasets.base import WrittenDataset, data_folder
from gnnexp.datasets.formats.dataset import ForeignOptions, write_foreign
from gnnexp.datasets.formats.dgl.arrays import DataNames, check_masks, foreign_of_arrays
from gnnexp.datasets.formats.dgl.partition_files import PartConfig, partition_config_in, read_partition_config
from gnnexp.datasets.formats.dgl.whole import WholeGraph, read_whole
from gnnexp.datasets.formats.foreign import ForeignGraph
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition, owner_dtype


@dataclass(kw_only=True, eq=False)
class DglPartitions(ForeignOptions, DataNames, WrittenDataset):
    """The graph before its partitioning, with the original ids of vertices and the original order of edges.

    DGL's distributed pipeline keeps them in `orig_nids.dgl` and `orig_eids.dgl` of each part, and DGL before 1.0 in the
    parts. GraphStorm has `node_mapping.pt` and `edge_mapping.pt`, which `partition_graph` returns with
    `return_mapping=True`. Without them, ids are those of DistDGL, and a note says so.

    Attributes:
        name: name of the graph.
        path: the folder, or its JSON file; null = `$GNNEXP_DATA/dgl_partitions`.
    """

    name: str = "dgl_partitions"
    path: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_masks(self.masks)

    @classmethod
    def recognised(cls, place: Path) -> list[str] | None:
        """A folder with the JSON file of a partition, or this file."""
        return None if partition_config_in(place) is None else []

    def sources(self) -> list[Path]:
        """The JSON file, and the files of all parts."""
        return self._config().files()

    def generate(self, folder: Path) -> Graph:
        """See `WrittenDataset.generate`."""
        return write_foreign(self.read(), self, self.name, folder)

    def read(self) -> ForeignGraph:
        """All parts put together."""
        whole = self.whole()
        found = foreign_of_arrays(whole.arrays, self, str(self._config().path))
        return replace(found, notes=[*found.notes, *whole.notes])

    def whole(self) -> WholeGraph:
        """The graph in DGL's terms, and the part of each vertex."""
        return read_whole(self._config())

    def partition(self) -> Partition:
        """DistDGL's parts as a partition of the graph that these options make."""
        config, owners = self._config(), torch.from_numpy(self.whole().owners)
        count = len(config.parts)
        return Partition(owners.to(owner_dtype(count)), count, method=f"distdgl_{config.method}", graph_key=self.key())

    def _config(self) -> PartConfig:
        return read_partition_config(data_folder(self.path, "dgl_partitions"))
