"""Draws follow the paper and are the same on every rank; training is exact with every mini-batch paradigm."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from my_samplers.labor import LaborOptions

from gnnexp.graph.block import BatchKey
from gnnexp.graph.shard import Shard
from gnnexp.samplers.fused import FusedOptions
from gnnexp.testing.exactness import assert_exact
from gnnexp.testing.graphs import csc, edges_of, nasty_graph
from gnnexp.testing.steps import MODELS, small_config
from gnnexp.testing.strategies import graphs

LABOR = {"_target_": "my_samplers.labor.LaborOptions", "fanouts": [4, 3], "key": "global"}
KEY = BatchKey(seed=3, epoch=1, step=4)


def sampler_of(graph, fanouts, kind=LaborOptions):
    made = kind(fanouts).make()
    made.setup(Shard(graph), len(fanouts))
    return made


@settings(max_examples=30, deadline=None)
@given(graphs(), st.lists(st.sampled_from([-1, 1, 2, 5]), min_size=1, max_size=3), st.data())
@pytest.mark.slow
def test_draws_are_in_edges_and_do_not_depend_on_who_else_is_there(graph, fanouts, data):
    sampler = sampler_of(graph, fanouts)
    everyone = torch.tensor(data.draw(st.permutations(range(graph.num_nodes))))
    together = sampler.sample(everyone, KEY).blocks[-1]
    for vertex, sources in edges_of(together).items():
        of_graph = graph.indices[graph.indptr[vertex] : graph.indptr[vertex + 1]].tolist()
        assert len(sources) == (len(of_graph) if fanouts[0] == -1 else min(fanouts[0], len(of_graph)))
        assert all(sources.count(one) <= of_graph.count(one) for one in sources)
    alone = sampler.sample(everyone[:1], KEY).blocks[-1]
    assert edges_of(alone).items() <= edges_of(together).items()


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


@pytest.mark.parametrize("way", PARADIGMS)
def test_training_is_exact(ranks, way):
    """GAT drops attention by edge identity, on a graph with parallel edges."""
    paradigm, topology = PARADIGMS[way]
    config = small_config(MODELS["gat"], paradigm=paradigm)
    config["sampler"] = {**LABOR, "topology": topology}
    if way == "push_pull":
        config["feature_store"] = {"_target_": "gnnexp.feature_stores.sliced.SlicedOptions"}
    assert_exact(ranks, 3, nasty_graph, config, 1e-10, num_parts=None if topology == "replicated" else 3, steps=6)
