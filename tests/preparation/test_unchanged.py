"""A file that changes while it is read: nothing is kept, and the error says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from small_graphs import full_graph

from gnnexp.datasets.base import Dataset
from gnnexp.datasets.edge_list import EdgeList
from gnnexp.datasets.tables.dataset import Tables
from gnnexp.errors import DataError, Problem
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.storage.layout import arrays_of
from gnnexp.partitioners.hdrf import HdrfPartitioner
from gnnexp.partitioners.range import RangePartitioner
from gnnexp.partitioners.stored import StoredPartitioner
from gnnexp.preparation.artifacts import prepare_graph, prepare_partition, prepare_stream_partition
from gnnexp.preparation.unchanged import unchanged

How = Literal["rewritten", "same time", "there and back", "replaced", "removed", "added", "unreadable"]
HOW: tuple[How, ...] = ("rewritten", "same time", "there and back", "replaced", "removed", "added", "unreadable")


class OfFiles(Dataset):
    """A graph whose seed is the number in `a.txt`. The file changes while it is loaded."""

    unkeyed = frozenset({"path", "how", "chunked"})

    def __init__(self, path: str, how: How | None = None, chunked: bool = False) -> None:
        self.name, self.path, self.how, self.chunked = "of_files", path, how, chunked

    def sources(self) -> list[Path]:
        return sorted(Path(self.path).iterdir())

    def graph(self) -> Graph:
        if self.how == "unreadable":
            (Path(self.path) / "a.txt").write_text("2")
            raise DataError(Problem("a.txt", "2", "must be whole", "write it again"))
        if self.how is not None:
            change(Path(self.path), self.how)
        found = (
            full_graph(seed=int((Path(self.path) / "a.txt").read_text() or 9))
            if self.how != "removed"
            else full_graph()
        )
        if self.how == "there and back":
            (Path(self.path) / "a.txt").write_text("1")
        return found

    def load(self) -> Graph:
        return self.graph()

    def generate(self, folder: Path) -> Graph | None:
        if not self.chunked:
            return None
        with GraphWriter(folder) as writer:
            for name, array in arrays_of(self.graph()).items():
                writer.put(name, array)
            writer.finish_graph(name=self.name, num_classes=4)
        return open_graph(folder)


def change(folder: Path, how: How) -> None:
    file = folder / "a.txt"
    before = file.stat()
    if how == "removed":
        file.unlink()
    elif how == "added":
        (folder / "b.txt").write_text("more")
    elif how == "replaced":
        (folder.parent / "new").write_text("2")
        (folder.parent / "new").replace(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        file.write_text("2")
    if how == "same time":
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.txt").write_text("1")
    os.utime(folder / "a.txt", ns=(10**18, 10**18))  # so that a later write has another time
    return folder


def kept(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("how", HOW)
def test_nothing_is_kept_of_a_file_that_changes(folder: Path, tmp_path: Path, how: How, chunked: bool) -> None:
    says = "this file|changed while it was read" if how == "removed" else r"changed while it was read.*[ab]\.txt"
    with pytest.raises(DataError, match=says):
        prepare_graph(OfFiles(str(folder), how, chunked), tmp_path / "cache")
    assert kept(tmp_path / "cache") == []
    for leftover in folder.iterdir():
        leftover.unlink()
    (folder / "a.txt").write_text("1")
    graph, _ = prepare_graph(OfFiles(str(folder), None, chunked), tmp_path / "cache")
    assert torch.equal(graph.indices, full_graph(seed=1).indices), "the graph of the bytes that are there"


def test_what_does_not_change_is_kept(folder: Path, tmp_path: Path) -> None:
    dataset = OfFiles(str(folder))
    first, place = prepare_graph(dataset, tmp_path / "cache", dataset.key())
    assert torch.equal(first.indices, full_graph(seed=1).indices)
    assert prepare_graph(dataset, tmp_path / "cache")[1] == place


def test_times_alone_are_compared_for_what_is_not_kept(folder: Path) -> None:
    with pytest.raises(DataError, match="changed while it was read"), unchanged(OfFiles(str(folder)), None):
        (folder / "a.txt").write_text("2")


def test_a_table_that_was_edited_after_its_key_was_made(tmp_path: Path) -> None:
    """Two classes are swapped, and later the table is byte for byte the old one."""
    nodes = "id,label\n1,a\n2,b\n3,a\n"
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n2,3\n")
    dataset = Tables(path=str(tmp_path), nodes="nodes.csv", edges="edges.csv", label="label")
    key = dataset.key()
    (tmp_path / "nodes.csv").write_text("id,label\n1,b\n2,a\n3,b\n")
    with pytest.raises(DataError, match=r"changed while it was read .*nodes\.csv"):
        prepare_graph(dataset, tmp_path / "cache", key)
    (tmp_path / "nodes.csv").write_text(nodes)
    graph, _ = prepare_graph(dataset, tmp_path / "cache")
    assert graph.labels is not None and graph.labels.tolist() == [0, 1, 0]


def test_a_stream_of_edges_that_changes(tmp_path: Path) -> None:
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    np.save(tmp_path / "edges.npy", edges)
    dataset = EdgeList(path=str(tmp_path / "edges.npy"), streamed=True, split="none")
    key, stream = dataset.key(), dataset.stream()
    assert stream is not None
    np.save(tmp_path / "edges.npy", edges[::-1])
    with pytest.raises(DataError, match="changed while it was read"):
        prepare_stream_partition(HdrfPartitioner(), dataset, key, stream, 2, tmp_path / "cache")
    assert kept(tmp_path / "cache") == []
    prepare_stream_partition(HdrfPartitioner(), dataset, dataset.key(), stream, 2, tmp_path / "cache")
    assert kept(tmp_path / "cache")


def test_a_stored_partition_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = full_graph()
    RangePartitioner().partition(graph, 2, "key").save(tmp_path / "parts")
    read: Callable[..., object] = StoredPartitioner._read

    def replaced(self: StoredPartitioner, *arguments: object) -> object:
        half = np.full(graph.num_nodes, 1, np.int32)
        half[0] = 0
        found = RangePartitioner().partition(graph, 2, "key")
        shutil.rmtree(tmp_path / "parts")
        type(found)(torch.from_numpy(half).to(found.node_owner.dtype), 2, method="other", graph_key="key").save(
            tmp_path / "parts"
        )
        return read(self, *arguments)

    partitioner = StoredPartitioner(str(tmp_path / "parts"))
    monkeypatch.setattr(StoredPartitioner, "_read", replaced)
    with pytest.raises(DataError, match=r"partitioner\.path.*changed while it was read"):
        prepare_partition(partitioner, graph, "key", 2, tmp_path / "cache")
    assert kept(tmp_path / "cache") == []
