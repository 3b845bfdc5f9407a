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
from gnnexp.feature_stores.static_cache import StaticCacheOptions
from gnnexp.graph.sparse import SparseRows
from gnnexp.measure.phases import PhaseTimer
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph

SHARDED = "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions"
CACHES: dict[str, dict[str, Any] | None] = {
    "none": None,
    "static": {"_target_": STATIC, "capacity": 0.3},
    "static_owned": {"_target_": STATIC, "capacity": 7, "policy": "frequency", "of": "owned"},
    "static_foreign": {"_target_": STATIC, "capacity": 7, "policy": "frequency", "of": "foreign"},
    "static_nothing": {"_target_": STATIC, "capacity": "1B"},
    "static_zero": {"_target_": STATIC, "capacity": 0, "of": "foreign"},
    "sharded_zero": {"_target_": SHARDED, "capacity": 0.0},
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
    if cache in ("none", "static_nothing", "static_zero", "sharded_zero") or (cache == "static_foreign" and size == 1):
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
        assert (found["peer"] > 0) == (cache not in ("sharded_alone", "sharded_zero"))


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


@pytest.mark.parametrize("of", ["all", "owned", "foreign"])
@pytest.mark.parametrize("capacity", [0, 7, 0.25, "520B", 1.0])
def test_hits_misses_and_bytes_follow_from_what_is_cached(ranks, capacity, of):
    """Reads of cached ids are hits; of the others, own ones come from the host and foreign ones over the network."""
    reads = ranks(3).run(_cached_traffic, capacity, of)
    asked = 0
    for rank, (counts, cached, _, rounds) in enumerate(reads):
        owner, ids = parts(graph_of(), 3).node_owner, torch.cat(reads_of(rank, 60)).long()
        own, hit = owner[ids] == rank, torch.isin(ids, cached)
        allowed = {"all": owner >= 0, "owned": owner == rank, "foreign": owner != rank}[of]
        wanted = {0: 0, 7: 7, 0.25: 15, "520B": 10, 1.0: 60}[capacity]
        assert cached.numel() == min(wanted, int(allowed.sum())) and allowed[cached].all()
        remote = int((~own & ~hit).sum())
        assert counts == {
            "features_loaded_local": int(hit.sum()),
            "features_loaded_host": int((own & ~hit).sum()),
            "features_loaded_remote": remote,
            "tier/h2d_bytes": int((~hit).sum()) * 13 * 4,
        }
        if of == "foreign":
            assert counts["features_loaded_host"] == int(own.sum()), "own rows are not cached"
        if of == "foreign" and capacity == 1.0:
            assert remote == 0
        asked += sum(
            (8 if read.dtype == torch.int64 else 4)
            * int(((owner[read.long()] != rank) & ~torch.isin(read, cached)).sum())
            for read in reads_of(rank, 60)
        )
        assert rounds == 2 * len(reads_of(rank, 60))
    assert sum(sent for _, _, sent, _ in reads) == asked + 13 * 4 * sum(
        counts["features_loaded_remote"] for counts, *_ in reads
    )


def _cached_traffic(capacity: Any, of: Any) -> tuple[dict[str, int], torch.Tensor, int, int]:
    graph, comm = graph_of(), Communicator(read_environment(), PhaseTimer(), CPU)
    store = PartitionedOptions(cache=StaticCacheOptions(capacity, "frequency", of=of)).make()
    store.setup(shard_of(graph, comm.rank, comm.size), torch.float32, CPU, comm)
    comm.ledger.take()
    for ids in reads_of(comm.rank, graph.num_nodes):
        store.read(ids)
    traffic = comm.ledger.take()["features"]
    assert store.cache is not None
    cached = torch.nonzero(store.cache.table() >= 0).flatten()
    return store.take_counts(), cached, traffic.sent_bytes, traffic.rounds


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
