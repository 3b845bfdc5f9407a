"""`sampler.tier=uva`: kernels that make batches on a GPU read edges in pinned host memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch
from device_blocks import check, check_remote, check_split, random_case
from exchanging import alone
from together import together

from emulated_gpu import counting, is_wanted
from gnnexp.errors import ConfigError, RunError
from gnnexp.experiment.build import experiment_of, read
from gnnexp.graph.block import BatchKey
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.kernels.counter import Purpose, stream
from gnnexp.ops.backends import has_triton, is_interpreted
from gnnexp.samplers import fused
from gnnexp.samplers.device_expansion import DeviceExpansion
from gnnexp.samplers.device_hops import DeviceTopology
from gnnexp.samplers.fused import FusedOptions, FusedSampler
from gnnexp.testing.exactness import parts
from gnnexp.testing.graphs import nasty_graph, typed_graph
from gnnexp.testing.steps import MODELS, small_config

needs_gpu = pytest.mark.skipif(not (torch.cuda.is_available() and has_triton()), reason="needs a GPU and Triton")
emulated = pytest.mark.skipif(not (is_wanted() and is_interpreted()), reason="make test-emulated-gpu runs these")
GPU = torch.device("cuda", 0)


def config_of(place: str = "cuda", kernel: str = "triton", **sampler: object) -> dict[str, Any]:
    """A run at this place with `tier=uva`."""
    return small_config(
        {**MODELS["sage"], "kernel": kernel},
        hardware={"device": place},
        train={"eval_every": None},
        sampler={"tier": "uva", **sampler},
    )


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton that runs on a GPU, as far as options are checked."""
    for module in (fused, "gnnexp.ops.backends"):
        for name in ("has_triton", "has_nvidia_gpu_build"):
            monkeypatch.setattr(
                f"{module}.{name}" if isinstance(module, str) else f"{module.__name__}.{name}", lambda: True
            )


# --- what is refused --------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize(
    ("device", "kernel", "sampler", "words"),
    [
        ("cpu", "auto", {}, "the run is on the CPU"),
        ("cuda", "triton", {"device": "cpu"}, "made on the host with sampler.device=cpu"),
        ("cuda", "torch", {}, "set model.kernel=triton"),
        ("cuda", "auto", {}, "set model.kernel=triton"),
        ("cuda", "triton", {"_target_": "weighted.ScalingOptions"}, "draws with its own code"),
    ],
)
def test_what_cannot_be_is_refused(device: str, kernel: str, sampler: dict[str, object], words: str) -> None:
    (problem,) = read(config_of(device, kernel, **sampler)).problems
    assert problem.key == "sampler.tier" and words in str(problem)


@pytest.mark.usefixtures("triton")
def test_what_can_be_is_accepted() -> None:
    assert not read(config_of()).problems and not read(config_of(device="cuda")).problems
    assert not read(config_of("cpu", "auto", tier="device")).problems, "device says where edges are if a GPU samples"


def test_it_needs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "has_triton", lambda: False)
    problems = [str(one) for one in read(config_of()).problems if one.key == "sampler.tier"]
    assert len(problems) == 1 and "triton" in problems[0] and "sampler.tier=auto" in problems[0]


@pytest.mark.parametrize("key", ["device", "tier"])
def test_unknown_words_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"sampler\.{key}='gpu'"):
        FusedOptions([4], **{key: "gpu"}).make()  # type: ignore[arg-type]


@pytest.mark.usefixtures("triton")
def test_a_rank_without_a_gpu_refuses() -> None:
    experiment = experiment_of(config_of("auto"))
    with pytest.raises(ConfigError, match=r"sampler\.tier='uva': no CUDA device is visible"):
        experiment.sampler.make().place(experiment.setting, Shard(nasty_graph()), torch.device("cpu"), alone())


# --- the choice -------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize(
    ("lacking", "tier", "found"),
    [
        ({}, "auto", ["cuda:0", "cuda:1"]),
        (
            {"device": 1},
            "auto",
            [
                "cuda:0, which reads edges in host memory: no room of device",
                "cuda:1, which reads edges in host memory: no room of device",
            ],
        ),
        ({"device": 0, "uva": 1}, "auto", ["cpu: no room of device"] * 2),
        ({"device": 1}, "device", ["cpu: no room of device"] * 2),
        (
            {"device": 1},
            "uva",
            [
                "cuda:0, which reads edges in host memory: sampler.tier=uva",
                "cuda:1, which reads edges in host memory: sampler.tier=uva",
            ],
        ),
    ],
)
def test_all_ranks_choose_the_same_tier(
    monkeypatch: pytest.MonkeyPatch, lacking: dict[str, int], tier: str, found: list[str]
) -> None:
    monkeypatch.setattr(
        FusedSampler,
        "_why_not_on_gpu",
        lambda _, __, shard, ___, tier: f"no room of {tier}" if lacking.get(tier) == shard.rank else "",
    )

    def of_rank(comm: Any) -> str:
        config = config_of(tier=tier)
        config["hardware"]["workers"] = 2
        experiment, gpu = experiment_of(config), torch.device("cuda", comm.rank)
        return experiment.sampler.make().place(experiment.setting, Shard(nasty_graph(), comm.rank, 2), gpu, comm)

    assert together(2, of_rank) == found


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kernel", ["triton", "torch"])
def test_the_memory_of_the_gpu_decides_where_edges_are(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    experiment = experiment_of(config_of(kernel=kernel, tier="auto"))
    shard = Shard(nasty_graph())
    vertices = 4 * shard.graph.num_nodes
    whole, bounds = shard.graph.topology_bytes + vertices, shard.graph.indptr.nbytes + vertices
    far = "cuda:0, which reads" if kernel == "triton" else "cpu: sampling"
    for free, place in ((2 * whole, "cuda:0"), (2 * whole - 1, far), (2 * bounds, far), (2 * bounds - 1, "cpu: ")):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, free))
        found = experiment.sampler.make().place(experiment.setting, shard, GPU, alone())
        assert found.startswith(place) and (found == place or f"needs {whole} bytes" in found)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (bounds - 1, bounds))
    with pytest.raises(RunError, match=rf"needs {bounds} bytes, {bounds - 1} bytes are free; set sampler\.device=cpu"):
        FusedOptions([4, 3], tier="uva", device="cuda").make().place(
            experiment_of(config_of()).setting, shard, GPU, alone()
        )


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize(
    ("tier", "topology", "factor"),
    [("auto", "replicated", 2), ("uva", "replicated", 1), ("auto", "partitioned", 2 * 3)],
)
def test_pinned_edges_must_fit_into_the_memory_of_the_host(
    monkeypatch: pytest.MonkeyPatch, tier: str, topology: str, factor: int
) -> None:
    monkeypatch.setattr(FusedSampler, "_why_not_on_gpu", lambda *arguments: "no room" * (arguments[-1] == "device"))
    graph = nasty_graph()
    config = config_of(tier=tier, topology=topology)
    config["hardware"]["workers"] = 3
    shard = Shard(graph, 0, 3, partition=parts(graph, 3), part=0)
    edges = (graph if topology == "replicated" else shard.owned_topology).indices.nbytes
    experiment = experiment_of(config)
    for available, found in (
        (factor * edges, "cuda:0, which reads edges in host memory"),
        (factor * edges - 1, "cpu: no room" if tier == "auto" else ""),
    ):
        monkeypatch.setattr(psutil, "virtual_memory", lambda available=available: SimpleNamespace(available=available))
        if found:
            assert experiment.sampler.make().place(experiment.setting, shard, GPU, alone()).startswith(found)
        else:
            with pytest.raises(RunError, match=f"edges in host memory need {edges} bytes, {edges - 1} bytes are"):
                experiment.sampler.make().place(experiment.setting, shard, GPU, alone())


# --- blocks, and what is read -----------------------------------------------------------------------------------------
@pytest.mark.gpu
@emulated
@pytest.mark.parametrize("number", [7, 41, 46])
def test_blocks_are_those_of_the_host(number: int) -> None:
    from gnnexp.kernels.cuda import sample

    check(random_case(number), sample, "cuda", torch.Tensor.pin_memory)
    check_split(number, sample, "cuda", torch.Tensor.pin_memory)
    check_remote(number, sample, "cuda", torch.Tensor.pin_memory)


@pytest.mark.gpu
@needs_gpu
def test_blocks_on_a_gpu_are_those_of_the_host() -> None:
    from gnnexp.kernels.cuda import sample

    for number in range(3 if is_wanted() else 40):
        check(random_case(number, 17), sample, "cuda", torch.Tensor.pin_memory)


@pytest.mark.gpu
@emulated
@pytest.mark.parametrize(("fanouts", "waits"), [([4, 3], 1), ([3, -1], 2)])
@pytest.mark.parametrize("looped", [False, True])
def test_the_bytes_that_kernels_read_are_those_of_the_batch(fanouts: list[int], waits: int, looped: bool) -> None:
    graph = typed_graph()
    needs = BlockNeeds(self_loops=looped, edge_identity=True, edge_types=not looped)
    experiment = experiment_of(config_of(fanouts=fanouts))
    sampler = experiment.sampler.make()
    assert isinstance(sampler, FusedSampler)
    assert sampler.place(experiment.setting, Shard(graph), GPU, alone()).startswith("cuda:0, which reads")
    sampler.setup(Shard(graph, needs=needs), len(fanouts))
    for step in range(3):  # the first batch is also made on the host
        with counting() as counts:
            batch = sampler.sample(torch.randperm(graph.num_nodes)[:20], BatchKey(7, 0, step))
        drawn = sum(block.num_edges - looped * block.num_dst for block in batch.blocks)
        assert sampler.device_topology is not None
        held = (*sampler.device_topology.kinds.values(), graph.indices)
        width = sum(values.element_size() for values in held)
        assert batch.far_bytes == counts.totals["host_read_bytes"] == drawn * width > 0
        assert batch.crossing_bytes == counts.totals["h2d_bytes"] + batch.far_bytes
        if step:
            assert counts.totals["waits"] == waits, counts.places
            assert counts.totals["pageable_h2d_bytes"] == 0


@pytest.mark.gpu
@emulated
def test_only_bounds_of_edges_are_on_the_gpu() -> None:
    from gnnexp.kernels.cuda import sample

    case = random_case(46)
    there = DeviceTopology(case.graph, case.needs, case.fanouts, GPU, case.names, sample, torch.Tensor.pin_memory)
    assert there.far and there._indptr.is_cuda
    assert there._indices.is_pinned() and all(values.is_pinned() for values in there.kinds.values())
    blocks, _ = DeviceExpansion(there).blocks(
        case.batches[0], [stream(7, Purpose.SAMPLE, 0, 0, -1, hop) for hop in range(len(case.fanouts))]
    )
    assert all(array.is_cuda for block in blocks for array in block.arrays())
