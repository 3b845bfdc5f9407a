"""The artifact cache: made once, shared by processes, rebuilt when damaged, clean after a failure."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_graphs import full_graph

from gnnexp.datasets.base import Dataset
from gnnexp.errors import ConfigError, DataError, Problem
from gnnexp.files.cache import cache_root
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.graph.quality import quality
from gnnexp.graph.storage.format import GraphWriter, open_graph
from gnnexp.graph.storage.layout import arrays_of
from gnnexp.graph.storage.presample import Presample
from gnnexp.partitioners.base import Owners
from gnnexp.partitioners.random import RandomPartitioner
from gnnexp.partitioners.range import RangePartitioner
from gnnexp.preparation.artifacts import (
    QUALITY,
    graph_folder,
    partition_folder,
    prepare_graph,
    prepare_partition,
    read_quality,
)


class Made(Dataset):
    """A graph out of nothing, that notes in a file every time it is loaded."""

    unkeyed = frozenset({"journal", "wait_s"})

    def __init__(self, journal: str, seed: int = 0, wait_s: float = 0.0, chunked: bool = False) -> None:
        self.name = "made/up"
        self.journal = journal
        self.seed = seed
        self.wait_s = wait_s
        self.chunked = chunked

    def graph(self) -> Graph:
        return full_graph(seed=self.seed)

    def note(self) -> None:
        with Path(self.journal).open("a") as file:
            file.write("loaded\n")
        time.sleep(self.wait_s)

    def load(self) -> Graph:
        self.note()
        return self.graph()

    def generate(self, folder: Path) -> Graph | None:
        if not self.chunked:
            return None
        self.note()
        with GraphWriter(folder) as writer:
            for name, array in arrays_of(self.graph()).items():
                writer.put(name, array)
            writer.finish_graph(name=self.name, num_classes=4)
        return open_graph(folder)


class Broken(Made):
    """Its features hold a NaN."""

    def graph(self) -> Graph:
        graph = full_graph(seed=self.seed)
        graph.features[3, 2] = float("nan")  # type: ignore[index]
        return graph


class Failing(Made):
    """Its files are missing."""

    def load(self) -> Graph:
        raise DataError(Problem("dataset.path", "nowhere", "must be there", "download it"))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "journal"
    path.write_text("")
    return path


def loads(journal: Path) -> int:
    return len(journal.read_text().split())


@pytest.mark.parametrize("chunked", [False, True])
def test_a_graph_is_made_once_and_mapped_from_then_on(tmp_path: Path, journal: Path, chunked: bool) -> None:
    cache = tmp_path / "cache"
    dataset = Made(str(journal), chunked=chunked)
    graph, folder = prepare_graph(dataset, cache)
    again, same_folder = prepare_graph(dataset, cache)
    assert loads(journal) == 1
    assert folder == same_folder == cache / "graphs" / f"made-up-{dataset.key()[:16]}" == graph_folder(dataset, cache)
    expected = arrays_of(full_graph())
    for found in (graph, again):
        assert all(torch.equal(array, expected[name]) for name, array in arrays_of(found).items())
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    prepare_graph(Made(str(journal), seed=1), cache)
    assert loads(journal) == 2
    assert len(list(folder.parent.iterdir())) == 2


@pytest.mark.parametrize("chunked", [False, True])
def test_a_graph_that_fails_validation_leaves_nothing(tmp_path: Path, journal: Path, chunked: bool) -> None:
    with pytest.raises(DataError, match=r"made/up: features.*first at \[3, 2\]: nan"):
        prepare_graph(Broken(str(journal), chunked=chunked), tmp_path / "cache")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.name != "graphs"] == []


def test_a_load_that_fails_leaves_nothing_and_may_be_tried_again(tmp_path: Path, journal: Path) -> None:
    for _ in range(2):
        with pytest.raises(DataError, match="download it"):
            prepare_graph(Failing(str(journal)), tmp_path / "cache")
    assert [path for path in (tmp_path / "cache").rglob("*") if path.name != "graphs"] == []


@pytest.mark.parametrize("damage", ["truncated", "meta gone", "array gone", "not a folder of ours", "ids"])
def test_a_damaged_graph_is_said_and_made_again(
    tmp_path: Path, journal: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = Made(str(journal))
    _, folder = prepare_graph(dataset, tmp_path)
    if damage == "truncated":
        os.truncate(folder / "indices.npy", 150)
    elif damage == "meta gone":
        (folder / "meta.json").unlink()
    elif damage == "ids":
        indices = np.load(folder / "indices.npy")
        indices[::7] = 2_000_000_000
        np.save(folder / "indices.npy", indices)
    elif damage == "array gone":
        (folder / "labels.npy").unlink()
    else:
        for path in folder.iterdir():
            path.unlink()
        (folder / "something").write_text("else")
    with caplog.at_level(logging.WARNING):
        graph, _ = prepare_graph(dataset, tmp_path)
    assert "is damaged and is made again" in caplog.text
    assert loads(journal) == 2
    assert torch.equal(graph.indices, full_graph().indices)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    assert sorted(path.name for path in folder.iterdir() if path.suffix != ".npy") == ["meta.json"]


def run_in_process(dataset: Dataset, cache: Path) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=prepare_graph, args=(dataset, cache))
    process.start()
    return process


def wait_for(condition: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def test_processes_that_prepare_the_same_wait_for_the_first(tmp_path: Path, journal: Path) -> None:
    dataset = Made(str(journal), wait_s=0.5)
    processes = [run_in_process(dataset, tmp_path / "cache") for _ in range(4)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert loads(journal) == 1
    assert [path.name for path in (tmp_path / "cache" / "graphs").iterdir()] == [graph_folder(dataset, Path()).name]


def test_what_a_killed_process_left_is_cleared_and_does_not_block(tmp_path: Path, journal: Path) -> None:
    victim = run_in_process(Made(str(journal), wait_s=60), tmp_path / "cache")
    wait_for(lambda: loads(journal) == 1)
    os.kill(victim.pid, signal.SIGKILL)  # type: ignore[arg-type]
    victim.join(30)
    left = list((tmp_path / "cache" / "graphs").iterdir())
    assert left  # the lock and the work folder of the dead
    assert all(path.name.startswith(".") for path in left)
    _, folder = prepare_graph(Made(str(journal)), tmp_path / "cache")
    assert loads(journal) == 2
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_waiting_process_takes_over_from_one_that_dies(tmp_path: Path, journal: Path) -> None:
    victim = run_in_process(Made(str(journal), wait_s=60), tmp_path / "cache")
    wait_for(lambda: loads(journal) == 1)
    heir = run_in_process(Made(str(journal)), tmp_path / "cache")
    time.sleep(0.2)
    assert heir.is_alive()
    os.kill(victim.pid, signal.SIGKILL)  # type: ignore[arg-type]
    heir.join(60)
    victim.join(60)
    assert heir.exitcode == 0
    assert loads(journal) == 2


def test_a_frozen_process_that_prepares_is_named_and_not_waited_for_for_ever(
    tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gnnexp.preparation.artifacts._FROZEN_S", 1.0)
    frozen = run_in_process(Made(str(journal), wait_s=60), tmp_path / "cache")
    wait_for(lambda: loads(journal) == 1)
    os.kill(frozen.pid, signal.SIGSTOP)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=f"process {frozen.pid}.*no sign of life"):
        prepare_graph(Made(str(journal)), tmp_path / "cache")
    frozen.kill()
    frozen.join(60)
    prepare_graph(Made(str(journal)), tmp_path / "cache")
    assert loads(journal) == 2


def test_nobody_is_called_frozen_whose_number_means_nothing_here(
    tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two containers of one host name share a cache, and each numbers its own processes."""
    monkeypatch.setattr("gnnexp.preparation.artifacts._FROZEN_S", 0.2)
    looked_at: list[int] = []
    monkeypatch.setattr("gnnexp.preparation.artifacts.Pulse", looked_at.append)
    other = run_in_process(Made(str(journal), wait_s=1.0), tmp_path / "cache")
    wait_for(lambda: loads(journal) == 1)
    monkeypatch.setattr("gnnexp.preparation.artifacts.process_table", lambda: "the same host/another container")
    prepare_graph(Made(str(journal)), tmp_path / "cache")
    other.join(60)
    assert other.exitcode == 0 and loads(journal) == 1 and not looked_at


def test_partitions_are_kept_with_their_quality(tmp_path: Path, journal: Path) -> None:
    dataset = Made(str(journal))
    graph, _ = prepare_graph(dataset, tmp_path)
    partitioner = RandomPartitioner()
    first, folder = prepare_partition(partitioner, graph, dataset.key(), 3, tmp_path)
    stamp = (folder / "node_owner.npy").stat().st_mtime_ns
    second, _ = prepare_partition(partitioner, graph, dataset.key(), 3, tmp_path)
    assert (folder / "node_owner.npy").stat().st_mtime_ns == stamp
    assert folder == partition_folder(partitioner, dataset.key(), 3, tmp_path)
    assert folder.name.startswith("random-3-")
    assert torch.equal(first.node_owner, second.node_owner)
    assert second.graph_key == dataset.key()
    assert second.seconds == first.seconds > 0
    assert read_quality(folder) == quality(graph, first) | first.cost and first.rss_before_bytes > 0
    others = {
        prepare_partition(made, graph, key, parts, tmp_path)[1]
        for made, key, parts in (
            (partitioner, dataset.key(), 2),
            (partitioner, "other", 3),
            (RandomPartitioner(seed=1), dataset.key(), 3),
            (RangePartitioner(), dataset.key(), 3),
        )
    }
    assert len(others | {folder}) == 5


def test_a_partitioner_may_tell_whole_numbers(tmp_path: Path) -> None:
    class Counting(RandomPartitioner):
        def assign(self, graph: Graph, num_parts: int) -> Owners:
            return super().assign(graph, num_parts)._replace(facts={"passes": 2})

    partition, folder = prepare_partition(Counting(), full_graph(), "key", 3, tmp_path)
    assert read_quality(folder)["passes"] == partition.facts["passes"] == 2


@pytest.mark.parametrize(("first_s", "calls"), [(0.9, 2), (1.1, 1)])
def test_what_a_quick_partition_took_is_told_without_loading_kernels(
    tmp_path: Path, first_s: float, calls: int
) -> None:
    """The clock goes on by `first_s` in the first call, and by half a second in a second one."""
    took = iter([first_s, 0.5])

    class Timed(RandomPartitioner):
        def partition(
            self, graph: Graph, num_parts: int, graph_key: str = "", presample: Presample | None = None
        ) -> Partition:
            return replace(super().partition(graph, num_parts, graph_key, presample), seconds=next(took))

    partition, _ = prepare_partition(Timed(), full_graph(), "key", 3, tmp_path)
    assert partition.seconds == (0.5 if calls == 2 else first_s)
    assert len(list(took)) == 2 - calls


@pytest.mark.parametrize("damage", ["owner", "quality gone", "quality is no JSON", "quality is a list"])
def test_a_damaged_partition_is_said_and_made_again(
    tmp_path: Path, journal: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    graph = full_graph()
    first, folder = prepare_partition(RandomPartitioner(), graph, "key", 3, tmp_path)
    owners = first.node_owner.clone()  # writing into the file would show in the mapped tensor
    if damage == "owner":
        np.save(folder / "node_owner.npy", np.full(40, 7, np.int16))
    elif damage == "quality gone":
        (folder / QUALITY).unlink()
    else:
        (folder / QUALITY).write_text("{" if damage == "quality is no JSON" else json.dumps([1.0]))
    with caplog.at_level(logging.WARNING):
        second, _ = prepare_partition(RandomPartitioner(), graph, "key", 3, tmp_path)
    assert "is damaged and is made again" in caplog.text
    assert torch.equal(owners, second.node_owner)
    assert read_quality(folder) == quality(graph, second) | second.cost


def test_too_many_parts_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be 1 to 40"):
        prepare_partition(RandomPartitioner(), full_graph(), "key", 41, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, journal: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="set GNNEXP_CACHE"):
        prepare_graph(Made(str(journal)), tmp_path / "file")


def test_the_root_is_the_variable_or_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GNNEXP_CACHE", raising=False)
    assert cache_root() == tmp_path / ".gnnexp"
    monkeypatch.setenv("GNNEXP_CACHE", str(tmp_path / "elsewhere"))
    assert cache_root() == tmp_path / "elsewhere"


def test_a_mapped_graph_survives_its_rebuild(tmp_path: Path, journal: Path) -> None:
    dataset = Made(str(journal))
    graph, folder = prepare_graph(dataset, tmp_path)
    (folder / "labels.npy").unlink()
    prepare_graph(dataset, tmp_path)
    assert torch.equal(graph.indices, full_graph().indices)
    assert replace(graph, name="still usable").num_edges == 150
