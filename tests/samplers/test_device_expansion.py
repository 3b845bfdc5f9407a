"""Blocks that are made on a device are those of the host, and the host waits once per batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from device_blocks import assert_same, check, random_case
from exchanging import alone
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_sampling import graph_of
from together import together

from emulated_gpu import is_wanted
from gnnexp.errors import ConfigError, RunError
from gnnexp.experiment.build import experiment_of, read
from gnnexp.graph.block import BatchKey
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.kernels.samplers import hop
from gnnexp.samplers import device_hops as hops
from gnnexp.samplers import fused
from gnnexp.samplers.device_expansion import DeviceExpansion
from gnnexp.samplers.device_hops import DeviceTopology
from gnnexp.samplers.device_vertices import NOWHERE
from gnnexp.samplers.expansion import Expansion
from gnnexp.samplers.fused import FusedOptions, FusedSampler
from gnnexp.testing.graphs import nasty_graph
from gnnexp.testing.steps import MODELS, small_config

CPU = torch.device("cpu")


@given(st.integers(0, 1 << 20))
@settings(max_examples=60)
def test_blocks_of_plain_torch_are_those_of_the_host(number: int) -> None:
    check(random_case(number))


@pytest.mark.slow
def test_blocks_of_plain_torch_are_those_of_the_host_on_1000_graphs() -> None:
    for number in range(1000):
        check(random_case(number))


LOOPED = BlockNeeds(self_loops=True, edge_identity=True)


def both(fanouts: list[int], needs: BlockNeeds = LOOPED) -> tuple[DeviceExpansion, Expansion]:
    graph = graph_of([3, 0, 40, 7, 1, 12, 0, 5], 8, seed=1)
    return DeviceExpansion(DeviceTopology(graph, needs, fanouts, CPU)), Expansion(graph, needs, fanouts)


def test_a_batch_clears_its_entries_of_the_table() -> None:
    there, _ = both([4, 2])
    for step in range(3):
        there.blocks(torch.randperm(8)[:5], (step, 2))
        (table,) = there._tables._spare
        assert (table.entries[:-1] == NOWHERE).all()


def test_a_hop_with_too_large_a_bound_waits_for_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hops, "MOST_BOUND", 20)
    there, host = both([4, 3, 2])
    seeds = torch.tensor([2, 5, 0])
    assert_same(there.blocks(seeds, (1, 2, 3))[0], host.blocks(seeds, (1, 2, 3)))


@pytest.mark.parametrize("seeds", [[1, 2, 1], [0, 8], [-1], [1 << 32]])
def test_bad_seeds_are_refused_and_leave_no_trace(seeds: list[int]) -> None:
    there, host = both([2])
    with pytest.raises(ValueError, match="seed"):
        there.blocks(torch.tensor(seeds), (1,))
    good = torch.tensor([0, 1, 2])
    assert_same(there.blocks(good, (1,))[0], host.blocks(good, (1,)))


def test_a_batch_keeps_its_own_memory() -> None:
    there, host = both([4, 2])
    kept, ids = there.blocks(torch.tensor([2, 3]), (1, 2))
    for step in range(3):
        there.blocks(torch.randperm(8), (step, step))
    expected = host.blocks(torch.tensor([2, 3]), (1, 2))
    assert_same(kept, expected)
    assert ids.equal(expected[0].src_ids)


def test_two_batches_at_once_have_two_tables() -> None:
    there, _ = both([4])
    tables = there._tables
    with tables.lent() as first, tables.lent() as second:
        assert first is not second
    assert len(tables._spare) == 2


def test_a_table_is_not_used_again_after_an_error() -> None:
    there, _ = both([4])
    with pytest.raises(ZeroDivisionError), there._tables.lent():
        raise ZeroDivisionError
    assert not there._tables._spare


def test_an_empty_batch_has_empty_blocks() -> None:
    for fanouts in ([3, 2], [-1, 2]):
        there, host = both(fanouts)
        nothing = torch.empty(0, dtype=torch.int64)
        assert_same(there.blocks(nothing, (1, 2))[0], host.blocks(nothing, (1, 2)))


@pytest.mark.parametrize(
    ("sampler", "device", "key"),
    [
        ({}, "cpu", "sampler.device"),
        ({"_target_": "weighted.ScalingOptions"}, "cuda", "sampler.device"),
        ({"fanouts": [2049, 3]}, "cuda", "sampler.fanouts"),
    ],
)
def test_a_run_that_cannot_sample_on_a_gpu_is_refused(sampler: dict[str, object], device: str, key: str) -> None:
    config = small_config(
        MODELS["sage"], hardware={"device": device}, train={"eval_every": None}, sampler={"device": "cuda", **sampler}
    )
    assert [problem.key for problem in read(config).problems] == [key]
    config["sampler"]["device"] = "auto"
    assert not read(config).problems
    experiment = experiment_of(config)
    assert (
        experiment.sampler.make().place(experiment.setting, Shard(nasty_graph()), torch.device("cuda"), alone())
        == "cpu"
    )


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sampler\.device"):
        FusedOptions([4], device="gpu").make()  # type: ignore[arg-type]


def test_a_rank_without_a_gpu_refuses_to_sample_on_one() -> None:
    config = small_config(MODELS["sage"], hardware={"device": "auto"}, sampler={"device": "cuda"})
    experiment = experiment_of(config)
    with pytest.raises(ConfigError, match="no CUDA device"):
        experiment.sampler.make().place(experiment.setting, Shard(nasty_graph()), CPU, alone())


@pytest.mark.parametrize("lacking", ["", "no room"])
def test_one_rank_without_room_keeps_all_ranks_on_the_host(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    monkeypatch.setattr(FusedSampler, "_why_not_on_gpu", lambda _, __, shard, *___: lacking if shard.rank == 1 else "")

    def of_rank(comm: Any, device: str) -> str:
        config = small_config(MODELS["sage"], hardware={"device": "cuda", "workers": 2}, sampler={"device": device})
        experiment, gpu = experiment_of(config), torch.device("cuda", comm.rank)
        return experiment.sampler.make().place(experiment.setting, Shard(nasty_graph(), comm.rank, 2), gpu, comm)

    found = together(2, lambda comm: of_rank(comm, "auto"))
    assert found == (["cpu: no room"] * 2 if lacking else ["cuda:0", "cuda:1"])
    if lacking:
        with pytest.raises(RunError, match=r"no room; set sampler\.device=cpu"):
            together(2, lambda comm: of_rank(comm, "cuda"))


class Wrong:
    """Kernels that take another neighbour than the host."""

    def __getattr__(self, name: str) -> object:
        return getattr(hop, name)

    def draw_edges(self, *arguments: object) -> tuple[torch.Tensor, torch.Tensor | None]:
        found, positions = hop.draw_edges(*arguments)  # type: ignore[arg-type]
        return found.flip(0), positions


def test_a_first_batch_that_differs_from_the_hosts_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def sampler() -> FusedSampler:
        made = FusedOptions([4, 3]).make()
        made._place = CPU  # a CPU works, too
        made.setup(Shard(nasty_graph()), 2)
        return made

    seeds, key = torch.arange(20), BatchKey(seed=1, epoch=0, step=0)
    right = sampler()
    right.sample(seeds[:0], key)  # nothing to compare
    assert right._compares
    right.sample(seeds, key)
    assert not right._compares
    monkeypatch.setattr(fused, "kernels_for", lambda *_: Wrong())
    with pytest.raises(RunError, match=r"different blocks of layer \d .*sampler\.device=cpu"):
        sampler().sample(seeds, key)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
def test_the_memory_of_the_gpu_decides_where_batches_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = experiment_of(small_config(MODELS["sage"], hardware={"device": "cuda"}))
    shard, gpu = Shard(nasty_graph()), torch.device("cuda", 0)
    needed = shard.graph.topology_bytes + 4 * shard.graph.num_nodes
    for free, place in ((2 * needed, "cuda:0"), (2 * needed - 1, f"cpu: sampling on the GPU needs {needed} bytes, ")):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, free))
        assert experiment.sampler.make().place(experiment.setting, shard, gpu, alone()).startswith(place)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (needed - 1, needed))
    with pytest.raises(RunError, match=r"set sampler\.device=cpu"):
        FusedOptions([4, 3], device="cuda").make().place(experiment.setting, shard, gpu, alone())


@pytest.mark.gpu
@pytest.mark.skipif(not is_wanted(), reason="make test-emulated-gpu runs these")
@pytest.mark.parametrize(("fanouts", "waits"), [([4, 3, 2], 1), ([4, -1, 2], 2), ([-1, -1], 3)])
def test_the_host_waits_once_and_once_more_for_every_hop_that_takes_all(fanouts: list[int], waits: int) -> None:
    from emulated_gpu import counting

    graph = graph_of([3, 0, 40, 7, 1, 12, 0, 5], 8, seed=1)
    for needs in (BlockNeeds(), replace(LOOPED, edge_ids=True)):
        there = DeviceExpansion(DeviceTopology(graph, needs, fanouts, torch.device("cuda")))
        seeds = torch.tensor([2, 5, 0])
        there.blocks(seeds, range(len(fanouts)))
        with counting() as counts:
            there.blocks(seeds, range(len(fanouts)))
        assert counts.totals["waits"] == waits, counts.places
        assert counts.totals["pageable_h2d_bytes"] == 0
        assert counts.totals["h2d_bytes"] == 8 * (len(fanouts) + seeds.numel())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
def test_blocks_on_a_gpu_are_those_of_the_host() -> None:
    for number in range(40):
        check(random_case(number), device="cuda")
