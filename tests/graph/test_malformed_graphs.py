"""Malformed prepared graphs and stored partitions: refused, at no cost, nothing executed."""

from __future__ import annotations

import json
import math
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from malformed import (
    EXECUTES,
    GRAPH,
    OBJECT,
    claims,
    damaged,
    many,
    npy,
    refused,
    said_on_refusal,
    workplace,
)
from small_graphs import full_graph

from gnnexp.datasets.gnnexp_format import GnnexpFormat
from gnnexp.errors import DataError
from gnnexp.graph.graph import Graph
from gnnexp.graph.partition import Partition
from gnnexp.graph.storage.arrays import META, file_sha256
from gnnexp.graph.storage.format import save_graph
from gnnexp.graph.storage.layout import arrays_of
from gnnexp.graph.validate import validate_graph
from gnnexp.partitioners.stored import StoredPartitioner
from gnnexp.testing.graphs import nasty_graph

__all__ = ["workplace"]


def same_arrays(left: Graph, right: Graph) -> bool:
    a, b = arrays_of(left), arrays_of(right)
    return list(a) == list(b) and all(torch.equal(a[name].nan_to_num(-7), b[name].nan_to_num(-7)) for name in a)


def forge(folder: Path, name: str, array: np.ndarray | bytes) -> None:
    """An array whose checksum, dtype and shape are those that `meta.json` gives: what somebody publishes."""
    content = array if isinstance(array, bytes) else npy(array)
    (folder / f"{name}.npy").write_bytes(content)
    meta = json.loads((folder / META).read_text())
    entry = meta["arrays"][name]
    if isinstance(array, np.ndarray):
        entry.update(dtype=array.dtype.str, shape=list(array.shape))
    entry["sha256"] = file_sha256(folder / f"{name}.npy")
    (folder / META).write_text(json.dumps(meta))


@pytest.mark.parametrize("seed", many(40, quick=15))
def test_damaged_graphs(seed: int) -> None:
    generator = random.Random(seed)
    graph, folder = full_graph(sparse=bool(seed % 2)), Path("graph")
    save_graph(graph, folder)
    file = generator.choice(sorted(folder.iterdir()))
    file.write_bytes(damaged(file.read_bytes(), generator))
    try:
        opened = GnnexpFormat(path="graph").load()
    except DataError as error:
        assert "graph" in str(error)
    else:
        assert file.name == META and same_arrays(opened, graph)


def nonsense(array: np.ndarray, generator: random.Random) -> np.ndarray | bytes:
    """Values, dtypes and shapes of somebody who computes checksums."""
    changed = array.copy()
    integer = array.dtype.kind == "i"
    extremes = (
        [-1, -2, 1 << 30, np.iinfo(array.dtype).max, np.iinfo(array.dtype).min]
        if integer
        else [math.nan, math.inf, -math.inf, 1e38]
    )
    changed.reshape(-1)[generator.randrange(max(1, array.size)) :][:1] = generator.choice(extremes)
    return generator.choice(
        [
            changed,
            changed,
            changed,
            array[:-1],
            np.concatenate([array, array]),
            array.astype(np.float64),
            array.reshape(-1, 1),
            np.zeros(0, array.dtype),
            np.empty((), object),
            OBJECT + EXECUTES,
            claims("<i8", (1 << 60,)),
            claims("<f4", (1 << 31, 1 << 31)),
            array[..., ::-1],
        ]
    )


@pytest.mark.parametrize("seed", many(40, quick=15))
def test_forged_graphs(seed: int) -> None:
    generator = random.Random(seed)
    graph, folder = full_graph(sparse=bool(seed % 2)), Path("graph")
    save_graph(graph, folder)
    name = generator.choice(list(arrays_of(graph)))
    if generator.random() < 0.9:
        forge(folder, name, nonsense(arrays_of(graph)[name].numpy(), generator))
    else:
        meta = json.loads((folder / META).read_text())
        key = generator.choice(["num_nodes", "num_edges", "num_classes", "num_features"])
        (folder / META).write_text(json.dumps({**meta, key: generator.choice([1 << 61, 1 << 80, -1, 0, 1.5, "x"])}))
    try:
        opened = GnnexpFormat(path="graph").load()
    except DataError as error:
        assert "graph" in str(error)
    else:  # another graph than before, but a graph
        assert validate_graph(opened, name="graph") == []


@pytest.mark.parametrize("name", ["../../../escaped", "/etc/passwd", "labels/../../x", "LABELS", "", "\0", "x" * 5000])
def test_names_of_arrays_lead_nowhere(name: str) -> None:
    save_graph(full_graph(), Path("graph"))
    meta = json.loads(Path("graph", META).read_text())
    meta["arrays"][name] = meta["arrays"].pop("labels")
    Path("graph", META).write_text(json.dumps(meta))
    refused(GnnexpFormat(path="graph").load, "without any path")


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("/etc/passwd", ".npy"),
        ("/dev/zero", ".npy"),
        ("/dev/null", ".npy"),
        ("labels.npy", ".npy"),
        ("nowhere", ".npy"),
        ("..", ".npy"),
    ],
)
def test_links_are_read_as_what_they_lead_to(target: str, word: str) -> None:
    save_graph(full_graph(), Path("graph"))
    Path("graph/labels.npy").unlink()
    Path("graph/labels.npy").symlink_to(target)
    refused(GnnexpFormat(path="graph").load, f"labels{word}")


def test_an_endless_meta_file() -> None:
    save_graph(full_graph(), Path("graph"))
    Path("graph", META).unlink()
    Path("graph", META).symlink_to("/dev/zero")
    refused(GnnexpFormat(path="graph").load, "must be small")


@pytest.mark.parametrize("harm", ["object", "truncated", "huge"])
def test_a_run_on_a_malformed_graph_never_starts(harm: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("hydra")  # make test-core has none
    save_graph(GRAPH, Path("graph"))
    if harm == "truncated":
        os.truncate("graph/features.npy", 200)
    else:
        forge(Path("graph"), "features", OBJECT + EXECUTES if harm == "object" else claims("<f4", (60, 1 << 55)))
    arguments = ["dataset=gnnexp_format", "dataset.path=graph", "tracker=none", "hydra.run.dir=never"]
    assert "features.npy" in said_on_refusal(["run", *arguments], capsys)


# --- Stored partitions ---
def put_partition() -> Partition:
    owners = (torch.arange(GRAPH.num_nodes) % 4).to(torch.int16)
    partition = Partition(owners, 4, (torch.arange(GRAPH.num_edges) % 4).to(torch.int16), graph_key="key")
    partition.save(Path("partition"))
    return partition


def read_partition(num_parts: int = 4, key: str = "key") -> Partition:
    return StoredPartitioner("partition").partition(GRAPH, num_parts, key)


@pytest.mark.parametrize("seed", range(25))
def test_damaged_partitions(seed: int) -> None:
    generator = random.Random(seed)
    partition = put_partition()
    file = generator.choice(sorted(Path("partition").iterdir()))
    file.write_bytes(damaged(file.read_bytes(), generator))
    try:
        found = read_partition()
    except DataError as error:
        assert "partition" in str(error)
    else:
        assert file.name == META and found.num_parts == 4 and torch.equal(found.node_owner, partition.node_owner)


OWNERS = np.arange(GRAPH.num_nodes, dtype=np.int16) % 4


@pytest.mark.parametrize(
    "owners",
    [
        OWNERS[:-1],
        np.concatenate([OWNERS, OWNERS]),
        OWNERS + 1,
        OWNERS - 1,
        OWNERS.astype(np.int64),
        OWNERS.astype(np.float32),
        OWNERS[:, None],
        OWNERS[:0],
        OBJECT + EXECUTES,
        EXECUTES,
        claims("<i2", (1 << 60,)),
        np.full_like(OWNERS, 32767),
        np.full_like(OWNERS, -32768),
    ],
    ids=range(13),
)
def test_forged_partitions(owners: np.ndarray | bytes) -> None:
    put_partition()
    forge(Path("partition"), "node_owner", owners)
    refused(read_partition, "partition")


@pytest.mark.parametrize(
    "change",
    [
        {"num_parts": 0},
        {"num_parts": 5},
        {"num_parts": 1 << 40},
        {"num_parts": 1 << 70},
        {"num_parts": "4"},
        {"num_parts": True},
        {"num_parts": 3},
        {"options": []},
        {"graph_key": "another"},
        {"kind": "graph"},
        {"arrays": {}},
        {"seconds": "1"},
        {"schema": 10**9},
    ],
    ids=str,
)
def test_wrong_metadata_of_partitions(change: dict[str, Any]) -> None:
    put_partition()
    path = Path("partition", META)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    refused(read_partition, "partition")


def test_partitions_of_other_graphs() -> None:
    put_partition()
    refused(lambda: read_partition(key="another"), "key of this graph")
    other = nasty_graph(61)
    refused(lambda: StoredPartitioner("partition").partition(other, 4, "key"), "[61]")
    refused(lambda: read_partition(num_parts=8), "8")


def test_a_run_with_a_malformed_partition_never_starts(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("hydra")
    save_graph(replace(GRAPH, name="g"), Path("graph"))
    put_partition()
    forge(Path("partition"), "node_owner", OBJECT + EXECUTES)
    arguments = [
        "dataset=gnnexp_format",
        "dataset.path=graph",
        "partitioner=stored",
        "partitioner.path=partition",
        "hardware.workers=4",
        "tracker=none",
        "hydra.run.dir=never",
    ]
    assert "partition" in said_on_refusal(["partition", *arguments], capsys)
