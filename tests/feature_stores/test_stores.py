"""Every store with every cache gives the same rows, counts where each came from, and holds what its policy says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nasty_graphs import nasty_graph
from placement import parts
from small_graphs import sparse_rows

import gnnexp.feature_stores.cache
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import Environment, read_environment
from gnnexp.config.build import build
from gnnexp.config.check import check_data
from gnnexp.errors import ConfigError, DataError, RunError
from gnnexp.feature_stores.base import FeatureStore
from gnnexp.feature_stores.cache import FeatureCache, available_bytes, parse_size, row_nbytes
from gnnexp.feature_stores.local import LocalStore
from gnnexp.feature_stores.partitioned import PartitionedStore
from gnnexp.feature_stores.sharded_cache import ShardedCache
from gnnexp.feature_stores.sliced import SlicedStore, slice_bounds
from gnnexp.feature_stores.static_cache import StaticCache
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import Rows, SparseRows
from gnnexp.measure.phases import PhaseTimer

CPU = torch.device("cpu")
STATIC = "gnnexp.feature_stores.static_cache.StaticCache"
SHARDED = "gnnexp.feature_stores.sharded_cache.ShardedCache"
STORES: dict[str, dict[str, Any]] = {
    "mapped": {"_target_": "gnnexp.feature_stores.local.LocalStore"},
    "ram": {"_target_": "gnnexp.feature_stores.local.LocalStore", "memory": "ram"},
    "partitioned": {"_target_": "gnnexp.feature_stores.partitioned.PartitionedStore"},
}
CACHES: dict[str, dict[str, Any] | None] = {
    "none": None,
    "static": {"_target_": STATIC, "capacity": 0.3},
    "static_owned": {"_target_": STATIC, "capacity": 7, "policy": "frequency", "of": "owned"},
    "static_nothing": {"_target_": STATIC, "capacity": "1B"},
    "sharded": {"_target_": SHARDED, "capacity": 9, "policy": "frequency"},
    "sharded_alone": {"_target_": SHARDED, "capacity": "300B", "policy": "id", "clique": 1},
    "everything": {"_target_": SHARDED, "capacity": 1.0},
}
BOTH = pytest.mark.parametrize("kind", [StaticCache, ShardedCache])
Kind = type[StaticCache] | type[ShardedCache]


def graph_of(*, sparse: bool = False, num_features: int = 13) -> Graph:
    graph = nasty_graph(num_features=num_features)
    assert isinstance(graph.features, torch.Tensor)
    # Of two thirds of the dense columns nothing is left in the sparse rows; some rows are empty.
    return replace(graph, features=sparse_rows(graph.features)) if sparse else graph


def shard_of(graph: Graph, rank: int, size: int) -> Shard:
    return Shard(graph, rank, size, partition=parts(graph, size), part=rank,
                 frequency=torch.arange(graph.num_nodes) % 7)


def alone() -> Communicator:
    return Communicator(Environment(), PhaseTimer(), CPU)


def as_dense(rows: Rows) -> torch.Tensor:
    return rows.to_dense() if isinstance(rows, SparseRows) else rows


def reads_of(rank: int, num_nodes: int) -> list[torch.Tensor]:
    """Arbitrary orders, repetitions, nothing on some or all ranks; another number of rows on every rank."""
    generator = torch.Generator().manual_seed(rank)
    reads = [torch.randint(0, num_nodes, (size,), generator=generator) for size in (40 + 11 * rank, 90, 3)]
    none = torch.empty(0, dtype=torch.int64)
    return [*reads, none if rank == 0 else reads[0].flip(0), reads[1] if rank == 1 else none, none,
            torch.full((5,), rank), torch.randperm(num_nodes, generator=generator).int()]


Read = tuple[int, dict[str, int], int]


def _read(nodes: list[dict[str, Any]], sparse: bool, dtype: torch.dtype) -> list[Read]:
    """Read on this rank from every store, compare every row; returns rows read, counts, bytes held."""
    graph, found = graph_of(sparse=sparse), []
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    assert graph.features is not None
    whole = as_dense(graph.features).to(dtype)
    for node in nodes:
        store = build(node, FeatureStore)
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


@pytest.mark.parametrize(("sparse", "dtype"), [(False, torch.float32), (False, torch.float64), (True, torch.float64)],
                         ids=["float32", "float64", "sparse"])
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
        assert held == (features.nbytes() if isinstance(features, SparseRows) else 60 * 13 * 4)
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
    store = PartitionedStore()
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
    for store in (LocalStore(), PartitionedStore(), SlicedStore()):
        with pytest.raises(DataError, match="has no vertex features"):
            store.setup(shard, torch.float32, CPU, alone())


# --- capacity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "size"), [
    ("1B", 1), ("512MiB", 512 << 20), ("0.5 KiB", 512), ("2GB", 2 * 10**9), (" 3KB ", 3000), ("1.5GiB", 3 << 29),
    ("4MB", 4 * 10**6),
])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@BOTH
@pytest.mark.parametrize("capacity", [
    0, -1, 0.0, -0.5, 1.5, 1.0000001, float("nan"), float("inf"), True, False, None, [1], "lots", "10", "MiB", "0B",
    "-1MiB", "1.2.3MB", "1 mib", "1TB", "0.4B", "",
], ids=repr)
def test_wrong_capacities_are_refused(kind: Kind, capacity: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(capacity)
    (problem,) = caught.value.problems
    assert (problem.key, problem.mend) == ("feature_store.cache.capacity", "feature_store.cache.capacity=0.25")
    assert "512MiB" in problem.allowed


@BOTH
def test_all_problems_of_a_cache_are_reported_at_once(kind: Kind) -> None:
    with pytest.raises(ConfigError) as caught:
        kind("lots", "hot", epochs=0)  # type: ignore[arg-type]
    keys = [f"feature_store.cache.{name}" for name in ("epochs", "capacity", "policy")]
    assert [problem.key for problem in caught.value.problems] == keys
    assert all(problem.mend.startswith(problem.key + "=") for problem in caught.value.problems)


def test_options_of_one_kind_of_cache() -> None:
    with pytest.raises(ConfigError, match="must be all or owned"):
        StaticCache(1, of="mine")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"feature_store\.cache\.clique=0"):
        ShardedCache(1, clique=0)


@BOTH
@pytest.mark.parametrize(("capacity", "itemsize", "rows"), [
    (1, 4, 1), (17, 4, 17), (60, 4, 60), (61, 8, 60), (10**12, 4, 60),
    (0.5, 4, 30), (1.0, 8, 60), (0.33, 4, 19), (0.001, 4, 0),
    ("52B", 4, 1), ("51B", 4, 0), ("103B", 4, 1), ("104B", 8, 1), ("1KiB", 4, 19), ("1KiB", 8, 9), ("1GiB", 8, 60),
])
def test_rows_of_a_capacity(kind: Kind, capacity: Any, itemsize: int, rows: int) -> None:
    cache: FeatureCache = kind(capacity)
    assert cache.rows(graph_of(), itemsize) == rows


@pytest.mark.parametrize("itemsize", [4, 8])
def test_sparse_rows_are_counted_by_their_mean(itemsize: int) -> None:
    graph = graph_of(sparse=True)
    assert isinstance(graph.features, SparseRows)
    mean = graph.features.values.numel() * (4 + itemsize) // 60 + 8
    assert row_nbytes(graph.features, itemsize) == mean
    assert StaticCache(f"{10 * mean}B").rows(graph, itemsize) == 10
    assert StaticCache(f"{10 * mean - 1}B").rows(graph, itemsize) == 9


@BOTH
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_cache_larger_than_the_devices_memory_is_a_problem_with_both_figures(kind: Kind, sparse: bool) -> None:
    graph = graph_of(sparse=sparse)
    assert graph.features is not None
    row = row_nbytes(graph.features, 8)
    needed = 15 * row
    config = {"hardware": {"device_memory": needed - 1}, "train": {"dtype": "float64"}}
    store = LocalStore(cache=kind(0.25))
    (problem,) = store.check_data(config, graph)
    assert (problem.key, problem.value) == ("feature_store.cache.capacity", 0.25)
    assert f"{needed} bytes" in problem.allowed and f"{needed - 1} bytes" in problem.allowed
    assert "smaller" in problem.mend
    for memory in (needed, None):
        assert store.check_data({**config, "hardware": {"device_memory": memory}}, graph) == []
    assert store.check_data({**config, "train": {"dtype": "float32"}}, graph) == []
    assert LocalStore().check_data(config, graph) == []


def test_the_devices_memory_is_checked_with_all_other_data_problems() -> None:
    target = STORES["mapped"]["_target_"]
    config = {
        "hardware": {"device_memory": 100, "nodes": 1, "workers": 31}, "train": {"dtype": "float32"},
        "task": {"_target_": "gnnexp.tasks.node_classification.NodeClassification"},
        "feature_store": {"_target_": target, "cache": {"_target_": STATIC, "capacity": "1KiB"}},
    }
    problems = check_data(config, graph_of())
    assert [problem.key for problem in problems] == ["hardware.workers", "feature_store.cache.capacity"]
    assert "988 bytes" in problems[1].allowed and "100 bytes" in problems[1].allowed


def test_a_rank_needs_no_more_than_its_share_of_a_clique() -> None:
    """Four ranks share 60 rows: each holds 15 of them, whatever the capacity says."""
    config = {"hardware": {"device_memory": 15 * 13 * 4, "nodes": 1, "workers": 4}, "train": {"dtype": "float32"},
              "paradigm": {}}
    assert LocalStore(cache=ShardedCache(1.0)).check_data(config, graph_of()) == []


@BOTH
def test_an_allocation_that_fails_names_both_figures(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gnnexp.feature_stores.cache, "available_bytes", lambda device: 15 * 13 * 8 - 1)
    shard = shard_of(graph_of(), 0, 1)
    with pytest.raises(RunError) as caught:
        LocalStore(cache=kind(0.25)).setup(shard, torch.float64, CPU, alone())
    said = str(caught.value)
    assert f"needs {15 * 13 * 8} bytes" in said and f"{15 * 13 * 8 - 1} bytes are available" in said
    assert "feature_store.cache.capacity=0.25" in said
    LocalStore(cache=kind(0.25)).setup(shard, torch.float32, CPU, alone())


def test_what_is_available_is_the_hosts_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=77))
    assert available_bytes(CPU) == 77


# --- contents ---------------------------------------------------------------------------------------------------------


def heat_of(graph: Graph, policy: str) -> list[int]:
    if policy == "id":
        return [0] * graph.num_nodes
    if policy == "frequency":
        return [vertex % 7 for vertex in range(graph.num_nodes)]
    degree = [0] * graph.num_nodes
    for source in graph.indices.tolist():
        degree[source] += 1
    return degree


def by_heat(graph: Graph, policy: str, among: list[int]) -> list[int]:
    heat = heat_of(graph, policy)
    return sorted(among, key=lambda vertex: (-heat[vertex], vertex))


def contents(cache: FeatureCache, shard: Shard, comm: Communicator) -> list[int]:
    """Ids that a cache holds, in the order of its rows; those rows are compared."""
    LocalStore(cache=cache).setup(shard, torch.float64, CPU, comm)
    ids = torch.nonzero(cache._row_of >= 0).flatten()
    ids = ids[cache._row_of[ids].argsort()]
    assert isinstance(shard.graph.features, torch.Tensor)
    held = cache.held_rows(torch.arange(ids.numel()))
    assert isinstance(held, torch.Tensor)
    assert torch.equal(held, shard.graph.features[ids].double())
    assert cache.nbytes() == ids.numel() * 13 * 8
    return [int(vertex) for vertex in ids]


@pytest.mark.parametrize("policy", ["degree", "frequency", "id"])
@pytest.mark.parametrize("capacity", [1, 13, 0.5, "1KiB", 1.0])
def test_a_static_cache_holds_the_hottest_ties_by_id(policy: Any, capacity: Any) -> None:
    graph = graph_of()
    expected = by_heat(graph, policy, list(range(60)))[: StaticCache(capacity).rows(graph, 8)]
    for rank in (0, 2):  # the same on every rank, and every time
        assert contents(StaticCache(capacity, policy), shard_of(graph, rank, 3), alone()) == expected


@pytest.mark.parametrize("policy", ["degree", "frequency", "id"])
def test_a_cache_of_owned_rows_follows_the_partition(policy: Any) -> None:
    graph = graph_of()
    for rank in range(3):
        shard = shard_of(graph, rank, 3)
        owned = torch.nonzero(shard.owner == rank).flatten().tolist()
        for capacity in (5, 60):
            found = contents(StaticCache(capacity, policy, of="owned"), shard, alone())
            assert found == by_heat(graph, policy, owned)[:capacity]


def test_what_a_cache_needs_to_know() -> None:
    for kind in (StaticCache, ShardedCache):
        assert [kind(1, policy).needs_presampling for policy in ("degree", "frequency", "id")] == [False, True, False]
    assert [StaticCache(1, of=of).needs_partition for of in ("all", "owned")] == [False, True]
    assert not ShardedCache(1).needs_partition
    store = LocalStore(cache=StaticCache(1, "frequency", epochs=4))
    assert (store.needs_presampling, store.presampled_epochs, store.collective) == (True, 4, False)
    assert LocalStore(cache=ShardedCache(1)).collective and PartitionedStore().collective
    assert (LocalStore().presampled_epochs, LocalStore().needs_presampling) == (0, False)
    assert PartitionedStore().needs_partition and not LocalStore().needs_partition


def _dealt(cases: list[tuple[int, Any, int | None]]) -> list[list[int]]:
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    shard = shard_of(graph_of(), comm.rank, comm.size)
    found = [contents(ShardedCache(*case), shard, comm) for case in cases]
    comm.barrier()  # nobody leaves a group that others still join
    comm.release()
    return found


@pytest.mark.parametrize("clique", [None, 1, 2, 4])
def test_a_sharded_cache_deals_the_hottest_rows_to_a_clique(ranks, clique):
    cases = [(capacity, policy, clique) for capacity in (1, 9, 17, 60) for policy in ("degree", "frequency")]
    found, size = ranks(4).run(_dealt, cases), clique or 4
    for number, (capacity, policy, _) in enumerate(cases):
        order = by_heat(graph_of(), policy, list(range(60)))
        for rank in range(4):
            assert found[rank][number] == order[: size * capacity][rank % size :: size]
            assert len(found[rank][number]) <= capacity


@pytest.mark.parametrize(("clique", "workers", "group", "right"), [
    (None, 4, None, True), (2, 4, None, True), (4, 4, None, True), (3, 4, None, False), (8, 4, None, False),
    (2, 4, 2, True), (4, 4, 2, False), (1, 3, None, True),
])
def test_cliques_divide_the_ranks_that_share_a_batch(
    clique: int | None, workers: int, group: int | None, right: bool
) -> None:
    config = {"hardware": {"nodes": 1, "workers": workers}, "paradigm": {"group_size": group}}
    problems = LocalStore(cache=ShardedCache(1, clique=clique)).check(config)
    assert [problem.key for problem in problems] == ([] if right else ["feature_store.cache.clique"])
    assert all(problem.mend == "feature_store.cache.clique=null" for problem in problems)


# --- slices -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 500), st.integers(1, 40))
def test_slices_cover_every_dimension_once_and_are_even(num_dims: int, num_slices: int) -> None:
    bounds = slice_bounds(num_dims, num_slices)
    widths = [stop - start for start, stop in pairwise(bounds)]
    assert (bounds[0], bounds[-1], len(widths)) == (0, num_dims, num_slices)
    assert min(widths) >= 0 and max(widths) - min(widths) <= 1


def _slice(num_features: int, sparse: bool) -> tuple[list[torch.Tensor], dict[str, int], int]:
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    graph = graph_of(sparse=sparse, num_features=num_features)
    store = SlicedStore()
    store.setup(shard_of(graph, comm.rank, comm.size), torch.float64, CPU, comm)
    assert not store.collective and comm.ledger.take() == {}
    rows = [store.read(ids) for ids in reads_of(7, graph.num_nodes)]
    width = store.dims.stop - store.dims.start
    assert all(isinstance(found, SparseRows) == sparse and found.shape[1] == width for found in rows)
    return [as_dense(found) for found in rows], store.take_counts(), store.nbytes()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("num_features", [1, 2, 5, 13])
def test_slices_side_by_side_are_the_rows(ranks, num_features, sparse):
    graph = graph_of(sparse=sparse, num_features=num_features)
    assert graph.features is not None
    whole = as_dense(graph.features).double()
    for size, results in ((1, [_slice(num_features, sparse)]), (3, ranks(3).run(_slice, num_features, sparse))):
        for number, ids in enumerate(reads_of(7, 60)):
            joined = torch.cat([rows[number] for rows, _, _ in results], 1)
            assert torch.equal(joined, whole[ids.long()])
        widths = [rows[0].shape[1] for rows, _, _ in results]
        assert sum(widths) == num_features
        assert max(widths) - min(widths) <= 1
        if num_features < size:
            assert 0 in widths
        total = sum(ids.numel() for ids in reads_of(7, 60))
        assert all(counts["features_loaded_host"] == total for _, counts, _ in results)
        if not sparse:
            assert sum(held for _, _, held in results) == 60 * num_features * 8


@pytest.mark.parametrize(("make", "sparse"), [
    pytest.param(lambda: LocalStore("ram"), False, id="ram dense"),
    pytest.param(lambda: LocalStore("ram"), True, id="ram sparse"),
    pytest.param(PartitionedStore, False, id="partitioned dense"),
    pytest.param(PartitionedStore, True, id="partitioned sparse"),
    pytest.param(SlicedStore, False, id="sliced dense"),
    pytest.param(SlicedStore, True, id="sliced sparse"),
])
def test_what_is_held_in_ram_is_a_copy(make: Any, sparse: bool) -> None:
    """With one rank and the file's own dtype too."""
    graph = graph_of(sparse=sparse)
    store = make()
    store.setup(shard_of(graph, 0, 1), torch.float32, CPU, alone())
    ids = torch.arange(60)
    before = as_dense(store.read(ids)).clone()
    assert graph.features is not None
    (graph.features.values if isinstance(graph.features, SparseRows) else graph.features).zero_()
    assert torch.equal(as_dense(store.read(ids)), before)
