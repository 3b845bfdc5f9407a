"""`feature_store.tier=uva`: kernels read rows in pinned host memory, with and without a cache on the GPU."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from exchanging import CPU, alone
from store_cases import STATIC, graph_of, reads_of, shard_of

from emulated_gpu import counting, is_wanted
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError
from gnnexp.experiment.build import build, experiment_of, read
from gnnexp.experiment.seen import facts_of
from gnnexp.feature_stores.base import FeatureStoreOptions
from gnnexp.feature_stores.cache import FeatureCache
from gnnexp.feature_stores.local import LocalOptions
from gnnexp.feature_stores.static_cache import StaticCache, StaticCacheOptions
from gnnexp.measure.phases import PhaseTimer
from gnnexp.ops.backends import has_triton
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, Curve, run_steps
from gnnexp.testing.ways import config_in, placed

LOCAL = "gnnexp.feature_stores.local.LocalOptions"
SHARDED = "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions"
CACHES: dict[str, dict[str, Any] | None] = {
    "none": None,
    "static": {"_target_": STATIC, "capacity": 0.3},
    "owned": {"_target_": STATIC, "capacity": 7, "policy": "frequency", "of": "owned"},
    "foreign": {"_target_": STATIC, "capacity": 7, "policy": "frequency", "of": "foreign"},
    "nothing": {"_target_": STATIC, "capacity": 0},
    "all": {"_target_": STATIC, "capacity": 1.0},
    "sharded": {"_target_": SHARDED, "capacity": 9, "policy": "frequency", "access": "collective"},
    "sharded_alone": {"_target_": SHARDED, "capacity": 5, "clique": 1, "access": "collective"},
}
needs_gpu = pytest.mark.skipif(not (torch.cuda.is_available() and has_triton()), reason="needs a GPU and Triton")


def _config(
    way: str, size: int, tier: str, device: str = "cuda", model: str = "sage", **store: object
) -> dict[str, Any]:
    return config_in(
        way,
        MODELS[model],
        feature_store={"tier": tier, **store},
        hardware={"workers": size, "device": device},
        train={"eval_every": None},
    )


# --- what is refused --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("way", "device", "words"),
    [
        ("data", "cpu", "the run is on the CPU"),
        ("communicate", "cuda", "reads rows on the host"),
    ],
)
def test_what_cannot_be_is_refused(way: str, device: str, words: str) -> None:
    (problem,) = (one for one in read(_config(way, 1, "uva", device)).problems if one.key == "feature_store.tier")
    assert "triton" in str(problem) if not has_triton() else words in str(problem)
    assert "feature_store.tier=host" in str(problem)


def test_it_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnexp.feature_stores.local.has_triton", lambda: False)
    (problem,) = (one for one in read(_config("data", 1, "uva")).problems if one.key == "feature_store.tier")
    assert "triton" in str(problem) and "feature_store.tier=host" in str(problem)


def test_sparse_features_stay_on_the_host() -> None:
    experiment = experiment_of(_config("data", 1, "uva"))
    problems = experiment.feature_store.check_data(experiment.setting, facts_of(experiment, graph_of(sparse=True)))
    assert [problem.key for problem in problems] == ["feature_store.tier"]


def test_a_rank_without_a_gpu_refuses() -> None:
    with pytest.raises(ConfigError, match="no CUDA device"):
        LocalOptions(tier="uva").make().setup(shard_of(graph_of(), 0, 1), torch.float32, CPU, alone())


# --- rows and counts --------------------------------------------------------------------------------------------------
def _reads(nodes: list[dict[str, Any]], dtype: torch.dtype) -> list[tuple[dict[str, int], int, int]]:
    """Read from every store on this rank, and compare every row; returns counts, bytes read over the link, waits."""
    gc.collect()  # when a store is freed, also one of another test, the host waits for the GPU
    graph, found, kept = graph_of(), [], []
    environment = read_environment()
    device = torch.device("cuda", environment.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    comm = Communicator(environment, PhaseTimer(), CPU)
    assert isinstance(graph.features, torch.Tensor)
    for node in nodes:
        whole = graph.features.to(torch.bfloat16 if node.get("dtype") else dtype).to(dtype)
        store = build(node, FeatureStoreOptions).make()
        store.setup(shard_of(graph, comm.rank, comm.size), dtype, device, comm)
        kept.append(store)
        link = waits = 0
        for ids in reads_of(comm.rank, graph.num_nodes):
            if is_wanted():
                with counting() as counts:
                    rows = store.read(ids)
                link, waits = link + counts.totals["host_read_bytes"], waits + counts.totals["waits"]
            else:
                rows = store.read(ids)
            assert isinstance(rows, torch.Tensor) and rows.is_cuda and rows.dtype == dtype
            assert rows.cpu().equal(whole[ids.long()])
        found.append((store.take_counts(), link, waits))
    comm.barrier()
    comm.release()
    return found


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    ("size", "dtype", "narrow"), [(1, torch.float64, None), (3, torch.float32, None), (2, torch.float32, "bfloat16")]
)
def test_rows_and_counts_are_those_of_the_host_tier(ranks, size, dtype, narrow) -> None:
    stores = {
        tier: [{"_target_": LOCAL, "tier": tier, "cache": cache, "dtype": narrow} for cache in CACHES.values()]
        for tier in ("uva", "host")
    }
    ids = [sum(one.nbytes for one in reads_of(rank, 60)) for rank in range(size)]
    itemsize = 2 if narrow else dtype.itemsize
    direct, through = (ranks(size).run(_reads, stores[tier], dtype) for tier in ("uva", "host"))
    for rank, (there, here) in enumerate(zip(direct, through, strict=True)):
        for cache, (counts, link, waits), (others, nothing, _) in zip(CACHES, there, here, strict=True):
            missed = counts["features_loaded_host"] * 13 * itemsize
            assert counts.pop("tier/h2d_bytes") == missed + ids[rank], "rows of misses, and all ids"
            assert others.pop("tier/h2d_bytes") == missed and counts == others
            if is_wanted():
                assert link == missed and nothing == 0
                assert waits == 0 or cache == "sharded", "the host waits for nothing but peers' rows"


# --- training ---------------------------------------------------------------------------------------------------------
def _curve(config: dict[str, Any], way: str, size: int) -> Curve:
    graph = nasty_graph()
    return run_steps(config, graph, 3, placed(way, graph, size), torch.arange(60) % 7)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("model", ["sage", "gat"])
@pytest.mark.parametrize(
    ("way", "size", "sampler", "cache"),
    [
        ("data", 1, "cuda", "none"),
        ("data", 2, "cpu", "none"),
        ("data", 2, "cuda", "static"),
        ("split", 2, "cpu", "none"),
        ("split", 2, "cuda", "none"),
        ("split", 2, "auto", "owned"),
        ("split", 2, "cpu", "foreign"),
        ("data", 2, "cuda", "nothing"),
        ("data", 2, "cpu", "sharded"),
        ("split", 2, "auto", "sharded"),
    ],
)
def test_training_is_that_of_the_host_tier(ranks, way, size, sampler, cache, model) -> None:
    curves = {}
    for tier in ("host", "uva"):
        cached = CACHES[cache]
        config = _config(way, size, tier, model=model, cache=cached)
        config["sampler"] = {**config["sampler"], "device": sampler}
        config["train"]["overlap"] = cache == "static"
        curves[tier] = ranks(size).run(_curve, config, way, size)
    width = nasty_graph().indices.element_size()
    for there, here in zip(curves["uva"], curves["host"], strict=True):
        assert there.losses == here.losses  # bit by bit: the rows are the same
        assert all(gradient.equal(here.gradients[name]) for name, gradient in there.gradients.items())
        rows = sum(here.work.get(f"features_loaded_{origin}", 0) for origin in ("host", "local", "peer"))
        ids = 0 if sampler == "cuda" and cache == "none" else rows * width
        assert there.work.pop("tier/h2d_bytes") == here.work.pop("tier/h2d_bytes") + ids
        assert there.work == here.work


class Plain(StaticCache):
    """A cache without a kernel that reads past it, as a user may write one."""

    read_past = FeatureCache.read_past  # type: ignore[assignment]


@dataclass(frozen=True)
class PlainOptions(StaticCacheOptions):
    """Its options."""

    def make(self) -> Plain:
        return Plain(self)


@pytest.mark.gpu
@needs_gpu
def test_other_caches_read_their_misses_over_the_link() -> None:
    graph, device = graph_of(), torch.device("cuda", 0)
    store = LocalOptions(tier="uva", cache=PlainOptions(20)).make()
    store.setup(shard_of(graph, 0, 1), torch.float32, device, alone())
    ids = torch.arange(60)
    rows = store.read(ids)
    assert isinstance(rows, torch.Tensor) and isinstance(graph.features, torch.Tensor)
    assert rows.cpu().equal(graph.features)
    assert store.take_counts() == {
        "features_loaded_local": 20,
        "features_loaded_host": 40,
        "tier/h2d_bytes": 40 * (13 * 4 + 8),
    }


@pytest.mark.gpu
@needs_gpu
def test_a_kernel_reads_no_host_memory_that_is_not_pinned() -> None:
    from gnnexp.kernels.cuda.fetch import fetch_rows

    out = torch.empty(2, 3, device="cuda")
    with pytest.raises(ValueError, match="cannot be accessed from Triton"):
        fetch_rows(torch.ones(5, 3), torch.tensor([4, 0]), out)
    fetch_rows(torch.ones(5, 3).pin_memory(), torch.tensor([4, 0]), out)
    assert out.cpu().eq(1).all()


# --- memory -----------------------------------------------------------------------------------------------------------
def _memory() -> tuple[str, bool]:
    """Inode of the mapping with this rank's features, and whether they are pinned."""
    environment = read_environment()
    device = torch.device("cuda", environment.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    comm = Communicator(environment, PhaseTimer(), CPU)
    store = LocalOptions(tier="uva").make()
    store.setup(shard_of(graph_of(), comm.rank, comm.size), torch.float32, device, comm)
    assert isinstance(store._features, torch.Tensor)
    address, pinned = store._features.data_ptr(), store._features.is_pinned()
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    (inode,) = (line[4] for line in lines if int(line[0].split("-")[0], 16) <= address < int(line[0].split("-")[1], 16))
    comm.release()
    return inode, pinned


@pytest.mark.gpu
@needs_gpu
def test_ranks_of_a_machine_share_one_copy(ranks) -> None:
    found = ranks(3).run(_memory)
    assert len({inode for inode, _ in found}) == 1 and all(pinned for _, pinned in found)
