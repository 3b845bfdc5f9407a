"""Draws follow the paper and are the same on every rank; training is exact with every mini-batch paradigm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from combinations import combinations
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnexp.graph.block import BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.kernels.counter import Purpose, draw, stream
from gnnexp.kernels.samplers import smallest
from gnnexp.samplers.fused import FusedOptions
from gnnexp.samplers.labor import LaborOptions
from gnnexp.testing.exactness import assert_exact
from gnnexp.testing.graphs import csc, edges_of, nasty_graph, weighted_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.testing.strategies import graphs

LABOR = {"_target_": "gnnexp.samplers.labor.LaborOptions", "fanouts": [4, 3], "key": "global"}
KEY = BatchKey(seed=3, epoch=1, step=4)


def sampler_of(graph, fanouts, kind=LaborOptions):
    made = kind(fanouts).make()
    made.setup(Shard(graph), len(fanouts))
    return made


def expected(graph, frontier, fanout, hop, names):
    """By the definition: sort the in-edges of each vertex by their sources' numbers, and take the first ones."""
    word = np.uint64(stream(KEY.seed, Purpose.SAMPLE, KEY.epoch, KEY.step, KEY.micro, hop))
    for vertex in frontier.tolist():
        first, last = graph.indptr[vertex : vertex + 2].tolist()
        numbers = [int(draw(word, np.uint64(names[graph.indices[edge]]))) for edge in range(first, last)]
        order = sorted(range(last - first), key=numbers.__getitem__)
        yield [first + place for place in sorted(order[: len(order) if fanout == -1 else fanout])]


@settings(max_examples=30, deadline=None)
@given(graphs(), st.sampled_from([-1, 1, 2, 5]), st.integers(0, 2), st.sampled_from([1, 2]), st.data())
def test_each_vertex_takes_the_edges_with_the_smallest_numbers(graph, fanout, hop, threads, data):
    """Whoever else is there, in any order and repeated, with any number of threads, also if ids are local."""
    sampler = LaborOptions([fanout] * 3).make()
    names = torch.tensor(data.draw(st.permutations(range(graph.num_nodes)))).to(graph.indices.dtype)
    sampler.setup(Shard(graph, names=names), 3)
    sampler.inside = threads
    frontier = torch.tensor(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), max_size=40)), dtype=torch.int64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(smallest, "MIN_EDGES", 1)
        drawn = sampler.sample_layer(frontier, hop, KEY)
    rows = list(expected(graph, frontier, fanout, hop, names.tolist()))
    assert drawn.indptr.tolist() == np.cumsum([0, *map(len, rows)]).tolist()
    assert drawn.ids.tolist() == graph.indices[[edge for row in rows for edge in row]].tolist()


def test_data_of_edges_follow_the_edges():
    graph = weighted_graph()
    sampler = sampler_of(graph, [3])
    drawn = sampler.sample_layer(torch.arange(60), 0, KEY)
    rows = [edge for row in expected(graph, torch.arange(60), 3, 0, range(60)) for edge in row]
    assert drawn.weight.tolist() == graph.edge_weights[rows].tolist()


def test_destinations_with_the_same_neighbours_take_the_same_ones():
    """Ten destinations have the same 40 neighbours: they load k vertices; independent draws would load more."""
    src, dst = np.tile(np.arange(10, 50), 10), np.repeat(np.arange(10), 40)
    graph = csc(50, src, dst)
    (block,) = sampler_of(graph, [5]).sample(torch.arange(10), KEY).blocks
    assert block.num_src == 10 + 5 and block.num_edges == 50
    (independent,) = sampler_of(graph, [5], FusedOptions).sample(torch.arange(10), KEY).blocks
    assert independent.num_edges == 50 and independent.num_src > 10 + 5


def test_a_neighbour_is_taken_with_probability_k_over_d():
    graph = csc(21, np.arange(1, 21), np.zeros(20, np.int64))
    sampler, count, draws = sampler_of(graph, [5]), np.zeros(21), 4000
    for step in range(draws):
        count[sampler.sample(torch.tensor([0]), BatchKey(0, 0, step)).blocks[0].src_ids[1:].numpy()] += 1
    # 5 standard deviations of a binomial with p = 1/4.
    assert np.abs(count[1:] / draws - 0.25).max() < 5 * (0.25 * 0.75 / draws) ** 0.5


@pytest.mark.parametrize("word", ["seed", "epoch", "step", "micro"])
def test_every_word_of_the_key_changes_the_choice(word):
    sampler, seeds = sampler_of(nasty_graph(), [2]), torch.arange(60)
    other = BatchKey(**{**vars(KEY), word: 9})
    assert edges_of(sampler.sample(seeds, KEY).blocks[0]) != edges_of(sampler.sample(seeds, other).blocks[0])


PARADIGMS = {
    "data": ({"assign": "even"}, "replicated"),
    "owner": ({"assign": "owner"}, "partitioned"),
    "split": ({"_target_": "gnnexp.paradigms.split_parallel.SplitParallel"}, "partitioned"),
    "push_pull": ({"_target_": "gnnexp.paradigms.push_pull.PushPull"}, "replicated"),
}


@pytest.mark.parametrize(
    ("size", "way", "model", "graph"),
    combinations(
        [1, 2, 3, 4],
        PARADIGMS,
        ["gat", "sage", "gcn", "gin"],
        {"nasty": nasty_graph, "weighted": weighted_graph},
        quick=lambda *case: (
            case
            in (
                (2, "data", "sage", "weighted"),
                (3, "owner", "gat", "nasty"),
                (3, "split", "gat", "nasty"),
                (2, "split", "gcn", "weighted"),
            )
        ),
    ),
)
def test_training_is_exact(ranks, size, way, model, graph, steps):
    """GAT drops attention by edge identity, on a graph with parallel edges."""
    paradigm, topology = PARADIGMS[way]
    config = small_config(MODELS[model], paradigm=paradigm)
    config["sampler"] = {**LABOR, "topology": topology}
    if way == "push_pull":
        config["feature_store"] = {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"}
    make = {"nasty": nasty_graph, "weighted": weighted_graph}[graph]
    assert_exact(ranks, size, make, config, 1e-10, num_parts=None if topology == "replicated" else size, steps=steps)
