"""Both partitioners keep the guarantees of all partitioners, reach their own goals, and training over them is exact."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from my_partitioners.bandwidth import BandwidthPartitioner
from my_partitioners.grid import GridPartitioner

from gnnexp.errors import ConfigError
from gnnexp.graph.quality import quality
from gnnexp.graph.stream import GraphStream
from gnnexp.partitioners.random import RandomPartitioner
from gnnexp.testing.graphs import csc, edge_list, nasty_graph
from gnnexp.testing.steps import MODELS
from gnnexp.testing.strategies import graphs
from gnnexp.testing.ways import assert_exact_in

BOTH = pytest.mark.parametrize("kind", [GridPartitioner, BandwidthPartitioner])
PARTS = st.sampled_from([1, 2, 3, 6, 9, 12])


@BOTH
@settings(max_examples=20, deadline=None)
@given(graph=graphs(), num_parts=PARTS)
def test_every_vertex_has_an_owner_and_the_same_one_again(kind, graph, num_parts):
    num_parts = min(num_parts, graph.num_nodes)
    found = kind().partition(graph, num_parts, "key")  # checks shapes, types and ranges
    assert torch.equal(found.node_owner, kind().partition(graph, num_parts).node_owner)
    assert (found.edge_owner is not None) == kind.vertex_cut
    json.dumps(dict(found.options) | dict(found.facts))  # what is recorded


@BOTH
@pytest.mark.parametrize("num_parts", [0, 31])
def test_more_parts_than_vertices_are_refused(kind, num_parts):
    with pytest.raises(ConfigError, match="must be 1 to 30"):
        kind().partition(csc(30, np.arange(29), np.arange(1, 30)), num_parts)


def test_keys_tell_options_apart():
    made = [GridPartitioner(), GridPartitioner(seed=1), GridPartitioner(home="last"), BandwidthPartitioner()]
    assert len({one.key("graph", parts) for one in made for parts in (2, 3)}) == 2 * len(made)


@settings(max_examples=20, deadline=None)
@given(graph=graphs(), num_parts=PARTS)
def test_a_vertex_has_copies_in_one_row_and_one_column(graph, num_parts):
    found = GridPartitioner().partition(graph, min(num_parts, graph.num_nodes))
    bound = found.facts["rows"] + found.facts["columns"] - 1
    copies = [set() for _ in range(graph.num_nodes)]
    for ends, part in zip(edge_list(graph), found.edge_owner.tolist(), strict=True):
        for vertex in ends:
            copies[vertex].add(part)
    assert max(map(len, copies)) <= bound
    for owner, parts in zip(found.node_owner.tolist(), copies, strict=True):
        assert not parts or owner in parts, "the owner of a vertex has one of its edges"


def test_chunks_of_the_stream_change_nothing():
    graph, rule = nasty_graph(), GridPartitioner(seed=3)
    whole = rule.assign(graph, 6)
    for chunk_edges in (1, 7):
        again = rule.assign_stream(GraphStream(graph, chunk_edges=chunk_edges), 6)
        assert torch.equal(again.edges, whole.edges) and torch.equal(again.nodes, whole.nodes)


def test_neighbours_of_a_shuffled_path_stay_together():
    names = np.random.default_rng(0).permutation(1000)
    path = csc(1000, np.concatenate([names[:-1], names[1:]]), np.concatenate([names[1:], names[:-1]]))
    found = BandwidthPartitioner().partition(path, 4)
    assert found.part_sizes().tolist() == [250] * 4
    crossing = sum(found.node_owner[a] != found.node_owner[b] for a, b in edge_list(path))
    assert crossing == 2 * 3, "a path of 4 ranges has 3 borders, each with an edge in both directions"
    assert quality(path, found)["edge_cut"] < quality(path, RandomPartitioner().partition(path, 4))["edge_cut"] / 100


@BOTH
def test_full_graph_training_over_it_is_exact(ranks, kind):
    way, partition = "vertex_cut" if kind.vertex_cut else "hybrid", kind().partition(nasty_graph(), 3)
    assert_exact_in(ranks, way, MODELS["gat"], partition=partition, steps=5)
