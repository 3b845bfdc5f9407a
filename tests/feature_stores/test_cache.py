"""Caches take the capacity that they are given, within the device's memory, and hold what their policy says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from exchanging import CPU, alone
from experiments import data_problems, setting_and_facts, setting_in
from store_cases import STATIC, STORES, graph_of, shard_of

import gnnexp.feature_stores.cache
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError, RunError
from gnnexp.feature_stores.cache import CacheOptions, available_bytes, parse_size
from gnnexp.feature_stores.local import LocalOptions
from gnnexp.feature_stores.partitioned import PartitionedOptions
from gnnexp.feature_stores.sharded_cache import ShardedCacheOptions
from gnnexp.feature_stores.static_cache import StaticCacheOptions
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import Shard
from gnnexp.graph.sparse import SparseRows, row_nbytes
from gnnexp.measure.phases import PhaseTimer
from gnnexp.testing.steps import small_config

BOTH = pytest.mark.parametrize("kind", [StaticCacheOptions, ShardedCacheOptions])
Kind = type[StaticCacheOptions] | type[ShardedCacheOptions]


# --- capacity ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1B", 1),
        ("512MiB", 512 << 20),
        ("0.5 KiB", 512),
        ("2GB", 2 * 10**9),
        (" 3KB ", 3000),
        ("1.5GiB", 3 << 29),
        ("4MB", 4 * 10**6),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@BOTH
@pytest.mark.parametrize(
    "capacity",
    [
        -1,
        -0.5,
        1.5,
        1.0000001,
        float("nan"),
        float("inf"),
        True,
        False,
        None,
        [1],
        "lots",
        "10",
        "MiB",
        "-1MiB",
        "1.2.3MB",
        "1 mib",
        "1TB",
        "",
    ],
    ids=repr,
)
def test_wrong_capacities_are_refused(kind: Kind, capacity: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(capacity)
    (problem,) = caught.value.problems
    assert (problem.key, problem.fix) == ("feature_store.cache.capacity", "feature_store.cache.capacity=0.25")
    assert "512MiB" in problem.allowed


@BOTH
def test_all_problems_of_a_cache_are_reported_at_once(kind: Kind) -> None:
    with pytest.raises(ConfigError) as caught:
        kind("lots", "hot", epochs=0)  # type: ignore[arg-type]
    keys = [f"feature_store.cache.{name}" for name in ("epochs", "capacity", "policy")]
    assert [problem.key for problem in caught.value.problems] == keys
    assert all(problem.fix.startswith(problem.key + "=") for problem in caught.value.problems)


def test_options_of_one_kind_of_cache() -> None:
    with pytest.raises(ConfigError, match="must be all, owned or foreign"):
        StaticCacheOptions(1, of="mine")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"feature_store\.cache\.clique=0"):
        ShardedCacheOptions(1, clique=0)


@BOTH
@pytest.mark.parametrize(
    ("capacity", "itemsize", "rows"),
    [
        (0, 4, 0),
        (0.0, 8, 0),
        ("0B", 4, 0),
        ("0.4B", 4, 0),
        (1, 4, 1),
        (17, 4, 17),
        (60, 4, 60),
        (61, 8, 60),
        (10**12, 4, 60),
        (0.5, 4, 30),
        (1.0, 8, 60),
        (0.33, 4, 19),
        (0.001, 4, 0),
        ("52B", 4, 1),
        ("51B", 4, 0),
        ("103B", 4, 1),
        ("104B", 8, 1),
        ("1KiB", 4, 19),
        ("1KiB", 8, 9),
        ("1GiB", 8, 60),
    ],
)
def test_rows_of_a_capacity(kind: Kind, capacity: Any, itemsize: int, rows: int) -> None:
    assert kind(capacity).rows(60, row_nbytes(graph_of().features, itemsize)) == rows


@pytest.mark.parametrize("itemsize", [4, 8])
def test_sparse_rows_are_counted_by_their_mean(itemsize: int) -> None:
    graph = graph_of(sparse=True)
    assert isinstance(graph.features, SparseRows)
    mean = graph.features.values.numel() * (4 + itemsize) // 60 + 8
    assert row_nbytes(graph.features, itemsize) == mean
    assert StaticCacheOptions(f"{10 * mean}B").rows(graph.num_nodes, row_nbytes(graph.features, itemsize)) == 10
    assert StaticCacheOptions(f"{10 * mean - 1}B").rows(graph.num_nodes, row_nbytes(graph.features, itemsize)) == 9


@BOTH
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_cache_larger_than_the_devices_memory_is_a_problem_with_both_figures(kind: Kind, sparse: bool) -> None:
    graph = graph_of(sparse=sparse)
    assert graph.features is not None
    row = row_nbytes(graph.features, 8)
    needed = 15 * row
    config = {"hardware": {"device_memory": needed - 1}, "train": {"dtype": "float64"}}
    store = LocalOptions(cache=kind(0.25))
    (problem,) = store.check_data(*setting_and_facts(config, graph))
    assert (problem.key, problem.value) == ("feature_store.cache.capacity", 0.25)
    assert f"{needed} bytes" in problem.allowed and f"{needed - 1} bytes" in problem.allowed
    assert "smaller" in problem.fix
    for memory in (needed, None):
        assert store.check_data(*setting_and_facts({**config, "hardware": {"device_memory": memory}}, graph)) == []
    assert store.check_data(*setting_and_facts({**config, "train": {"dtype": "float32"}}, graph)) == []
    assert LocalOptions().check_data(*setting_and_facts(config, graph)) == []


def test_the_devices_memory_is_checked_with_all_other_data_problems() -> None:
    target = STORES["mapped"]["_target_"]
    config = {
        "hardware": {"device_memory": 100, "nodes": 1, "workers": 31},
        "train": {"dtype": "float32"},
        "task": {"_target_": "gnnexp.tasks.node_classification.NodeClassificationOptions"},
        "feature_store": {"_target_": target, "cache": {"_target_": STATIC, "capacity": "1KiB"}},
    }
    problems = data_problems(config, graph_of())
    assert [problem.key for problem in problems] == ["hardware.workers", "feature_store.cache.capacity"]
    assert "988 bytes" in problems[1].allowed and "100 bytes" in problems[1].allowed


def test_a_rank_needs_no_more_than_its_share_of_a_clique() -> None:
    """Four ranks share 60 rows: each holds 15 of them, whatever the capacity says."""
    config = {"hardware": {"device_memory": 15 * 13 * 4, "nodes": 1, "workers": 4}, "train": {"dtype": "float32"}}
    assert LocalOptions(cache=ShardedCacheOptions(1.0)).check_data(*setting_and_facts(config, graph_of())) == []


@BOTH
def test_an_allocation_that_fails_names_both_figures(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gnnexp.feature_stores.cache, "available_bytes", lambda device: 15 * 13 * 8 - 1)
    shard = shard_of(graph_of(), 0, 1)
    with pytest.raises(RunError) as caught:
        LocalOptions(cache=kind(0.25)).make().setup(shard, torch.float64, CPU, alone())
    said = str(caught.value)
    assert f"needs {15 * 13 * 8} bytes" in said and f"{15 * 13 * 8 - 1} bytes are available" in said
    assert "feature_store.cache.capacity=0.25" in said
    LocalOptions(cache=kind(0.25)).make().setup(shard, torch.float32, CPU, alone())


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


def contents(options: CacheOptions, shard: Shard, comm: Communicator) -> list[int]:
    """Ids that a cache holds, in the order of its rows; those rows are compared."""
    store = LocalOptions(cache=options).make()
    store.setup(shard, torch.float64, CPU, comm)
    cache = store.cache
    assert cache is not None
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
    count = StaticCacheOptions(capacity).rows(graph.num_nodes, row_nbytes(graph.features, 8))
    expected = by_heat(graph, policy, list(range(60)))[:count]
    for rank in (0, 2):  # the same on every rank, and every time
        assert contents(StaticCacheOptions(capacity, policy), shard_of(graph, rank, 3), alone()) == expected


@pytest.mark.parametrize("policy", ["degree", "frequency", "id"])
def test_a_cache_of_owned_rows_follows_the_partition(policy: Any) -> None:
    graph = graph_of()
    for rank in range(3):
        shard = shard_of(graph, rank, 3)
        owned = torch.nonzero(shard.owner == rank).flatten().tolist()
        for capacity in (5, 60):
            found = contents(StaticCacheOptions(capacity, policy, of="owned"), shard, alone())
            assert found == by_heat(graph, policy, owned)[:capacity]
        foreign = [vertex for vertex in range(60) if vertex not in owned]
        for capacity in (0, 5, 60):
            found = contents(StaticCacheOptions(capacity, policy, of="foreign"), shard, alone())
            assert found == by_heat(graph, policy, foreign)[:capacity]


def test_what_a_cache_needs_to_know() -> None:
    for kind in (StaticCacheOptions, ShardedCacheOptions):
        assert [kind(1, policy).presampled_epochs for policy in ("degree", "frequency", "id")] == [0, 10, 0]
    assert [StaticCacheOptions(1, of=of).needs_partition for of in ("all", "owned", "foreign")] == [False, True, True]
    assert not ShardedCacheOptions(1).needs_partition
    options = LocalOptions(cache=StaticCacheOptions(1, "frequency", epochs=4))
    assert (options.presampled_epochs, options.is_collective, options.make().is_collective) == (4, False, False)
    for collective in (LocalOptions(cache=ShardedCacheOptions(1)), PartitionedOptions()):
        assert collective.is_collective and collective.make().is_collective
    assert LocalOptions().presampled_epochs == 0
    assert PartitionedOptions().needs_partition and not LocalOptions().needs_partition


def _dealt(cases: list[tuple[int, Any, int | None]]) -> list[list[int]]:
    comm = Communicator(read_environment(), PhaseTimer(), CPU)
    shard = shard_of(graph_of(), comm.rank, comm.size)
    found = [contents(ShardedCacheOptions(*case), shard, comm) for case in cases]
    comm.barrier()  # nobody leaves a group that others still join
    comm.release()
    return found


@pytest.mark.parametrize("clique", [None, 1, 2, 4])
def test_a_sharded_cache_deals_the_hottest_rows_to_a_clique(ranks, clique):
    cases = [(capacity, policy, clique) for capacity in (0, 1, 9, 17, 60) for policy in ("degree", "frequency")]
    found, size = ranks(4).run(_dealt, cases), clique or 4
    for number, (capacity, policy, _) in enumerate(cases):
        order = by_heat(graph_of(), policy, list(range(60)))
        for rank in range(4):
            assert found[rank][number] == order[: size * capacity][rank % size :: size]
            assert len(found[rank][number]) <= capacity


SPLIT = "gnnexp.paradigms.split_parallel.SplitParallel"


@pytest.mark.parametrize(
    ("clique", "workers", "group", "right"),
    [
        (None, 4, None, True),
        (2, 4, None, True),
        (4, 4, None, True),
        (3, 4, None, False),
        (8, 4, None, False),
        (2, 4, 2, True),
        (4, 4, 2, False),
        (1, 3, None, True),
    ],
)
def test_cliques_divide_the_ranks_that_share_a_batch(
    clique: int | None, workers: int, group: int | None, right: bool
) -> None:
    config = {"hardware": {"nodes": 1, "workers": workers}, "paradigm": {"_target_": SPLIT, "group_size": group}}
    problems = LocalOptions(cache=ShardedCacheOptions(1, clique=clique)).check(setting_in(config))
    assert [problem.key for problem in problems] == ([] if right else ["feature_store.cache.clique"])
    assert all(problem.fix == "feature_store.cache.clique=null" for problem in problems)


@BOTH
def test_only_even_shares_can_be_sampled_before(kind: Kind) -> None:
    """Before the partition is made, nobody knows the targets of a rank that trains those that it owns."""
    model = {"_target_": "gnnexp.models.sage.SAGEOptions"}
    split = {"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}
    store = LocalOptions(cache=kind(0.1, batches="micro"))
    refused = {}
    for way, paradigm in {"even": {"assign": "even"}, "owner": {"assign": "owner"}, "split": split}.items():
        config = small_config(model, paradigm=paradigm)
        problems = store.check(setting_in({**config, "hardware": {**config["hardware"], "workers": 2}}))
        refused[way] = [problem.key for problem in problems]
    wrong = ["feature_store.cache.batches"]
    assert refused == {"even": [], "owner": wrong, "split": wrong}


def test_batches_are_global_or_micro() -> None:
    with pytest.raises(ConfigError) as caught:
        StaticCacheOptions(0.1, batches="mini")  # type: ignore[arg-type]
    assert [problem.key for problem in caught.value.problems] == ["feature_store.cache.batches"]
