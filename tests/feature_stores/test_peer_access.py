"""`ShardedCache.access=peer`: kernels read the rows of all GPUs of a clique, with the results of exchanges."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from exchanging import CPU, alone
from experiments import setting_and_facts, setting_in
from store_cases import graph_of, reads_of, shard_of

from emulated_gpu import counting, is_wanted
from emulated_gpu.ipc import PEERS_VARIABLE
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError, RunError
from gnnexp.experiment.build import build
from gnnexp.feature_stores.base import FeatureStoreOptions
from gnnexp.feature_stores.local import LocalOptions
from gnnexp.feature_stores.sharded_cache import ShardedCacheOptions
from gnnexp.measure.phases import PhaseTimer
from gnnexp.ops.backends import has_triton
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, Curve, run_steps
from gnnexp.testing.ways import config_in, placed

LOCAL = "gnnexp.feature_stores.local.LocalOptions"
PARTITIONED = "gnnexp.feature_stores.partitioned.PartitionedOptions"
SHARDED = "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions"
SPLIT = "gnnexp.paradigms.split_parallel.SplitParallel"
# One row for three ranks leaves two ranks without rows; all rows leave nothing to read from the host.
CACHES: dict[str, dict[str, Any]] = {
    "some": {"capacity": 9, "policy": "frequency"},
    "few": {"capacity": "1B"},
    "one": {"capacity": 0.02},
    "all": {"capacity": 1.0},
    "by_id": {"capacity": 5, "policy": "id", "clique": 1},
}
STORES: dict[str, dict[str, Any]] = {
    "host": {"_target_": LOCAL, "tier": "host"},
    "uva": {"_target_": LOCAL, "tier": "uva"},
    "partitioned": {"_target_": PARTITIONED},
}
needs_gpu = pytest.mark.skipif(not (torch.cuda.is_available() and has_triton()), reason="needs a GPU and Triton")
emulated_only = pytest.mark.skipif(not is_wanted(), reason="only the emulated device can lack peer access")


def _rank() -> tuple[Communicator, torch.device]:
    environment = read_environment()
    device = torch.device("cuda", environment.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return Communicator(environment, PhaseTimer(), CPU), device


# --- what is refused --------------------------------------------------------------------------------------------------
def test_an_unknown_way_of_access_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be one of: auto, collective, peer"):
        ShardedCacheOptions(1, access="nvlink")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hardware", "way", "words"),
    [
        ({"device": "cpu"}, None, "the run is on the CPU"),
        ({"nodes": 2, "workers": 2}, None, "a clique of 4 ranks is on several machines"),
        ({"nodes": 2, "workers": 3}, {"clique": 2}, "a clique of 2 ranks is on several machines"),
    ],
)
def test_what_cannot_be_is_refused(hardware: dict[str, Any], way: dict[str, Any] | None, words: str) -> None:
    setting = setting_in({"hardware": {"device": "cuda", "nodes": 1, "workers": 2, **hardware}})
    store = LocalOptions(cache=ShardedCacheOptions(1, access="peer", **(way or {})))
    (problem,) = store.check(setting)
    assert (problem.key, problem.value) == ("feature_store.cache.access", "peer") and words in problem.allowed
    assert "feature_store.cache.access=auto" in problem.fix
    assert LocalOptions(cache=ShardedCacheOptions(1, **(way or {}))).check(setting) == []


def test_it_needs_triton_only_if_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnexp.feature_stores.peer_access.has_triton", lambda: False)
    setting = setting_in({"hardware": {"device": "cuda", "nodes": 1, "workers": 2}})
    (problem,) = LocalOptions(cache=ShardedCacheOptions(1, access="peer")).check(setting)
    assert "triton" in str(problem) and LocalOptions(cache=ShardedCacheOptions(1)).check(setting) == []


def test_sparse_features_are_read_by_exchanges() -> None:
    found = setting_and_facts({"hardware": {"device": "cuda", "nodes": 1, "workers": 2}}, graph_of(sparse=True))
    (problem,) = LocalOptions(cache=ShardedCacheOptions(1, access="peer")).check_data(*found)
    assert problem.key == "feature_store.cache.access"
    assert LocalOptions(cache=ShardedCacheOptions(1)).check_data(*found) == []


def test_a_rank_without_a_gpu_exchanges_rows_or_refuses() -> None:
    shard, cache = shard_of(graph_of(), 0, 1), ShardedCacheOptions(9)
    store = LocalOptions(cache=cache).make()
    store.setup(shard, torch.float32, CPU, alone())
    assert store.chosen == {"cache_access": "collective: rows are read on the CPU"} and store.is_collective
    with pytest.raises(RunError, match=r"rows are read on the CPU; set feature_store\.cache\.access=collective"):
        LocalOptions(cache=ShardedCacheOptions(9, access="peer")).make().setup(shard, torch.float32, CPU, alone())


def _broken(fault: str, patch: pytest.MonkeyPatch) -> None:
    """Break something on this rank."""

    def refuse(*anything: object, **more: object) -> None:
        raise RuntimeError("out of handles\nat a place")

    if fault == "peers":
        patch.setenv(PEERS_VARIABLE, "off")
    elif fault == "triton":
        patch.setattr("gnnexp.feature_stores.peer_access.has_triton", lambda: False)
    elif fault == "wrong bytes":
        patch.setattr("gnnexp.feature_stores.peer_access.take_rows", lambda features, ids: features[ids] + 1)
    else:
        patch.setattr(f"gnnexp.tiers.peers.{fault}", refuse)


def _refused(fault: str, where: int) -> list[str]:
    """What a rank hears with `access=peer` and with `auto` if rank `where` has a fault."""
    comm, device = _rank()
    shard, heard = shard_of(graph_of(), comm.rank, comm.size), []
    with pytest.MonkeyPatch.context() as patch:
        if comm.rank == where:
            _broken(fault, patch)
        with pytest.raises(RunError) as caught:
            LocalOptions(cache=ShardedCacheOptions(9, access="peer")).make().setup(shard, torch.float32, device, comm)
        store = LocalOptions(cache=ShardedCacheOptions(9)).make()
        store.setup(shard, torch.float32, device, comm)
        heard = [str(caught.value), store.chosen["cache_access"]]
    assert isinstance(shard.graph.features, torch.Tensor) and store.is_collective
    rows = store.read(torch.arange(60))
    assert isinstance(rows, torch.Tensor) and rows.cpu().equal(shard.graph.features)
    comm.barrier()
    comm.release()
    return heard


@pytest.mark.gpu
@needs_gpu
@emulated_only
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("peers", "the GPU of rank 1 of the clique has no peer access to the GPU of rank 0"),
        ("triton", "the package triton is not installed"),
        ("reduce_tensor", "out of handles"),
        ("rebuild_cuda_tensor", "out of handles"),
        ("wrong bytes", "rank 1 of the clique reads wrong values"),
    ],
)
def test_all_ranks_hear_of_the_fault_of_one(ranks, fault: str, words: str) -> None:
    if fault == "peers" and torch.cuda.device_count() == 1:
        pytest.skip("all ranks have the same GPU")
    heard = ranks(3).run(_refused, fault, 1)
    assert all(of_rank == heard[0] for of_rank in heard)
    refused, chosen = heard[0]
    assert words in refused and refused.endswith("; set feature_store.cache.access=collective")
    assert chosen.startswith(f"collective: {words}")


# --- rows and counts --------------------------------------------------------------------------------------------------
Read = tuple[dict[str, int], dict[str, int], int, bool]


def _reads(nodes: list[dict[str, Any]], dtype: torch.dtype) -> list[Read]:
    """Read from every store on this rank, and compare every row.

    Returns:
        For each store: counts, what the emulated device counted, rounds of exchanges, whether reads are exchanges.
    """
    gc.collect()  # when a store is freed, the host waits for the GPU: also a store of an earlier test
    graph, found, kept = graph_of(), [], []
    comm, device = _rank()
    assert isinstance(graph.features, torch.Tensor)
    graph.features[7, 3] = float("nan")  # a missing value is no wrong value
    for node in nodes:
        whole = graph.features.to(torch.bfloat16 if node.get("dtype") else dtype).to(dtype)
        store = build(node, FeatureStoreOptions).make()
        store.setup(shard_of(graph, comm.rank, comm.size), dtype, device, comm)
        kept.append(store)
        comm.ledger.take()
        totals = dict.fromkeys(("host_read_bytes", "peer_read_bytes", "waits"), 0)
        for ids in reads_of(comm.rank, graph.num_nodes):
            ids = ids.to(device) if store.on_device else ids
            if is_wanted():
                with counting() as counts:
                    rows = store.read(ids)
                totals = {name: amount + counts.totals[name] for name, amount in totals.items()}
            else:
                rows = store.read(ids)
            assert isinstance(rows, torch.Tensor) and rows.is_cuda and rows.dtype == dtype
            assert rows.cpu().view(torch.uint8).equal(whole[ids.long().cpu()].view(torch.uint8))
        rounds = sum(traffic.rounds for traffic in comm.ledger.take().values())
        found.append((store.take_counts(), totals, rounds, store.is_collective))
        assert set(store.take_counts().values()) == {0}, "counts begin at 0 again"
        store.finish()
    comm.barrier()
    comm.release()
    return found


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    ("size", "dtype", "narrow", "kind"),
    [
        (1, torch.float32, None, "uva"),
        (2, torch.float32, None, "uva"),
        (3, torch.float64, None, "host"),
        (4, torch.float32, "bfloat16", "uva"),
        (2, torch.float32, "bfloat16", "host"),
        (3, torch.float32, None, "partitioned"),
    ],
)
def test_rows_and_counts_are_those_of_exchanges(ranks, size, dtype, narrow, kind) -> None:
    nodes = {
        access: [
            {**STORES[kind], "dtype": narrow, "cache": {"_target_": SHARDED, "access": access, **cache}}
            for cache in CACHES.values()
        ]
        for access in ("peer", "collective")
    }
    row = 13 * (2 if narrow else dtype.itemsize)
    ids = [sum(one.nbytes for one in reads_of(rank, 60)) for rank in range(size)]
    direct, through = (ranks(size).run(_reads, nodes[access], dtype) for access in ("peer", "collective"))
    for rank, (there, here) in enumerate(zip(direct, through, strict=True)):
        for (counts, read, rounds, exchanges), (others, _, _, _) in zip(there, here, strict=True):
            missed = counts["features_loaded_host"]
            from_peers = counts.pop("tier/peer_bytes")
            assert from_peers == counts["features_loaded_peer"] * row
            expected = others.pop("tier/h2d_bytes") + (ids[rank] if kind != "uva" else -ids[rank])
            assert counts.pop("tier/h2d_bytes") == expected, "ids cross, unless they are on the GPU already"
            assert counts == others
            assert exchanges == (kind == "partitioned") and (rounds == 0 or kind == "partitioned")
            if is_wanted():
                assert read["peer_read_bytes"] == from_peers
                assert read["host_read_bytes"] == (missed * row if kind == "uva" else 0)
                assert read["waits"] == 0, "the host waits for nothing"
    if size > 1:
        assert any(counts["features_loaded_peer"] for of_rank in direct for counts, *_ in of_rank)


# --- training ---------------------------------------------------------------------------------------------------------
def _curve(config: dict[str, Any], way: str, size: int) -> Curve:
    graph = nasty_graph()
    return run_steps(config, graph, 3, placed(way, graph, size), torch.arange(60) % 7)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    ("way", "size", "sampler", "tier", "model", "overlap"),
    [
        ("data", 2, "cuda", "uva", "sage", False),
        ("data", 2, "cpu", "host", "gat", True),
        ("data", 4, "cuda", "uva", "gat", True),
        ("split", 3, "auto", "uva", "sage", False),
        ("data", 1, "cuda", "uva", "sage", True),
    ],
)
def test_training_is_that_of_exchanges(ranks, way, size, sampler, tier, model, overlap) -> None:
    curves = {}
    for access in ("collective", "auto"):
        config = config_in(
            way,
            MODELS[model],
            hardware={"workers": size, "device": "cuda"},
            feature_store={
                "tier": tier,
                "cache": {"_target_": SHARDED, "capacity": 9, "policy": "frequency", "access": access},
            },
        )
        config["sampler"] = {**config["sampler"], "device": sampler}
        config["train"] = {**config["train"], "eval_every": None, "overlap": overlap}
        curves[access] = ranks(size).run(_curve, config, way, size)
    for there, here in zip(curves["auto"], curves["collective"], strict=True):
        assert there.losses == here.losses  # bit by bit: the rows are the same
        assert all(gradient.equal(here.gradients[name]) for name, gradient in there.gradients.items())
        assert there.work.pop("tier/peer_bytes") == there.work["features_loaded_peer"] * 13 * 8
        del there.work["tier/h2d_bytes"], here.work["tier/h2d_bytes"]
        assert there.work == here.work


# --- memory -----------------------------------------------------------------------------------------------------------
def _freed() -> str:
    """Rank 0 frees its rows; what rank 1 hears when it then reads them."""
    comm, device = _rank()
    store = LocalOptions(cache=ShardedCacheOptions(30, access="peer")).make()
    store.setup(shard_of(graph_of(), comm.rank, comm.size), torch.float32, device, comm)
    heard = ""
    if comm.rank == 0:
        del store
        gc.collect()
    comm.barrier()
    if comm.rank == 1:
        try:
            store.read(torch.arange(60))
        except Exception as error:  # Triton's interpreter raises its own
            heard = str(error)
    comm.barrier()
    comm.release()
    return heard


@pytest.mark.gpu
@needs_gpu
@emulated_only
def test_reading_memory_that_its_owner_has_freed_is_an_error(ranks) -> None:
    assert "memory of another rank that its owner has freed" in ranks(2).run(_freed)[1]
