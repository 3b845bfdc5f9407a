"""DGL's sampler behind our interface, and agreement of ours with it where both must take every edge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from reference_sampling import graph_of

from gnnexp.errors import ConfigError
from gnnexp.graph.block import BatchKey, Block
from gnnexp.graph.graph import Graph
from gnnexp.graph.shard import BlockNeeds, Shard
from gnnexp.samplers import dgl as dgl_sampler
from gnnexp.samplers.base import Sampler
from gnnexp.samplers.dgl import DGLOptions
from gnnexp.samplers.full import FullOptions
from gnnexp.samplers.fused import FusedOptions
from gnnexp.testing.graphs import edges_of

pytest.importorskip("dgl")
KEY = BatchKey(0, 2, 5)
NOTHING = BlockNeeds()
FUSED = pytest.mark.parametrize("fused", [True, False])


@pytest.fixture
def one_thread() -> Iterator[None]:
    """DGL draws by OpenMP thread: only one thread is repeatable."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def graph(wide: bool = False) -> Graph:
    degrees = [0, 30, 4, 1, *([7] * 20), *([2] * 26)]
    return graph_of(degrees, 50, seed=2, wide=wide, types=2)


def blocks(sampler: Sampler, of: Graph, seeds: list[int], needs: BlockNeeds = NOTHING) -> tuple[Block, ...]:
    sampler.setup(Shard(of, needs=needs), 2)
    for step in range(3):  # int32 graphs went wrong in DGL from the second call on
        sampler.sample(torch.tensor(seeds), BatchKey(9, 0, step))
    return sampler.sample(torch.tensor(seeds), KEY).blocks


def identities(block: Block) -> list[tuple[int, ...]]:
    """(dst, src, edge id, occurrence, type) of every edge, sorted."""
    dst = torch.repeat_interleave(block.dst_ids, block.indptr.diff())
    columns = [dst, block.src_ids[block.sources.long()], block.edge_ids, block.occurrence, block.edge_types]
    return sorted(zip(*(column.tolist() for column in columns if column is not None), strict=True))


@FUSED
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("seeds", [[1, 0, 3], [40, 2]])
def test_all_neighbours_agree_with_dgl(fused: bool, wide: bool, loops: bool, seeds: list[int]) -> None:
    needs = BlockNeeds(self_loops=loops, edge_identity=True, edge_types=True)
    of = graph(wide)
    theirs = blocks(DGLOptions([-1, -1], fused=fused).make(), of, seeds, needs)
    for ours in (FullOptions().make(), FusedOptions([-1, 30]).make(), FusedOptions([1000, 1000]).make()):
        for mine, his in zip(blocks(ours, of, seeds, needs), theirs, strict=True):
            assert set(mine.src_ids.tolist()) == set(his.src_ids.tolist())
            assert mine.num_dst == his.num_dst
            assert identities(mine) == identities(his)
            assert (mine.src_ids.dtype, mine.sources.dtype) == (his.src_ids.dtype, his.sources.dtype)
    assert theirs[-1].dst_ids.tolist() == seeds


@FUSED
def test_draws_are_edges_of_the_graph(fused: bool) -> None:
    of = graph()
    needs = BlockNeeds(self_loops=True, edge_identity=True, edge_types=True)
    frontier = torch.tensor([1, 5, 0, 49])
    sampled = blocks(DGLOptions([3, 4], fused=fused).make(), of, frontier.tolist(), needs)
    for fanout, block in zip((3, 4), reversed(sampled), strict=True):
        assert block.dst_ids.tolist() == frontier.tolist()
        assert block.degree.equal(of.in_degree[frontier.long()].clamp(max=fanout) + 1)
        assert block.edge_ids is not None
        rows = block.edge_ids.split(block.degree.tolist())
        for (dst, sources), edge in zip(edges_of(block).items(), rows, strict=True):
            assert sources[-1] == dst
            assert edge[-1] == -1
            assert sources[:-1] == of.indices[edge[:-1]].tolist()
            assert Counter(edge.tolist()).most_common(1)[0][1] == 1
        frontier = block.src_ids


@FUSED
@pytest.mark.usefixtures("one_thread")
def test_a_key_repeats_its_draws(fused: bool) -> None:
    first, again = (blocks(DGLOptions([3, 2], fused=fused).make(), graph(), [1, 5, 9, 20]) for _ in range(2))
    other = DGLOptions([3, 2], fused=fused).make()
    other.setup(Shard(graph()), 2)
    different = other.sample(torch.tensor([1, 5, 9, 20]), BatchKey(0, 2, 6)).blocks
    assert [b.src_ids.tolist() for b in first] == [b.src_ids.tolist() for b in again]
    assert [b.sources.tolist() for b in first] == [b.sources.tolist() for b in again]
    assert [b.src_ids.tolist() for b in first] != [b.src_ids.tolist() for b in different]


@FUSED
def test_no_targets_make_empty_blocks(fused: bool) -> None:
    sampler = DGLOptions([3, 2], fused=fused).make()
    sampler.setup(Shard(graph(), needs=BlockNeeds(self_loops=True)), 2)
    for block in sampler.sample(torch.empty(0, dtype=torch.int64), KEY).blocks:
        assert (block.num_dst, block.num_src, block.num_edges) == (0, 0, 0)


def test_without_dgl_the_config_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dgl_sampler, "is_installed", lambda name: False)
    with pytest.raises(ConfigError, match="dgl"):
        DGLOptions([3]).make()
