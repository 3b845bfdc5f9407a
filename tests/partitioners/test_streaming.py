"""What all rules on streams of edges have in common, and how a rule of one's own is plugged in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from edge_streams import ORDERS, parts_of
from hypothesis import given
from hypothesis import strategies as st

from gnnexp.errors import DataError
from gnnexp.experiment.build import build
from gnnexp.graph.graph import Graph
from gnnexp.graph.stream import ArrayStream, EdgeChunk, EdgeStream, GraphStream, StreamOrder, SymmetricStream
from gnnexp.partitioners.base import Owners, Partitioner
from gnnexp.partitioners.dbh import DbhPartitioner
from gnnexp.partitioners.greedy import GreedyPartitioner
from gnnexp.partitioners.hdrf import HdrfPartitioner
from gnnexp.partitioners.libra import LibraPartitioner
from gnnexp.partitioners.spring import SpringPartitioner
from gnnexp.partitioners.streaming import (
    EdgePlacer,
    EdgeScorer,
    Home,
    NumParts,
    Placement,
    StreamPartitioner,
    VertexCut,
)
from gnnexp.partitioners.two_ps_l import TwoPsLPartitioner
from gnnexp.testing.graphs import edge_list, nasty_graph
from gnnexp.testing.strategies import graphs


class Nearest(EdgeScorer):
    """A rule of a user's own: parts that hold more ends score better; balance decides between them."""

    def __init__(self, num_parts: NumParts = "auto", weight: float = 0.5) -> None:
        super().__init__(num_parts)
        self.weight = weight

    def score(self, state: Placement, source: int, destination: int) -> np.ndarray:
        ends = state.holders(source).astype(float) + state.holders(destination)
        return ends - self.weight * state.loads / (1 + state.loads.max())  # type: ignore[no-any-return]


@dataclass(eq=False)
class Counting(Placement):
    """State that a rule adds to what all have."""

    placed: int = 0


class RoundRobin(EdgePlacer):
    """Another one, that takes chunks."""

    def begin(self, stream: EdgeStream, num_parts: int) -> Placement:
        return Counting.empty(self.first_degrees(stream), num_parts)

    def place(self, state: Placement, sources: np.ndarray, destinations: np.ndarray, parts: np.ndarray) -> None:
        assert isinstance(state, Counting)
        parts[:] = (state.placed + np.arange(parts.size)) % state.num_parts
        state.placed += parts.size
        for ends in zip(sources.tolist(), destinations.tolist(), parts.tolist(), strict=True):
            state.put(*ends)


RULES: dict[str, Callable[[StreamOrder, Home], VertexCut]] = {
    "hdrf": lambda order, home: HdrfPartitioner(order=order, home=home),
    "hdrf exact": lambda order, home: HdrfPartitioner(degrees="exact", order=order, home=home),
    "dbh": lambda order, home: DbhPartitioner(order=order, home=home),
    "dbh streamed": lambda order, home: DbhPartitioner(degrees="streamed", order=order, home=home),
    "greedy": lambda order, home: GreedyPartitioner(order=order, home=home),
    "libra": lambda order, home: LibraPartitioner(order=order, home=home),
    "two_ps_l": lambda order, home: TwoPsLPartitioner(passes=2, order=order, home=home),
    "own, by edges": lambda order, home: Nearest(),
    "own, by chunks": lambda order, home: RoundRobin(order=order, home=home),
}
HOMES: list[Home] = ["most", "last"]
PARTS = st.sampled_from([1, 2, 3, 64, 65, 130])


def same(one: Owners, other: Owners) -> bool:
    assert one.edges is not None and other.edges is not None
    return torch.equal(one.nodes, other.nodes) and torch.equal(one.edges, other.edges)


@pytest.mark.parametrize("name", RULES)
@given(graph=graphs(), num_parts=PARTS, order=st.sampled_from(ORDERS), home=st.sampled_from(HOMES))
def test_every_edge_has_a_part_and_every_vertex_a_home(
    name: str, graph: Graph, num_parts: int, order: StreamOrder, home: Home
) -> None:
    num_parts = min(num_parts, graph.num_nodes)
    rule = RULES[name](order, home)
    partition = rule.partition(graph, num_parts, "key")  # checks shapes, types and ranges
    assert partition.edge_owner is not None
    held: list[set[int]] = [set() for _ in range(graph.num_nodes)]
    for (src, dst), part in zip(edge_list(graph), partition.edge_owner.tolist(), strict=True):
        held[dst].add(part)
        if rule.home == "most":
            held[src].add(part)
    assert all(part in parts for part, parts in zip(partition.node_owner.tolist(), held, strict=True) if parts)
    json.dumps(dict(partition.options) | dict(partition.facts))


@pytest.mark.parametrize("name", RULES)
@given(graph=graphs(), num_parts=PARTS, order=st.sampled_from(ORDERS), home=st.sampled_from(HOMES))
def test_chunks_change_nothing(name: str, graph: Graph, num_parts: int, order: StreamOrder, home: Home) -> None:
    rule = RULES[name](order, home)
    whole = rule.assign(graph, num_parts)
    for chunk_edges in (1, 7):
        stream = GraphStream(graph, rule.order, rule.seed, chunk_edges=chunk_edges)
        assert same(rule.assign_stream(stream, num_parts), whole)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.int16])
def test_an_array_of_the_same_edges_gives_the_same_parts(name: str, dtype: type[np.generic]) -> None:
    graph = nasty_graph(num_edges=300)
    rule = RULES[name]("stored", "most")
    pairs = np.array(edge_list(graph), dtype)
    stream = ArrayStream(pairs, graph.num_nodes, chunk_edges=50)
    assert same(rule.assign_stream(stream, 5), rule.assign(graph, 5))
    # Without V the last vertices, which have no edges, would not be known; here the last one has most edges.
    assert same(rule.assign_stream(ArrayStream(pairs), 5), rule.assign(graph, 5))


@pytest.mark.parametrize("name", RULES)
@given(graph=graphs(), num_parts=PARTS, chunk_edges=st.sampled_from([1, 4, 100]))
def test_a_symmetrized_stream_is_that_of_its_edges(name: str, graph: Graph, num_parts: int, chunk_edges: int) -> None:
    if not graph.num_edges:
        return
    rule = RULES[name]("stored", "last")
    both = SymmetricStream(GraphStream(graph, chunk_edges=chunk_edges))
    pairs = np.concatenate([np.stack(chunk[:2], 1) for chunk in both.chunks()])
    loops = sum(src == dst for src, dst in edge_list(graph))
    assert both.num_edges == 2 * graph.num_edges - loops == len(pairs)
    assert same(rule.assign_stream(both, num_parts), rule.assign_stream(ArrayStream(pairs, graph.num_nodes), num_parts))


def test_keys_tell_options_apart() -> None:
    made = [
        rule(order, home)
        for name, rule in RULES.items()
        for order in ORDERS
        for home in HOMES
        if name != "own, by edges"
    ]
    made += [
        TwoPsLPartitioner(),
        TwoPsLPartitioner(max_volume=0.1),
        TwoPsLPartitioner(balance=1.1),
        HdrfPartitioner(lambda_=2.0),
        HdrfPartitioner(epsilon=2.0),
        DbhPartitioner(seed=1),
    ]
    assert len({rule.key("graph", 2) for rule in made}) == len(made)


@pytest.mark.parametrize("name", ["Nearest", "RoundRobin"])
def test_a_rule_of_ones_own_is_built_by_its_name(name: str) -> None:
    rule = build({"_target_": f"{__name__}.{name}", "num_parts": 3}, Partitioner)
    partition = rule.partition(nasty_graph(), rule.resolve(1))
    assert partition.edge_owner is not None and partition.num_parts == 3
    assert set(partition.edge_owner.tolist()) == {0, 1, 2}


def test_a_scored_edge_goes_to_the_best_part_and_the_lowest_on_ties() -> None:
    stream = ArrayStream(np.array([[0, 1], [2, 3], [4, 5], [0, 2], [1, 3], [6, 6]]))
    # 0->2: part 0 holds 0, part 1 holds 2: the lower one. 1->3: parts 0 and 1 hold an end each, 1 is emptier. 6->6: 2.
    assert parts_of(Nearest().assign_stream(stream, 3)) == [0, 1, 2, 0, 1, 2]


def test_holders_are_the_bits_of_a_vertex() -> None:
    state = Placement.empty(np.zeros(2, np.int32), 130)
    for part in (0, 63, 64, 129):
        assert state.put(1, 1, part) == part
    assert np.flatnonzero(state.holders(1)).tolist() == [0, 63, 64, 129]
    assert state.holders(1).shape == (130,) and not state.holders(0).any()
    assert state.loads.sum() == 4


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("wrong", [-1, 9])
def test_ids_out_of_range_are_told(name: str, wrong: int) -> None:
    pairs = np.array([[0, 1], [2, 3], [4, wrong], [5, 6]])
    with pytest.raises(DataError, match=rf"file, edge 2='4 -> {wrong}': ids must be 0 to 8"):
        RULES[name]("stored", "most").assign_stream(ArrayStream(pairs, 9, "file", chunk_edges=2), 2)


class Repeated(EdgeStream):
    """One chunk, over and over."""

    def __init__(self, times: int) -> None:
        self.name, self.times = "hub", times

    def chunks(self) -> Iterator[EdgeChunk]:
        ids = np.zeros(1 << 20, np.int32)
        for at in range(self.times):
            yield EdgeChunk(ids, ids, slice(at << 20, (at + 1) << 20))

    @property
    def num_nodes(self) -> int:
        return 2

    @property
    def num_edges(self) -> int:
        return self.times << 20


@pytest.mark.parametrize(
    "rule",
    [
        TwoPsLPartitioner(),
        pytest.param(SpringPartitioner(degrees="streamed"), marks=pytest.mark.slow),
    ],
)
def test_a_degree_that_does_not_fit_is_told(rule: StreamPartitioner) -> None:
    # 2^30 loops are 2^31 ends of edges at vertex 0.
    with pytest.raises(DataError, match=r"hub='vertex 0': must have fewer than 2\^31 edges"):
        rule.assign_stream(Repeated(1 << 10), 2)
    assert Repeated(3).degrees.tolist() == [3 << 21, 0]


@pytest.mark.parametrize("rule", [TwoPsLPartitioner(), SpringPartitioner(), SpringPartitioner(degrees="streamed")])
def test_more_vertices_than_records_can_name_are_told(rule: StreamPartitioner) -> None:
    stream = ArrayStream(np.array([[0, 1]]), (1 << 31) + 1, "wide")
    with pytest.raises(DataError, match=r"wide='2147483649 vertices': must be 2\^31 at most"):
        rule.assign_stream(stream, 2)


def test_ids_that_are_all_negative_are_told() -> None:
    with pytest.raises(DataError, match="file, edge 0='-3 -> -1'"):
        TwoPsLPartitioner().partition_stream(ArrayStream(np.array([[-3, -1]]), name="file"), 1)


class Late(HdrfPartitioner):
    """Begins where degrees are about to leave their type."""

    def first_degrees(self, stream: EdgeStream) -> np.ndarray:
        return np.full(stream.num_nodes, 2**31 - 3, np.int32)


def test_so_is_one_that_is_counted_while_edges_are_placed() -> None:
    Late().assign_stream(ArrayStream(np.array([[0, 1], [0, 1]])), 2)
    with pytest.raises(DataError, match=r"file='vertex 0': must have fewer than 2\^31 edges"):
        Late().assign_stream(ArrayStream(np.array([[0, 1], [0, 0]]), name="file"), 2)
