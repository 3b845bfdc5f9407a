"""`feature_store.tier=mapped`: kernels read rows in the mapped file of the features, without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from exchanging import CPU, alone
from store_cases import STATIC, graph_of, reads_of, shard_of

from emulated_gpu import counting, is_wanted
from gnnexp.comm.communicator import Communicator
from gnnexp.comm.environment import read_environment
from gnnexp.errors import ConfigError, RunError
from gnnexp.experiment.build import build, experiment_of, read
from gnnexp.experiment.seen import facts_of
from gnnexp.feature_stores.base import FeatureStoreOptions
from gnnexp.feature_stores.local import LocalOptions
from gnnexp.graph.graph import Graph
from gnnexp.graph.storage.format import open_graph, save_graph
from gnnexp.measure.phases import PhaseTimer
from gnnexp.ops.backends import has_triton
from gnnexp.testing.steps import MODELS, Curve, run_steps
from gnnexp.testing.ways import config_in, placed
from gnnexp.tiers import pinned

LOCAL = "gnnexp.feature_stores.local.LocalOptions"
CACHES: dict[str, dict[str, Any] | None] = {
    "none": None,
    "static": {"_target_": STATIC, "capacity": 0.3},
    "sharded": {
        "_target_": "gnnexp.feature_stores.sharded_cache.ShardedCacheOptions",
        "capacity": 9,
        "policy": "frequency",
    },
}
needs_gpu = pytest.mark.skipif(not (torch.cuda.is_available() and has_triton()), reason="needs a GPU and Triton")
emulated = pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu runs these")


def _config(
    way: str = "data", size: int = 1, device: str = "cuda", tier: str = "mapped", **store: object
) -> dict[str, Any]:
    return config_in(
        way,
        MODELS["sage"],
        feature_store={"tier": tier, **store},
        hardware={"workers": size, "device": device},
        train={"eval_every": None, "dtype": "float32"},
    )


def stored(folder: Path) -> Graph:
    """`graph_of` from a file."""
    save_graph(graph_of(), folder)
    return open_graph(folder)


# --- what is refused --------------------------------------------------------------------------------------------------
@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton that runs on a GPU, as far as options are checked."""
    for name in ("has_triton", "has_nvidia_gpu_build"):
        monkeypatch.setattr(f"gnnexp.feature_stores.local.{name}", lambda: True)


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"device": "cpu"}, "tier", "the run is on the CPU"),
        ({"way": "communicate"}, "tier", "reads rows on the host"),
        ({"memory": "ram"}, "memory", "set feature_store.tier=uva, or feature_store.memory=mapped"),
        ({"dtype": "bfloat16"}, "dtype", "set feature_store.tier=uva, or feature_store.dtype=null"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], key: str, words: str) -> None:
    (problem,) = read(_config(**changes)).problems
    assert problem.key == f"feature_store.{key}" and words in str(problem)


@pytest.mark.usefixtures("triton")
def test_the_run_must_have_the_dtype_of_the_file() -> None:
    config = _config()
    config["train"]["dtype"] = "float64"
    (problem,) = read(config).problems
    assert problem.key == "train.dtype" and "fix: set feature_store.tier=uva, or train.dtype=float32" in str(problem)


def test_sparse_features_stay_on_the_host() -> None:
    experiment = experiment_of(_config())
    (problem,) = experiment.feature_store.check_data(experiment.setting, facts_of(experiment, graph_of(sparse=True)))
    assert "sparse" in str(problem)


def test_a_rank_without_a_gpu_refuses(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no CUDA device"):
        LocalOptions(tier="mapped").make().setup(shard_of(stored(tmp_path / "g"), 0, 1), torch.float32, CPU, alone())


def test_pages_of_files_are_told_from_other_memory(tmp_path: Path) -> None:
    graph = stored(tmp_path / "g")
    assert isinstance(graph.features, torch.Tensor)
    assert pinned.is_mapped_from_file(graph.features.data_ptr())
    assert not pinned.is_mapped_from_file(torch.ones(1 << 20).data_ptr()) and not pinned.is_mapped_from_file(1)
    start, num_bytes = pinned._pages(graph.features.numpy())
    assert start % 4096 == num_bytes % 4096 == 0 and graph.features.data_ptr() - start == 128, "numpy's header"
    assert start + num_bytes >= graph.features.data_ptr() + graph.features.nbytes


class _Cuda:
    """CUDA's runtime that refuses to register some memory."""

    def __init__(self, codes: list[int]) -> None:
        self.codes, self.seen = codes, list[tuple[int, int]]()

    def cudaHostRegister(self, _: int, num_bytes: int, flags: int) -> int:  # noqa: N802
        self.seen.append((num_bytes, flags))
        return self.codes.pop(0)

    def cudaHostUnregister(self, _: int) -> int:  # noqa: N802
        return 0

    def cudaGetErrorString(self, _: int) -> str:  # noqa: N802
        return "operation not supported"


def test_a_refusal_of_cuda_is_told_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features = stored(tmp_path / "g").features
    assert isinstance(features, torch.Tensor)
    for codes, words in (
        (
            [801],
            r"operation not supported \(error 801\)\. These are pages of the features' file; set "
            r"feature_store\.tier=uva",
        ),
        ([0, 801], r"not supported \(error 801\); set"),
    ):
        cuda = _Cuda(list(codes))
        monkeypatch.setattr(torch.cuda, "cudart", lambda cuda=cuda: cuda)
        with pytest.raises(RunError, match=words):
            pinned.registered_file(features, alone(), CPU, "set feature_store.tier=uva")
        assert cuda.seen == [(4096, 10)] * len(codes)


def test_too_little_memory_and_memory_without_a_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = stored(tmp_path / "g")
    assert isinstance(graph.features, torch.Tensor)
    with pytest.raises(RunError, match="not mapped from a file; the fix"):
        pinned.registered_file(torch.ones(1000, 1000), alone(), CPU, "the fix")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=99))
    with pytest.raises(RunError, match="this machine has 99 bytes of memory; the fix"):
        pinned.registered_file(graph.features, alone(), CPU, "the fix")
    nothing = graph.features[:0]
    assert pinned.registered_file(nothing, alone(), CPU, "the fix") is nothing


# --- rows and counts --------------------------------------------------------------------------------------------------
@contextmanager
def _ranks_gpu() -> Iterator[tuple[Communicator, torch.device]]:
    environment = read_environment()
    device = torch.device("cuda", environment.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    comm = Communicator(environment, PhaseTimer(), CPU)
    yield comm, device
    comm.barrier()
    comm.release()


def _reads(folder: Path, tier: str) -> list[tuple[dict[str, int], int]]:
    """Read from a store with each cache on this rank, and compare every row; returns counts, and what kernels read."""
    found = []
    with _ranks_gpu() as (comm, device):
        for cache in CACHES.values():
            graph = open_graph(folder)
            assert isinstance(graph.features, torch.Tensor)
            store = build({"_target_": LOCAL, "tier": tier, "cache": cache}, FeatureStoreOptions).make()
            store.setup(shard_of(graph, comm.rank, comm.size), torch.float32, device, comm)
            link = 0
            for ids in reads_of(comm.rank, graph.num_nodes):
                if is_wanted():
                    with counting() as counts:
                        rows = store.read(ids)
                    link += counts.totals["host_read_bytes"]
                else:
                    rows = store.read(ids)
                assert isinstance(rows, torch.Tensor) and rows.is_cuda and rows.dtype == torch.float32
                assert rows.cpu().equal(graph.features[ids.long()])
            found.append((store.take_counts(), link))
    return found


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("size", [1, 3])
def test_rows_and_counts_are_those_of_the_pinned_copy(ranks, tmp_path, size) -> None:
    stored(tmp_path / "g")
    mapped, copied = (ranks(size).run(_reads, tmp_path / "g", tier) for tier in ("mapped", "uva"))
    assert mapped == copied


def _memory(folder: Path) -> tuple[bool, bool, bool]:
    """Whether rows are where the graph maps them, are pinned, and are not pinned after the store is gone."""
    with _ranks_gpu() as (comm, device):
        graph, store = open_graph(folder), LocalOptions(tier="mapped").make()
        assert isinstance(graph.features, torch.Tensor)
        store.setup(shard_of(graph, comm.rank, comm.size), torch.float32, device, comm)
        assert isinstance(store._features, torch.Tensor)
        same, is_pinned = store._features.data_ptr() == graph.features.data_ptr(), store._features.is_pinned()
        store._features = graph.features
        return same, is_pinned, not graph.features.is_pinned()


@pytest.mark.gpu
@needs_gpu
def test_nothing_is_copied_and_pages_are_given_back(ranks, tmp_path) -> None:
    stored(tmp_path / "g")
    assert ranks(2).run(_memory, tmp_path / "g") == [(True, True, True)] * 2


@pytest.mark.gpu
@emulated
def test_the_emulated_runtime_refuses_what_cuda_refuses(tmp_path: Path) -> None:
    features = stored(tmp_path / "g").features
    assert isinstance(features, torch.Tensor)
    start, num_bytes = pinned._pages(features.numpy())
    cudart: Any = torch.cuda.cudart()
    assert cudart.cudaHostRegister(start, num_bytes, 0) == 1, "the file is open for reading only"
    assert cudart.cudaHostRegister(start + 128, num_bytes, 10) == 1, "not a whole page"
    assert cudart.cudaHostRegister(start, 1 << 40, 10) == 1, "nothing is mapped there"
    assert cudart.cudaHostRegister(start, num_bytes, 10) == 0
    assert cudart.cudaHostRegister(start, num_bytes, 10) == 712
    assert cudart.cudaHostUnregister(start) == 0 and cudart.cudaHostUnregister(start) == 713
    assert "already mapped" in cudart.cudaGetErrorString(712)


# --- training ---------------------------------------------------------------------------------------------------------
def _curve(config: dict[str, Any], way: str, size: int, folder: Path) -> Curve:
    graph = open_graph(folder)
    return run_steps(config, graph, 2, placed(way, graph, size), torch.arange(60) % 7)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("way", "size", "cache"), [("data", 2, "static"), ("split", 2, "none")])
def test_training_is_that_of_the_pinned_copy(ranks, tmp_path, way, size, cache) -> None:
    stored(tmp_path / "g")
    mapped, copied = (
        ranks(size).run(_curve, _config(way, size, tier=tier, cache=CACHES[cache]), way, size, tmp_path / "g")
        for tier in ("mapped", "uva")
    )
    for there, other in zip(mapped, copied, strict=True):
        assert there.losses == other.losses and there.work == other.work
        assert all(gradient.equal(other.gradients[name]) for name, gradient in there.gradients.items())
