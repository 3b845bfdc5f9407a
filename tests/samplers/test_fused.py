"""The fused sampler against its definition, and what must not change its choice."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference_sampling import graph_of, graphs, reference_blocks

from gnnexp.graph.block import Batch, BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.kernels.samplers import ordered
from gnnexp.samplers import expansion
from gnnexp.samplers.fused import FusedOptions, FusedSampler
from gnnexp.samplers.pipeline import prefetched
from gnnexp.testing.graphs import edges_of

KEY = BatchKey(seed=3, epoch=1, step=4)
NOTHING = BlockNeeds()
FANOUTS = st.lists(st.sampled_from([-1, 1, 2, 3, 5, 17, 200]), min_size=1, max_size=3)
NEEDS = st.builds(BlockNeeds, st.booleans(), st.booleans(), st.booleans())


def sampler_of(graph: Graph, fanouts: list[int], needs: BlockNeeds = NOTHING) -> FusedSampler:
    sampler = FusedOptions(fanouts).make()
    sampler.setup(Shard(graph, needs=needs), len(fanouts))
    return sampler


def same(first: Batch, second: Batch) -> bool:
    return all(
        a.indptr.equal(b.indptr) and a.sources.equal(b.sources) and a.src_ids.equal(b.src_ids)
        for a, b in zip(first.blocks, second.blocks, strict=True)
    )


@st.composite
def cases(draw: st.DrawFn, types: int = 0) -> tuple[Graph, list[int]]:
    graph = draw(graphs(types))
    return graph, draw(st.lists(st.integers(0, graph.num_nodes - 1), unique=True))


@given(cases(types=2), FANOUTS, NEEDS)
@settings(max_examples=150)
def test_blocks_are_those_of_the_definition(
    case: tuple[Graph, list[int]], fanouts: list[int], needs: BlockNeeds
) -> None:
    graph, seeds = case
    batch = sampler_of(graph, fanouts, needs).sample(torch.tensor(seeds, dtype=torch.int64), KEY, global_count=9)
    expected = reference_blocks(graph, seeds, fanouts, KEY, needs)
    assert batch.targets.tolist() == seeds
    assert (batch.key, batch.global_count) == (KEY, 9)
    for block, reference in zip(batch.blocks, expected, strict=True):
        assert block.indptr.tolist() == reference["indptr"]
        assert block.sources.tolist() == reference["sources"]
        assert block.src_ids.tolist() == reference["src_ids"]
        assert (block.indptr.dtype, block.sources.dtype) == (torch.int64, torch.int32)
        assert block.src_ids.dtype == graph.indices.dtype
        assert block.self_loops == needs.self_loops
        assert block.in_degree is None
        edges = torch.tensor(reference["edges"], dtype=torch.int64)
        assert (block.edge_types is None) == (not (needs.edge_types or needs.edge_identity))
        if block.edge_types is not None:
            assert graph.edge_types is not None
            # An added self loop is edge -1, in a graph that may have no edge at all.
            assert block.edge_types.equal(torch.cat([graph.edge_types, graph.edge_types.new_tensor([-1])])[edges])
        with_identity = needs.edge_identity and graph.occurrence is not None
        assert (block.edge_ids is not None) == (block.occurrence is not None) == with_identity
        if block.edge_ids is not None and block.occurrence is not None and graph.occurrence is not None:
            assert block.edge_ids.equal(edges)
            assert block.occurrence.equal(torch.where(edges < 0, -1, graph.occurrence[edges]))


@given(cases(), FANOUTS)
def test_blocks_hold_what_a_block_must(case: tuple[Graph, list[int]], fanouts: list[int]) -> None:
    graph, seeds = case
    batch = sampler_of(graph, fanouts).sample(torch.tensor(seeds, dtype=torch.int64), KEY)
    frontier = torch.tensor(seeds, dtype=graph.indices.dtype)
    for block, fanout in zip(reversed(batch.blocks), fanouts, strict=True):
        assert block.dst_ids.equal(frontier)  # destinations first, in the order given
        assert block.src_ids.unique().numel() == block.num_src
        sources_of_edges = {source for row in edges_of(block).values() for source in row}
        assert set(block.src_ids.tolist()) == set(frontier.tolist()) | sources_of_edges
        full = graph.in_degree[frontier.long()]
        assert block.degree.equal(full if fanout < 0 else full.clamp(max=fanout))
        for dst, sources in edges_of(block).items():
            of_graph = Counter(graph.indices[graph.indptr[dst] : graph.indptr[dst + 1]].tolist())
            assert Counter(sources) <= of_graph  # edges of the graph, none of them twice
        turned = block.transpose
        assert sorted(turned.edges.tolist()) == list(range(block.num_edges))
        sources_again = torch.repeat_interleave(torch.arange(block.num_src), turned.indptr.diff())
        assert block.sources[turned.edges.long()].long().equal(sources_again)
        frontier = block.src_ids
    assert batch.input_ids is batch.blocks[0].src_ids


@given(graphs(), st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=3), st.data())
def test_choice_does_not_depend_on_the_rest_of_the_batch(graph: Graph, fanouts: list[int], data: st.DataObject) -> None:
    sampler = sampler_of(graph, fanouts)
    everyone = torch.tensor(data.draw(st.permutations(range(graph.num_nodes))))
    together = sampler.sample(everyone, KEY)
    cut = data.draw(st.integers(0, graph.num_nodes))
    for share in (everyone[:cut], everyone[cut:], everyone[:1]):  # shares of two ranks, and a vertex alone
        alone = sampler.sample(share, KEY)
        for large, small in zip(together.blocks, alone.blocks, strict=True):
            rows = edges_of(large)
            assert all(rows[dst] == sources for dst, sources in edges_of(small).items())


def power_law_graph() -> Graph:
    degrees = (np.random.default_rng(0).pareto(1.2, 3000) * 8).astype(np.int64).clip(0, 900)
    return graph_of(degrees.tolist(), 3000, seed=1)


@pytest.mark.parametrize("fanouts", [[150], [32, 33], [60, 400]])
def test_large_fanouts_are_those_of_the_definition(fanouts: list[int]) -> None:
    graph, seeds = power_law_graph(), list(range(0, 3000, 50))
    assert graph.in_degree.max() > max(fanouts)
    batch = sampler_of(graph, fanouts).sample(torch.tensor(seeds), KEY)
    expected = reference_blocks(graph, seeds, fanouts, KEY, BlockNeeds())
    for block, reference in zip(batch.blocks, expected, strict=True):
        assert block.sources.tolist() == reference["sources"]
        assert block.src_ids.tolist() == reference["src_ids"]


@pytest.mark.parametrize("word", ["seed", "epoch", "step", "micro"])
def test_every_word_of_the_key_changes_the_choice(word: str) -> None:
    sampler = sampler_of(power_law_graph(), [4, 3])
    other = BatchKey(**(vars(KEY) | {word: getattr(KEY, word) + 1}))
    seeds = torch.arange(0, 3000, 10)
    assert same(sampler.sample(seeds, KEY), sampler.sample(seeds, KEY))
    assert not same(sampler.sample(seeds, KEY), sampler.sample(seeds, other))


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(threads: int) -> None:
    sampler = sampler_of(power_law_graph(), [5, 150, -1], BlockNeeds(self_loops=True, edge_identity=True))

    def make(step: int) -> Batch:
        return sampler.sample(torch.arange(step, 3000, 37), BatchKey(0, 0, step))

    expected = [make(step) for step in range(12)]
    made = list(prefetched(make, 12, threads, depth=4))
    assert all(same(a, b) for a, b in zip(expected, made, strict=True))


@pytest.fixture
def tiny_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads inside a batch divide even the smallest hop."""
    for module, name in (
        (expansion, "SERIAL_ROWS"),
        (expansion, "SERIAL_EDGES"),
        (ordered, "MIN_ROWS"),
        (ordered, "MIN_EDGES"),
    ):
        monkeypatch.setattr(module, name, 1)


@given(cases(types=2), FANOUTS, NEEDS, st.sampled_from([2, 3, 8]))
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_threads_inside_a_batch_change_nothing(
    tiny_ranges: None, case: tuple[Graph, list[int]], fanouts: list[int], needs: BlockNeeds, threads: int
) -> None:
    graph, seeds = case
    targets, one, several = torch.tensor(seeds, dtype=torch.int64), *(sampler_of(graph, fanouts, needs) for _ in "ab")
    several.inside = threads
    for step in range(2):
        key = BatchKey(3, 1, step)
        first, second = one.sample(targets, key), several.sample(targets, key)
        for a, b in zip(first.blocks, second.blocks, strict=True):
            assert arrays_of(a) == arrays_of(b)
        for hop in range(len(fanouts)):
            frontier = targets.to(graph.indices.dtype)
            a, b = (sampler.sample_layer(frontier, hop, key) for sampler in (one, several))
            assert [kind if kind is None else kind.tolist() for kind in a] == [
                kind if kind is None else kind.tolist() for kind in b
            ]


def arrays_of(block: Block) -> dict[str, list[float]]:
    return {name: value.tolist() for name, value in vars(block).items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("fanouts", [[15, 10, 5], [40, -1], [7, 7]])
def test_many_batches_are_the_same_with_threads_inside_and_beside(tiny_ranges: None, fanouts: list[int]) -> None:
    needs = BlockNeeds(self_loops=True, edge_identity=True)
    one, several = (sampler_of(power_law_graph(), fanouts, needs) for _ in "ab")
    several.inside = 2

    def make(step: int) -> Batch:
        return several.sample(torch.arange(step, 3000, 37), BatchKey(0, 0, step))

    for step, batch in enumerate(prefetched(make, 25, threads=2, depth=3)):
        assert same(batch, one.sample(torch.arange(step, 3000, 37), BatchKey(0, 0, step)))


def test_batches_stay_right_when_the_map_is_used_up() -> None:
    """The base of the map moves with every batch and must start again before int32 ends."""
    graph = power_law_graph()
    sampler, fresh = sampler_of(graph, [4, 3]), sampler_of(graph, [4, 3])
    seeds = torch.arange(0, 3000, 7)
    sampler.sample(seeds, KEY)
    (space,) = sampler._expansion._maps._spare
    space.base, cleared = (1 << 30) - 10, 0
    for step in range(6):
        before = space.base
        key = BatchKey(0, 0, step)
        assert same(sampler.sample(seeds, key), fresh.sample(seeds, key))
        cleared += space.base < before
    assert cleared == 1
    assert sampler._expansion._maps._spare == [space]


@pytest.mark.parametrize("fanouts", [[3, 2], [-1, -1]])
def test_no_targets_make_empty_blocks(fanouts: list[int]) -> None:
    needs = BlockNeeds(self_loops=True, edge_identity=True)
    sampler = sampler_of(graph_of([3, 3, 3], 3, seed=0), fanouts, needs)
    for block in sampler.sample(torch.empty(0, dtype=torch.int64), KEY).blocks:
        assert (block.num_dst, block.num_src, block.num_edges) == (0, 0, 0)
        assert block.indptr.tolist() == [0]


@pytest.mark.parametrize("seeds", [[1, 2, 1], [0, 3], [-1], [1 << 32]])
def test_bad_seeds_are_refused_and_leave_no_trace(seeds: list[int]) -> None:
    sampler = sampler_of(graph_of([2, 2, 2], 3, seed=0), [1])
    before = sampler.sample(torch.tensor([0, 1, 2]), KEY)
    with pytest.raises(ValueError, match="seed"):
        sampler.sample(torch.tensor(seeds), KEY)
    assert same(before, sampler.sample(torch.tensor([0, 1, 2]), KEY))


def test_a_batch_keeps_its_own_memory() -> None:
    """Scratch memory is reused by the next batch, which must not reach into one that is still being trained on."""
    sampler = sampler_of(power_law_graph(), [5, 5], BlockNeeds(edge_identity=True, edge_types=True))
    kept = sampler.sample(torch.arange(0, 3000, 9), KEY)
    copies = [(b.indptr.clone(), b.sources.clone(), b.src_ids.clone()) for b in kept.blocks]
    for step in range(3):
        sampler.sample(torch.arange(step, 3000, 5), BatchKey(0, 0, step))
    for block, (indptr, sources, src_ids) in zip(kept.blocks, copies, strict=True):
        assert block.indptr.equal(indptr)
        assert block.sources.equal(sources)
        assert block.src_ids.equal(src_ids)
