"""Every store with every cache gives the same rows, and counts where each came from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from exchanging import CPU, alone
from store_cases import STATIC, STORES, as_dense, graph_of, reads_of, shard_of

from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.feature_stores.base import FeatureStoreOptions
from gnnexp.feature_stores.local import LocalOptions
from gnnexp.feature_stores.partitioned import PartitionedOptions
from gnnexp.feature_stores.sliced import SlicedOptions
from gnnexp.graph.sparse import SparseRows
from gnnexp.measure.phases import PhaseTimer
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph

SHARDED = "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions"
CACHES: dict[str, dict[str, Any] | None] = {
    "none": None,
    "static": {"_target_": STATIC, "capacity": 0.3},
    "static_owned": {"_target_": STATIC, "capacity": 7, "policy": "frequency", "of": "owned"},
    "static_nothing": {"_target_": STATIC, "capacity": "1B"},
    "sharded": {"_target_": SHARDED, "capacity": 9, "policy": "frequency"},
    "sharded_alone": {"_target_": SHARDED, "capacity": "300B", "policy": "id", "clique": 1},
    "everything": {"_target_": SHARDED, "capacity": 1.0},
}
Read = tuple[int, dict[str, int], int]


def _read(nodes: list[dict[str, Any]], sparse: bool, dtype: torch.dtype) -> list[Read]:
    """Read on this rank from every store, compare every row; returns rows read, counts, bytes held."""
    graph, found = graph_of(sparse=sparse), []
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    assert graph.features is not None
    whole = as_dense(graph.features).to(dtype)
    for node in nodes:
        store = build(node, FeatureStoreOptions).make()
        store.setup(shard_of(graph, comm.rank, comm.size), dtype, CPU, comm)
        total = 0
        for ids in reads_of(comm.rank, graph.num_nodes):
            rows = store.read(ids)
            assert isinstance(rows, SparseRows) == sparse
            assert rows.dtype == dtype
            assert torch.equal(as_dense(rows), whole[ids.long()])
            total += ids.numel()
        found.append((total, store.take_counts(), store.nbytes()))
        assert set(store.take_counts().values()) == {0}, "counts start afresh"
    comm.barrier()
    comm.release()
    return found


ORIGINS = {"none": set[str](), "static": {"local"}, "sharded": {"local", "peer"}}


@pytest.mark.parametrize(
    ("sparse", "dtype"),
    [(False, torch.float32), (False, torch.float64), (True, torch.float64)],
    ids=["float32", "float64", "sparse"],
)
@pytest.mark.parametrize("store", STORES)
def test_every_store_and_cache_gives_the_same_rows(ranks, store, sparse, dtype):
    nodes = [{**STORES[store], "cache": cache} for cache in CACHES.values()]
    alone_and_three = [_read(nodes, sparse, dtype), *ranks(3).run(_read, nodes, sparse, dtype)]
    for size, of_rank in zip((1, 3, 3, 3), alone_and_three, strict=True):
        for cache, (total, counts, _) in zip(CACHES, of_rank, strict=True):
            check_counts(store, cache, size, total, counts)
            if not sparse:  # what a cache has is in the device tier already
                missed = total - hits_of(counts)
                assert counts["tier/h2d_bytes"] == missed * 13 * dtype.itemsize


def hits_of(counts: dict[str, int]) -> int:
    return counts.get("features_loaded_local", 0) + counts.get("features_loaded_peer", 0)


def check_counts(store: str, cache: str, size: int, total: int, counts: dict[str, int]) -> None:
    """Where the rows of one rank came from."""
    found = {name.rpartition("_")[2]: n for name, n in counts.items() if name.startswith("features_loaded_")}
    kind = "sharded" if cache == "everything" else cache.partition("_")[0]
    assert set(found) == {"host"} | ORIGINS[kind] | ({"remote"} if store == "partitioned" else set())
    assert sum(found.values()) == total
    if cache in ("none", "static_nothing"):
        assert hits_of(counts) == 0
    elif cache == "everything":
        assert hits_of(counts) == total
    else:
        assert 0 < hits_of(counts) < total
    if size == 1:
        assert found.get("remote", 0) == found.get("peer", 0) == 0
        return
    if store == "partitioned" and cache != "everything":
        assert found["remote"] > 0
    if kind == "sharded":
        assert (found["peer"] > 0) == (cache != "sharded_alone")


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_bytes_held(ranks, sparse):
    features = graph_of(sparse=sparse).features
    assert features is not None
    for store in ("mapped", "ram"):
        held = _read([STORES[store]], sparse, torch.float32)[0][2]
        assert held == features.nbytes
    if not sparse:
        sizes = parts(graph_of(), 3).part_sizes().tolist()
        found = [read[0][2] for read in ranks(3).run(_read, [STORES["partitioned"]], False, torch.float64)]
        assert found == [size * 13 * 8 for size in sizes]


def test_partitioned_rows_that_nobody_else_owns_cost_two_rounds_and_their_bytes(ranks):
    results = ranks(3).run(_traffic)
    foreign = sum(count for count, _, _ in results)
    assert all(rounds == 2 for _, _, rounds in results)
    assert sum(sent for _, sent, _ in results) == foreign * (8 + 13 * 4)


def _traffic() -> tuple[int, int, int]:
    graph, comm = graph_of(), Communicator(read_environment(), PhaseTimer(), CPU)
    store = PartitionedOptions().make()
    store.setup(shard_of(graph, comm.rank, comm.size), torch.float32, CPU, comm)
    comm.ledger.take()
    ids = torch.arange(60)[comm.rank * 10 :]
    store.read(ids)
    traffic = comm.ledger.take()["features"]
    remote = store.take_counts()["features_loaded_remote"]
    assert remote == int((parts(graph, comm.size).node_owner[ids] != comm.rank).sum())
    return remote, traffic.sent_bytes, traffic.rounds


def test_a_graph_without_features_is_refused() -> None:
    shard = shard_of(replace(nasty_graph(), features=None), 0, 1)
    for store in (LocalOptions().make(), PartitionedOptions().make(), SlicedOptions().make()):
        with pytest.raises(DataError, match="has no vertex features"):
            store.setup(shard, torch.float32, CPU, alone())


@pytest.mark.parametrize(
    ("options", "sparse"),
    [
        pytest.param(LocalOptions("ram"), False, id="ram dense"),
        pytest.param(LocalOptions("ram"), True, id="ram sparse"),
        pytest.param(PartitionedOptions(), False, id="partitioned dense"),
        pytest.param(PartitionedOptions(), True, id="partitioned sparse"),
        pytest.param(SlicedOptions(), False, id="sliced dense"),
        pytest.param(SlicedOptions(), True, id="sliced sparse"),
    ],
)
def test_what_is_held_in_ram_is_a_copy(options: FeatureStoreOptions, sparse: bool) -> None:
    """With one rank and the file's own dtype too."""
    graph = graph_of(sparse=sparse)
    store = options.make()
    store.setup(shard_of(graph, 0, 1), torch.float32, CPU, alone())
    ids = torch.arange(60)
    before = as_dense(store.read(ids)).clone()
    assert graph.features is not None
    (graph.features.values if isinstance(graph.features, SparseRows) else graph.features).zero_()
    assert torch.equal(as_dense(store.read(ids)), before)
